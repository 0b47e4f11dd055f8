"""A fleet's time adds up, and comes to what the closed forms say."""

import numpy as np
import pytest

from diloco_chaos.harness.base.workers import InProcess
from diloco_chaos.harness.fleet.closed_forms import goodput, harmonic
from diloco_chaos.harness.fleet.fleet import Fleet
from diloco_chaos.harness.fleet.replications import TRIALS, FleetError, estimate, replicated
from diloco_chaos.harness.fleet.simulation import simulate

DAY = 86_400.0
SMALL = Fleet.model_validate({"chips": "64k", "slice_chips": 64, "mtbf": "30d", "repair": "100min", "learners": 4,
                              "shrink": "8.8s", "grow": "8.8s", "grow_within": "0s", "restart": "71s",
                              "restart_shape": 0.0})
IN_TURN = InProcess(TRIALS)


def summed_up(fleet, days=10, count=12):
    return replicated([fleet], days * DAY, count, 0, IN_TURN)[0]


@pytest.mark.parametrize("changes", [
    {}, {"learners": 1}, {"learners": 40}, {"mode": "elastic_data_parallel"}, {"mode": "data_parallel"},
    {"mode": "data_parallel", "checkpoint_every": 30.0, "checkpoint_cost": 1.0}, {"spread": 0.01},
    {"mode": "data_parallel", "spread": 0.02, "restart": 20.0}, {"detection": 3.0, "grow": 0.0},
    {"grow_within": 120.0}, {"mode": "elastic_data_parallel", "grow_within": 60.0, "repair": 30.0},
    {"mode": "data_parallel", "restart_shape": 0.6, "detection": 2.0},
    {"mode": "data_parallel", "restart_shape": 2.0, "checkpoint_every": 30.0}, {"repair_shape": 0.5},
    {"repair_shape": 0.8, "repair_exponent": 2.0}])
def test_the_simulation_comes_to_the_closed_form(changes):
    fleet = SMALL.model_copy(update=changes)
    found = summed_up(fleet).goodput
    assert found.mean == pytest.approx(goodput(fleet), abs=max(2.5 * found.half, 0.004))


@pytest.mark.parametrize("changes", [{"shape": 0.7}, {"straggler_mtbf": 900 * DAY}, {"mode": "data_parallel",
                                                                                   "spares": 90}])
def test_where_there_is_no_formula_none_is_given(changes):
    with pytest.raises(ValueError, match="no formula"):
        goodput(SMALL.model_copy(update=changes))


@pytest.mark.parametrize("changes", [
    {}, {"shape": 0.6}, {"straggler_mtbf": 100 * DAY, "straggler_for": 600.0, "spread": 0.01},
    {"mode": "data_parallel", "spares": 60, "checkpoint_every": 20.0, "checkpoint_cost": 1.0}, {"mtbf": 1.0},
    {"mode": "data_parallel", "spares": 60, "restart_shape": 0.5}, {"grow_within": 600.0, "learners": 1000},
    {"mtbf": 1.0, "grow_within": 600.0}])
def test_what_became_of_the_time_adds_up(changes):
    outcome = simulate(SMALL.model_copy(update=changes), 3 * DAY, 1)
    assert sum(outcome.states.values()) == pytest.approx(1)
    assert all(-1e-9 < share <= 1 + 1e-9 for share in outcome.states.values())
    assert outcome.goodput == outcome.states["useful"]
    assert 0 <= outcome.uptime <= 1


def test_stragglers_cost_as_much_as_the_time_in_which_there_is_one():
    # A group of n chips, each a straggler for s every T seconds: there is none for exp(-n s / (T + s)) of the time.
    fleet = SMALL.model_copy(update={"mtbf": 1e12, "straggler_mtbf": 32_000 * 600.0, "straggler_for": 300.0,
                                     "learners": 2})
    found = summed_up(fleet, days=20)
    slowed = 1 - np.exp(-32_000 * 300 / (32_000 * 600.0))
    assert found.states["slow"] == pytest.approx(slowed * 0.5, rel=0.03)


def test_the_fleet_is_up_while_as_many_learners_train_as_the_quorum_wants():
    trains = 1 / (1 + SMALL.interruptions_per_s / 4 * (SMALL.shrink + SMALL.grow))
    for quorum, expected in ((1, 1 - (1 - trains) ** 4), (4, trains ** 4),
                             (3, trains ** 4 + 4 * trains ** 3 * (1 - trains))):
        found = summed_up(SMALL.model_copy(update={"quorum": quorum})).uptime
        assert found.mean == pytest.approx(expected, abs=0.004)


def test_fleets_that_differ_in_what_they_make_of_it_have_the_same_interruptions():
    counts = {simulate(SMALL.model_copy(update={"learners": learners}), 3 * DAY, 5).interruptions
              for learners in (1, 2, 8)}
    assert len(counts) == 1


def test_the_same_seed_gives_the_same_outcome_and_another_one_another():
    one, again, other = (simulate(SMALL, DAY, seed) for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_lives_that_end_early_or_late_cost_as_much_where_slices_are_many():
    # A superposition of many renewal processes is nearly a Poisson process, whatever each of them is.
    for shape in (0.6, 3.0):
        found = summed_up(SMALL.model_copy(update={"shape": shape}))
        assert found.goodput.mean == pytest.approx(goodput(SMALL), abs=0.006)


def test_an_interval_has_its_mean_inside_as_often_as_it_says():
    chance = np.random.default_rng(0)
    inside = 0
    for _ in range(2000):
        found = estimate(chance.normal(5, 2, 5).tolist())
        inside += abs(found.mean - 5) <= found.half
    assert inside / 2000 == pytest.approx(0.95, abs=0.015)
    assert estimate([3.0]).half is None


def test_more_events_than_can_be_held_are_refused():
    with pytest.raises(FleetError, match="take fewer days, or a longer time between them"):
        replicated([SMALL.model_copy(update={"mtbf": 60.0, "repair": 1.0})], 30 * DAY, 1, 0, IN_TURN)


def test_the_mean_of_the_slowest_of_many():
    assert harmonic(1) == 1
    assert harmonic(60) == pytest.approx(sum(1 / number for number in range(1, 61)), rel=1e-4)
