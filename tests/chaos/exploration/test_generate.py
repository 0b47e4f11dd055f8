"""Schedules for real places: what virtual time does not have is drawn for them, and for nobody else."""

import random

import pytest

from diloco_chaos.chaos.exploration.generate import VIRTUAL, ByChance, choose, drawable, known, plan_of, with_faults
from diloco_chaos.chaos.exploration.guide import Knowledge, draw
from diloco_chaos.chaos.exploration.scenario_writer import text
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
                  and all("at" in fault for fault in faults) and {"io", "hang"} <= {*faults[0], *faults[1]}
                  and "syncer" not in {fault.get("hang") for fault in faults})  # it may end by the failing call
    result = run_plan(plan_of(BASE, faults, 0, LOCAL), tmp_path, NullAudience())
    verdicts = {verdict.name: verdict for verdict in result.judgement.checks}
    assert result.outcome.kind == "finished"
    assert verdicts["faults_verified"].verdict == "passed", verdicts["faults_verified"]
    assert verdicts["all_undone"].verdict == "passed", verdicts["all_undone"]


RACKS = parse("""
diloco_chaos: 1
name: racks
domains: {rack-1: [learner-1, learner-2], all: [syncer, learner-1]}
cluster: {model: quadratic, learners: 3, budget: 150 steps, step_time: 60ms}
""")


def aimed(scenario, kinds, count=200):
    return [choose(ByChance(random.Random(number)), scenario, kinds, 1) for number in range(count)]


def test_where_there_are_domains_they_are_targets_too_as_far_as_a_fault_may_hit_all_of_their_nodes():
    drawn_targets = {kind: {fault[kind] for [fault] in aimed(RACKS, (kind,)) if kind in fault}
                     for kind in ("kill", "partition", "straggler")}
    assert drawn_targets == {
        "kill": {"syncer", "learner-1", "learner-2", "learner-3", "domain rack-1", "domain all"},
        "partition": {"syncer", "learner-1", "learner-2", "learner-3", "domain rack-1", "domain all"},
        "straggler": {"learner-1", "learner-2", "learner-3", "domain rack-1"}}


def test_nothing_else_is_drawn_where_there_are_none():
    bare = RACKS.model_copy(update={"domains": {}})
    assert not [fault for faults in aimed(bare, known(None)) for fault in faults if "domain" in str(fault)]


def test_a_schedule_for_a_domain_is_a_plan_and_a_file_with_what_the_domain_holds():
    faults = [{"kill": "domain rack-1", "at": "2s", "restart_after": "1s"}]
    plan = plan_of(RACKS, faults, 0)
    assert (plan.faults[0].fault.targets, plan.faults[0].domains) == (("learner-1", "learner-2"), ("rack-1",))
    file = text(RACKS, faults, "found", "")
    assert freeze(parse(file), 0).faults == plan.faults
    assert "domains" not in text(RACKS, [{"kill": "learner-1", "at": "2s"}], "found", "")


def test_lemons_and_replacements_are_drawn_where_the_scenario_has_one_or_they_are_named():
    lemon = with_faults(RACKS, [{"lemon": "learner-1", "at": "2s"}])
    assert not {"lemon", "replace"} & {*known(None), *known(None, LOCAL), *known(None, VIRTUAL, RACKS)}
    assert {"lemon", "replace"} & {*known(None, VIRTUAL, lemon)} == {"lemon"}
    assert known(["replace", "lemon"]) == ("replace", "lemon")


def test_a_drawn_lemon_fails_a_stated_number_of_times_and_the_last_learner_is_the_spare():
    schedules = aimed(RACKS, known(["lemon", "replace"]))
    lemons = [fault for faults in schedules for fault in faults if "lemon" in fault]
    replaced = [fault for faults in schedules for fault in faults if "replace" in fault]
    assert lemons
    assert all("times" in fault or "for" in fault for fault in lemons)
    assert {fault["replace"] for fault in replaced} == {"learner-1", "learner-2"}
    assert {fault["with"] for fault in replaced} == {"learner-3"}


def test_no_fault_is_drawn_for_a_spare():
    schedules = [choose(ByChance(random.Random(number)), RACKS, ("kill", "partition", "replace"), 4)
                 for number in range(100)]
    having = [faults for faults in schedules if any("replace" in fault for fault in faults)]
    assert having
    assert not [fault for faults in having for fault in faults
                if "learner-3" in (fault.get("kill"), fault.get("partition"))]
