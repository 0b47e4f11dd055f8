"""What is run: each cell's scenario is valid, without the framework that it is about."""

from collections import Counter

import pytest

from benchmarks.league.cells import Cell, cells
from benchmarks.league.contestants import CONTESTANTS
from benchmarks.league.faults import FAULTS
from benchmarks.league.roles import Absent
from diloco_chaos.chaos.runner.backends import named
from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.chaos.scenario.plan import freeze

LOCAL = named("local")
LACKING = ("there is no program", "can't be had")
"""What the machine lacks now: a framework, a port."""
TO_RUN = [cell for cell in cells() if cell.absent is None]


def test_every_contestant_meets_the_same_twelve_faults_in_both_of_its_variants():
    assert len(FAULTS) == 12
    assert Counter((cell.contestant.name, cell.variant) for cell in cells()) == {
        (contestant.name, variant): 12 for contestant in CONTESTANTS for variant in ("defaults", "best")}
    assert len({cell.key for cell in cells()}) == len(list(cells()))


@pytest.mark.parametrize("contestant", CONTESTANTS, ids=lambda contestant: contestant.name)
def test_each_scenario_is_valid_and_can_run_on_this_machine_where_its_programs_are(contestant, tmp_path):
    for cell in TO_RUN:
        if cell.contestant is contestant:
            for name, script in cell.scripts().items():
                compile(script, name, "exec")
            plan = freeze(load(str(cell.prepare(tmp_path)))[0], 0)
            assert not [why for why in LOCAL.refusals(plan) if not any(words in why for words in LACKING)], cell.key


def test_the_faults_come_at_the_same_moment_for_all():
    for cell in TO_RUN:
        first = cell.scenario()["faults"][0]
        assert first.get("at") == "10.6s" or cell.fault.holds, cell.key


def test_every_cell_is_judged_by_the_same_bounds():
    checks = {cell.key: dict(cell.scenario()["checks"]) for cell in TO_RUN}
    for key, bounds in checks.items():
        lost = bounds.pop("rounds_never_go_back", None)
        assert (lost is None) == key.startswith("built-in/")
    assert len({str(bounds) for key, bounds in checks.items() if not key.startswith("built-in/")}) == 1


def test_the_best_settings_are_said_to_be_somebodys():
    for contestant in CONTESTANTS:
        assert contestant.variants["best"].source
        assert contestant.variants["best"].told
        cell = {variant: Cell(contestant, variant, FAULTS[0]) for variant in contestant.variants}
        assert ((cell["best"].scenario(), cell["best"].scripts())
                != (cell["defaults"].scenario(), cell["defaults"].scripts()))


def test_an_absent_part_is_told_with_its_reason():
    assert Absent("it has none").words == "does not apply: it has none"
    assert Absent("no proxy fits", exists=True).words == "cannot be tried here: no proxy fits"


@pytest.mark.parametrize(("only", "count"), [("", 24 * len(CONTESTANTS)), ("torchrun", 24), ("torchrun/best", 12),
                                             ("kill-worker", 2 * len(CONTESTANTS)), ("torchrun/kill-worker", 2),
                                             ("torchrun/best/pause", 1), ("nobody", 0), ("torchrun/nothing", 0)])
def test_cells_are_chosen_by_the_parts_of_their_names(only, count):
    assert len(list(cells(only))) == count
