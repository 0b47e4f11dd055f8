"""Ranks of one node, told apart by their lines: each is a member of the rounds."""

import json
from pathlib import Path

import pytest

from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.runner.run import run_plan
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.chaos.scenario.problems import ScenarioError
from diloco_chaos.harness.record.tape.events import Merge, Step

JOB = Path(__file__).parents[2] / "support" / "ranked_job.py"
CHECKS = ("{no_global_stall: {max_gap: 5s}, none_left_out: {within: 3s}, blast_radius: {at_least: 40%%}, "
          "participation: [{learner: %s, at_least: 2%%}]}")


def scenario(bug="", fault="{kill: job/rank-1, at: 2s}", learner="job/rank-0", **more):
    trainer = {"kind": "commands", "rounds": 220, "nodes": {"job": more | {
        "worker": True, "run": f"{{python}} -S {JOB} {{run}}/ranks {bug}", "processes": {"rank": r"LOCAL_RANK=(\d+)"}}},
        "progress": [{"node": "job", "log": r"\[rank(?P<rank>\d+)\] step=(?P<round>\d+) loss=(?P<loss>\S+)"}]}
    return parse(f"diloco_chaos: 1\nname: ranked\ndeadline: 60s\ntrainer: {json.dumps(trainer)}\nfaults: [{fault}]\n"
                 f"checks: {CHECKS % learner}\n")


def ran(tmp_path, bug, **more):
    result = run_plan(freeze(scenario(bug, **more), 0), tmp_path, NullAudience())
    return result, {each.name: each for each in result.judgement.checks}


def test_a_kill_of_one_rank_hits_it_and_not_the_others(tmp_path):
    result, checks = ran(tmp_path, "")
    assert {checks[name].verdict for name in ("none_left_out", "blast_radius", "participation", "faults_verified",
                                              "members_agree")} == {"passed"}, checks
    assert result.history.members == {"job": ["job/rank-0", "job/rank-1"]}
    assert {step.rank for step in result.history.tape.of(Step)} == {"0", "1"}
    assert "job/rank-0" in {part.member for merge in result.history.tape.of(Merge) for part in merge.contributions}


@pytest.mark.parametrize(("bug", "check", "says"), [
    ("gives-up", "none_left_out", "job/rank-1 had no part in"), ("waits", "blast_radius", "job/rank-0 at ")])
def test_a_rank_that_is_left_out_and_one_that_waits_for_it_are_found(tmp_path, bug, check, says):
    _, checks = ran(tmp_path, bug)
    verdict = checks[check]
    assert verdict.verdict == "failed" or verdict.reason == "excused", verdict
    assert says in str(verdict), verdict


def test_a_rank_that_never_comes_is_found_where_the_scenario_says_how_many_there_are(tmp_path):
    _, checks = ran(tmp_path, "forgets", fault="{pause: job/rank-0, at: 2s, for: 300ms}", ranks=2)
    assert checks["none_left_out"].verdict == "failed", checks["none_left_out"]
    assert "member 2 of 2 of job (`ranks: 2`) had no part in" in str(checks["none_left_out"])


def test_who_is_to_take_part_is_a_worker_or_a_rank_of_one():
    with pytest.raises(ScenarioError, match="a rank of a worker is called job/rank-1"):
        scenario(learner="job/2")
    with pytest.raises(ScenarioError, match="there is no learner 'jobs/rank-1'"):
        scenario(learner="jobs/rank-1")
