"""A link that turns over bits: judged by what its server counted, refused where the server has no such toxic."""

from types import SimpleNamespace

import pytest

from diloco_chaos.chaos.runner.backends import named
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.links.corruption import Corrupted

SCENARIO = """diloco_chaos: 1
name: garbled
cluster: {learners: 2, model: quadratic, budget: 100 steps, step_time: 100ms}
deadline: 60s
faults: [{corrupt_link: learner-1, at: 4s, for: 2s}]
"""


@pytest.fixture
def seen(cluster, hit, fault):
    """The effect of a fault of which the link server says this, and what was observed."""
    def observed(counted, **settings):
        one = fault(kind="corrupt_link", targets="learner-3", **{"for": "2s"}, **settings)
        cluster.corrupted = lambda links, toxics: counted
        one.inject(hit)
        assert one.observe(hit) == {}
        one.undo(hit)
        observations = one.observe_end(hit)
        return one.verify(SimpleNamespace(), SimpleNamespace(observed=observations)), observations
    return observed


def test_the_toxic_says_what_to_change_and_each_direction_has_its_own(cluster, hit, fault):
    fault(kind="corrupt_link", targets="learner-3", every="10kB", after_bytes="1MB", count=2, seed=5,
          **{"for": "2s"}).inject(hit)
    put = cluster.toxics["learner-3"]
    assert set(put) == {"f1-corrupt-upstream", "f1-corrupt-downstream"}
    assert {tuple(toxic.attributes.items()) for toxic in put.values()} == {
        (("after", 1_000_000), ("every", 10_000), ("count", 2), ("seed", 5))}


def test_it_is_verified_by_the_bits_that_were_turned_over(seen):
    effect, observed = seen({"learner-3 upstream": Corrupted(2_100_000, 17, 0x1a, 0x2b),
                             "learner-3 downstream": Corrupted(10, 0, 1, 1)})
    assert effect.ok
    assert effect.observed == ("learner-3 upstream: 17 bits of 2.1 MB turned over "
                            "(CRC-32 0000001a came in, 0000002b went out)")
    assert (observed["bits"], observed["bytes"]) == (17, 2_100_010)


@pytest.mark.parametrize(("counted", "why"), [
    ({}, "nothing passed there while it lasted"),
    ({"learner-3 upstream": Corrupted(5000, 0, 1, 1)}, "take less of it")])
def test_where_no_bit_was_turned_over_it_is_unverified_and_says_why(seen, counted, why):
    effect, _ = seen(counted)
    assert not effect.ok
    assert why in effect.observed


def test_the_real_toxiproxy_is_refused_before_anything_starts():
    plan = freeze(parse(SCENARIO), 0)
    assert named("local", {"toxiproxy": "embedded"}).refusals(plan) == []
    [why] = named("local", {"toxiproxy": "/bin/true"}).refusals(plan)
    assert why == ("corrupt_link: the real Toxiproxy has no such toxic: leave --toxiproxy out for the embedded server")


def test_a_simulation_is_refused_with_where_to_run_it():
    [why] = named("simulated").refusals(freeze(parse(SCENARIO), 0))
    assert why.startswith("corrupt_link: only the embedded link server can turn over bits")
