"""Schedules for real places: what virtual time does not have is drawn for them, and for nobody else."""

import random

import pytest

from diloco_chaos.chaos.exploration.generate import ByChance, choose, drawable, known, plan_of, with_faults
from diloco_chaos.chaos.exploration.guide import Knowledge, draw
from diloco_chaos.chaos.exploration.strategies import scenario, written
from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.runner.backends import named
from diloco_chaos.chaos.runner.run import run_plan
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.faults import Hang, Io
from diloco_chaos.harness.places.compose.place import Compose
from diloco_chaos.harness.places.local.place import Local

BASE = scenario(learners=2, budget="100 steps", step_time="60ms")
LOCAL = named("local").abilities
REAL = ("io", "hang")


def drawn(number):
    chance = random.Random(f"real/{number}")
    return choose(ByChance(chance), BASE, REAL, 3, LOCAL)


@pytest.mark.parametrize("place", [Local, Compose])
def test_a_place_with_real_files_and_processes_has_failing_calls_and_hangs(place):
    assert set(REAL) <= set(known(None, place.can))


def test_virtual_time_is_spared_them():
    assert not set(REAL) & set(drawable())
    with pytest.raises(ValueError, match="'io' can't be drawn for this place; choose from kill, "):
        known(["io"])
    assert with_faults(BASE, [{"hang": "learner-1", "at": "2s", "for": "1s"}]) is not None, "who names them has them"
    _, faults = draw(BASE, random.Random(7), known(None), 6, Knowledge())
    assert not {"io", "hang"} & {kind for fault in faults for kind in fault}


def test_drawn_plans_are_valid_bounded_and_written_as_they_are():
    ways, seen = set(), set()
    for number in range(60):
        plan = plan_of(BASE, drawn(number), 0, LOCAL)
        assert named("local").refusals(plan) == []
        assert freeze(parse(written(plan)), 0).faults == plan.faults
        for planned in plan.faults:
            fault = planned.fault
            assert 0 < fault.duration <= 3
            seen.add((fault.kind, *fault.targets))
            if isinstance(fault, Io):
                assert (fault.path, fault.targets) == ("{run}/state/*", ("syncer",))
                ways.add(fault.error or fault.action)
            else:
                assert isinstance(fault, Hang)
    assert ways == {"ENOSPC", "EIO", "delay", "hang"}
    assert seen == {("io", "syncer"), *(("hang", node) for node in ("learner-1", "learner-2", "syncer"))}


def test_a_drawn_plan_is_performed_with_real_processes(tmp_path):
    faults = next(faults for faults in map(drawn, range(500)) if len(faults) == 2
                  and all("at" in fault for fault in faults) and {"io", "hang"} <= {*faults[0], *faults[1]})
    result = run_plan(plan_of(BASE, faults, 0, LOCAL), tmp_path, NullAudience())
    verdicts = {verdict.name: verdict for verdict in result.judgement.checks}
    assert result.outcome.kind == "finished"
    assert verdicts["faults_verified"].verdict == "passed", verdicts["faults_verified"]
    assert verdicts["all_undone"].verdict == "passed", verdicts["all_undone"]
