"""What links must carry, by formula, as published, and in a run."""

import pytest
from pydantic import ValidationError

from diloco_chaos.chaos.evidence.traffic import crossed
from diloco_chaos.chaos.runner.simulate import simulate
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.fleet.bandwidth import BITS, PUBLISHED, Exchange, at_the_syncer, data_parallel, decoupled
from diloco_chaos.harness.trainer.algorithm.codec import bits_per_value

PLAIN = Exchange.model_validate({"parameters": 1000, "step_time": "1s", "sites": 2, "sync_every": 10, "fragments": 5,
                                 "overlap": 2.0, "gradients": "float32", "broadcasts": "bfloat16"})
GIGA = 1e9


def test_a_ring_of_two_sends_every_gradient_once_a_step_and_a_large_one_twice():
    assert data_parallel(PLAIN, "float32").up == pytest.approx(32_000 / GIGA)
    many = PLAIN.model_copy(update={"sites": 1000})
    assert data_parallel(many, "bfloat16").down == pytest.approx(2 * 16_000 / GIGA, rel=2e-3)


def test_what_may_travel_in_half_of_a_step_needs_twice_the_rate():
    half = PLAIN.model_copy(update={"hidden": 0.5})
    assert data_parallel(half, "float32").up == pytest.approx(2 * data_parallel(PLAIN, "float32").up)


def test_a_fragment_travels_once_in_h_steps_each_way_in_its_own_precision():
    assert decoupled(PLAIN) == pytest.approx((3200 / GIGA, 1600 / GIGA))


def test_where_exchanges_may_take_less_time_than_there_is_between_them_the_link_must_be_quicker():
    hurried = PLAIN.model_copy(update={"overlap": 1.0})  # five fragments a step each, of ten
    assert decoupled(hurried).up == pytest.approx(2 * decoupled(PLAIN).up)


def test_a_value_takes_as_many_bits_as_in_the_built_in_trainer():
    assert {precision: bits_per_value(precision) for precision in BITS} == BITS


def test_the_syncers_site_hears_of_all_and_tells_all():
    needed = at_the_syncer(PLAIN.model_copy(update={"sites": 4}))
    assert needed == pytest.approx((4 * 1600 / GIGA, 4 * 3200 / GIGA))


@pytest.mark.parametrize("pair", PUBLISHED)
def test_the_published_numbers_follow_from_what_is_assumed_of_them(pair):
    assert round(data_parallel(pair.assumed, "bfloat16").up) == pair.data_parallel
    digits = len(str(pair.decoupled).partition(".")[2])
    assert round(decoupled(pair.assumed).up, digits) == pair.decoupled


@pytest.mark.parametrize("given", [{"parameters": 0}, {"sites": 1}, {"step_time": 0}, {"sync_every": 0},
                                   {"gradients": "int3"}, {"hidden": 1.5}, {"overlap": -1.0}])
def test_what_can_not_be_is_refused(given):
    with pytest.raises(ValidationError):
        Exchange.model_validate(given)


@pytest.mark.parametrize(("up", "down"), [("float32", "float32"), ("bfloat16", "float32")])
def test_a_run_moves_as_many_bytes_as_the_formula_says(up, down):
    pytest.importorskip("torch")
    plan = freeze(parse(f"""diloco_chaos: 1
name: bytes
cluster: {{model: micro, corpus: markov, batch: 1, learners: 4, quorum: 1, fragments: 4, sync_every: 8, overlap: 2,
          grace: 1.0, step_time: 100ms, budget: 240 steps, gradients: {up}, broadcasts: {down}}}
deadline: 120s
faults: []
"""), 0)
    history = simulate(plan).history
    moved, seconds = crossed(history), len(history.merges) / 4 * 8 * 0.1  # each fragment once in H steps
    parameters = 11_568
    asked = decoupled(Exchange.model_validate({
        "parameters": parameters, "step_time": "100ms", "sites": 4, "sync_every": 8, "fragments": 4, "overlap": 2.0,
        "gradients": up, "broadcasts": down}))
    begun = 4 * parameters * 4  # everybody begins with every fragment, as float32
    assert moved.received["outer_gradient"] * 8 / seconds / 4 / GIGA == pytest.approx(asked.up, rel=0.05)
    assert (moved.sent["broadcast"] - begun) * 8 / seconds / 4 / GIGA == pytest.approx(asked.down, rel=0.05)
