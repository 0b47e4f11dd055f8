"""The published table: four cells are fitted, the others predicted."""

import pytest

from diloco_chaos.harness.fleet.closed_forms import goodput
from diloco_chaos.harness.fleet.paper import FITTED, PUBLISHED, UPTIME_FROM, cell_of, fitted, fleet_of, rms
from diloco_chaos.harness.fleet.simulation import simulate

DAY = 86_400.0
FLEET = fitted()


def off(cell, fleet=FLEET):
    return goodput(fleet_of(cell, fleet)) - cell.goodput


def test_the_rigid_cell_is_met():
    assert off(cell_of(1_200_000, "data_parallel")) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("changes", [
    {"shrink": 1.01, "grow": 1.01}, {"shrink": 0.99, "grow": 0.99}, {"grow_within": 1.02}, {"grow_within": 0.98}])
def test_no_other_pause_and_no_other_time_to_grow_is_nearer_to_the_fitted_cells(changes):
    other = FLEET.model_copy(update={name: getattr(FLEET, name) * times for name, times in changes.items()})
    assert rms([off(cell, other) for cell in FITTED]) > rms([off(cell) for cell in FITTED])


def test_the_whole_table_is_met():
    errors = [off(cell) for cell in PUBLISHED]
    assert len(errors) == 30
    assert rms(errors) < 0.012
    assert max(map(abs, errors)) < 0.03


@pytest.mark.parametrize("cell", PUBLISHED)
def test_the_simulation_comes_to_the_closed_form_of_every_cell(cell):
    fleet = fleet_of(cell, FLEET)
    assert simulate(fleet, 20 * DAY, 1).goodput == pytest.approx(goodput(fleet), abs=0.012)


def test_a_fleet_without_times_to_start_from_is_fitted_as_well():
    again = fitted(FLEET.model_copy(update={"shrink": 0.0, "grow_within": 0.0, "restart": 0.0}))
    assert (again.shrink, again.grow_within) == pytest.approx((FLEET.shrink, FLEET.grow_within), rel=1e-6)


def test_some_learner_trains_nearly_all_the_time_from_four_learners_on():
    cells = [cell for cell in PUBLISHED if cell.learners >= UPTIME_FROM]
    assert cells
    for cell in cells:
        least = 0.99 if cell == cell_of(2_400_000, "decoupled", 4) else 0.998
        assert simulate(fleet_of(cell, FLEET), 3 * DAY, 1).uptime > least
