"""The published table: three cells are fitted, the others predicted."""

import pytest

from diloco_chaos.harness.fleet.closed_forms import goodput
from diloco_chaos.harness.fleet.paper import FITTED, PUBLISHED, UPTIME_FROM, fitted, fleet_of
from diloco_chaos.harness.fleet.simulation import simulate

DAY = 86_400.0
FLEET = fitted()


@pytest.mark.parametrize("cell", FITTED)
def test_the_fit_has_the_cells_that_it_was_made_from(cell):
    assert goodput(fleet_of(cell, FLEET)) == pytest.approx(cell.goodput, abs=1e-9)


@pytest.mark.parametrize("cell", PUBLISHED)
def test_every_cell_is_met_within_three_points(cell):
    assert simulate(fleet_of(cell, FLEET), 3 * DAY, 1).goodput == pytest.approx(cell.goodput, abs=0.03)


def test_the_fleet_is_up_all_the_time_from_four_learners_on():
    cells = [cell for cell in PUBLISHED if cell.learners >= UPTIME_FROM]
    assert cells
    for cell in cells:
        assert simulate(fleet_of(cell, FLEET), 3 * DAY, 1).uptime > 0.995
