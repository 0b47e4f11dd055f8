"""`checks: resumable` is a set of bounds; what a scenario says beside it counts."""

import json

import pytest

from diloco_chaos.chaos.scenario.bounds import Bounds, Resumed
from diloco_chaos.chaos.scenario.loading import load, parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.chaos.scenario.problems import ScenarioError

JOB = """diloco_chaos: 1
name: job
trainer:
  kind: commands
  nodes: {trainer: {run: "python3 -c 1", worker: true}}
  progress: [{node: trainer, log: '(?P<round>\\d+)'}]
  rounds: 9
"""


def checks(text):
    return parse(f"{JOB}checks: {text}\n").checks


def test_a_profile_is_a_set_of_bounds():
    bounds = checks("resumable")
    assert bounds.no_global_stall.max_gap == 60
    assert bounds.resumed == Resumed()
    assert {"self_healing", "uptime", "rounds_never_go_back"} < set(bounds.switched_off)


def test_what_is_said_beside_a_profile_counts():
    bounds = checks("{profile: resumable, no_global_stall: {max_gap: 5min}, uptime: {at_least: 50%}, resumed: off}")
    assert (bounds.no_global_stall.max_gap, bounds.uptime.at_least) == (300, 0.5)
    assert "uptime" not in bounds.switched_off
    assert "resumed" in bounds.switched_off


def test_a_scenario_that_extends_one_with_a_profile_adds_to_it(tmp_path):
    (tmp_path / "base.yaml").write_text(f"{JOB}checks: resumable\n")
    (tmp_path / "own.yaml").write_text(
        "diloco_chaos: 1\nextends: base.yaml\nname: own\nchecks: {resumed: {rounds: 20}}\n")
    bounds = load(str(tmp_path / "own.yaml"))[0].checks
    assert (bounds.resumed.rounds, bounds.no_global_stall.max_gap) == (20, 60)


def test_a_profile_that_is_not_there_is_told_with_those_that_are():
    with pytest.raises(ScenarioError, match="no profile 'resumible'; did you mean 'resumable'"):
        checks("resumible")
    with pytest.raises(ScenarioError, match="no profile"):
        checks("{profile: [resumable]}")


def test_a_profile_that_is_written_as_a_check_is_told_of():
    with pytest.raises(ScenarioError, match=r"it is a profile, write `checks: \{profile: resumable\}`"):
        checks("{resumable: {}}")


def test_a_plan_has_the_bounds_and_reads_the_same_again():
    plan = freeze(parse(f"{JOB}checks: resumable\n"), 0)
    frozen = json.loads(plan.model_dump_json())["checks"]
    assert "profile" not in frozen
    assert Bounds.model_validate(frozen) == plan.checks


def test_a_plan_without_one_lacks_what_came_with_it():
    assert "resumed" not in json.loads(freeze(parse(JOB), 0).model_dump_json())["checks"]
