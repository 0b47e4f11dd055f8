"""A fleet as a run of minutes: what stays the same, and what can't be."""

import pytest

from diloco_chaos.harness.fleet.closed_forms import begun, goodput
from diloco_chaos.harness.fleet.paper import PUBLISHED, cell_of, fitted, fleet_of
from diloco_chaos.harness.fleet.scaled import ScaledError, scaled

STEP_S = 1.0


@pytest.mark.parametrize("cell", PUBLISHED)
def test_a_peer_fails_as_often_in_steps_and_for_as_long(cell):
    fleet = fleet_of(cell, fitted())
    run = scaled(fleet, STEP_S, 40)
    peers = run.fleet.chips
    away = run.outage if cell.mode != "data_parallel" else 0.0
    assert (run.up + away) / run.step_time == pytest.approx(peers / fleet.interruptions_per_s / STEP_S)
    if cell.mode == "data_parallel":
        assert run.outage / run.step_time == pytest.approx((1 / begun(fleet) - 1) / fleet.interruptions_per_s / STEP_S)
    if cell.mode == "elastic_data_parallel":
        assert run.stands / run.step_time == pytest.approx(
            (fleet.shrink + fleet.growths * fleet.grow) / 2 / STEP_S)


@pytest.mark.parametrize("cell", PUBLISHED)
def test_its_goodput_is_the_fleets_as_far_as_an_eighth_of_a_fleet_is_like_a_slice(cell):
    fleet = fleet_of(cell, fitted())
    run = scaled(fleet, STEP_S, 40).fleet
    trains = (run.mtbf / (run.mtbf + run.repair) if cell.mode == "decoupled" else goodput(run))
    assert trains == pytest.approx(goodput(fleet), abs=0.1 if cell.mode == "elastic_data_parallel" else 1e-6)


def test_it_lasts_until_there_were_as_many_failures_as_are_wanted():
    fleet = fleet_of(cell_of(1_200_000, "decoupled", 8), fitted())
    run = scaled(fleet, STEP_S, 40)
    assert run.lasts * 8 / (run.up + run.outage) == pytest.approx(40)
    assert scaled(fleet, STEP_S, 80).lasts == pytest.approx(2 * run.lasts)


def test_its_steps_are_as_long_as_processes_need_to_be_back():
    fleet = fleet_of(cell_of(1_200_000, "decoupled", 8), fitted())
    assert scaled(fleet, STEP_S, 40).outage == pytest.approx(8.0)
    slower = scaled(fleet, 30.0, 40)  # fewer steps from one failure to the next
    assert slower.outage == pytest.approx(8.0)
    assert slower.step_time > 20 * scaled(fleet, STEP_S, 40).step_time


@pytest.mark.parametrize(("changes", "why"), [
    ({"learners": 17}, "17 learners are more than the 16"), ({"shape": 2.0}, "no formula")])
def test_where_no_run_stands_for_it_that_is_said(changes, why):
    with pytest.raises(ScaledError, match=why):
        scaled(fitted().model_copy(update=changes), STEP_S, 40)
