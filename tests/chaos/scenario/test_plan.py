"""Frozen plans: the same everywhere, repeatable, and impossible to alter unnoticed."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.chaos.scenario import plan as plans
from diloco_chaos.chaos.scenario.loading import load, parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.chaos.scenario.problems import ScenarioError


def test_a_plan_survives_saving_and_loading(tmp_path):
    frozen = freeze(load("flagship")[0], 3)
    plans.save(frozen, tmp_path / "plan.json")
    assert plans.load(tmp_path / "plan.json") == frozen


@given(st.integers(0, 2**31), st.floats(0.001, 1e4), st.floats(0.001, 1e4), st.floats(0.01, 0.99))
def test_any_times_survive_being_frozen_to_the_last_digit(seed, at, duration, factor):
    scenario = parse(f"diloco_chaos: 1\nname: x\ncluster: {{budget: 1000000}}\ndeadline: 100000s\n"
                     f"faults:\n  - {{straggler: learner-1, at: {at!r}s, "
                     f"for: {duration!r}s, factor: {factor!r}}}\n")
    frozen = freeze(scenario, seed)
    again = plans.Plan.model_validate_json(frozen.model_dump_json(by_alias=True))
    assert again == frozen
    assert again.digest == frozen.digest
    assert frozen.faults[0].fault.at == at


def test_the_digest_tells_seeds_and_faults_apart():
    scenario = load("flagship")[0]
    assert freeze(scenario, 0).digest != freeze(scenario, 1).digest
    assert freeze(scenario, 0).digest != freeze(scenario, 0).without_faults().digest


@pytest.mark.parametrize("name", ["flagship", "storm"])
def test_the_digest_is_the_same_under_every_hash_seed(name):
    script = f"from diloco_chaos import freeze, load; print(freeze(load('{name}')[0], 7).digest)"
    found = {subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True,
                            env=os.environ | {"PYTHONHASHSEED": seed}).stdout for seed in ("0", "1", "12345")}
    assert found == {freeze(load(name)[0], 7).digest + "\n"}


def test_a_storm_is_the_same_on_every_machine():
    storm = "{storm: learners, at: 1s, for: 8s, mtbf: 8s, of: [{kill: {restart_after: 1s}}, {pause: {for: 1s}}]}"
    frozen = freeze(parse(f"diloco_chaos: 1\nname: x\nfaults:\n  - {storm}\n"), 3)
    assert [(planned.id, planned.fault.at, planned.fault.kind, planned.fault.targets) for planned in frozen.faults] == [
        ("f1.1", 1.325, "kill", ("learner-4",)), ("f1.2", 2.198, "pause", ("learner-2",)),
        ("f1.3", 4.388, "kill", ("learner-1",)), ("f1.4", 5.625, "kill", ("learner-4",))]


def test_a_fault_keeps_its_chance_whatever_comes_before_it():
    head = "diloco_chaos: 1\nname: x\nfaults:\n"
    storm = "  - {storm: learners, at: 10s, for: 8s, mtbf: 8s, id: storm}\n"
    pause = "  - {pause: syncer, at: 1s, for: 1s}\n"
    alone, behind = (freeze(parse(head + before + storm), 3) for before in ("", pause))
    assert [planned.fault.at for planned in alone.faults] == [planned.fault.at for planned in behind.faults[1:]]


def test_a_plan_that_was_altered_is_refused(tmp_path):
    path = tmp_path / "plan.json"
    plans.save(freeze(load("flagship")[0], 0), path)
    document = json.loads(path.read_text())
    document["plan"]["seed"] = 5
    path.write_text(json.dumps(document))
    with pytest.raises(ScenarioError, match="altered after it was frozen"):
        plans.load(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"plan": 3, "digest": ""}', "\x00", '{"plan": {}, "digest": "x"}'])
def test_a_file_that_is_no_plan_is_refused_with_what_would_be_one(tmp_path, text):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(ScenarioError, match="not a frozen plan"):
        plans.load(tmp_path / "plan.json")


def test_the_predicted_availability_counts_what_each_fault_takes_from_its_targets():
    scenario = parse("diloco_chaos: 1\nname: x\ncluster: {budget: 100 steps, step_time: 100ms}\nfaults:\n"
                     "  - {straggler: learner-1, at: 1s, for: 4s, factor: 0.25}\n")
    assert freeze(scenario, 0).predicted_availability() == pytest.approx(40 / 43)


COMMANDS = """
trainer:
  kind: commands
  nodes: {w: {worker: true, run: t.py}}
  progress: [{node: w, log: '(?P<round>[0-9]+)'}]
"""


@pytest.mark.parametrize("fault", ["{terminate: w, at: 1s}", "{restart: w, at: 1s}"])
def test_a_command_that_is_asked_to_end_has_the_time_that_schedulers_give(fault):
    assert freeze(parse(f"diloco_chaos: 1\nname: x\n{COMMANDS}\nfaults: [{fault}]"), 0).faults[0].fault.grace == 30.0


@pytest.mark.parametrize("fault", ["{terminate: w, at: 1s, signal: USR1, grace: 4s}",
                                   "{terminate: {node: w, signal: USR1, grace: 4s}, at: 1s}"])
def test_how_a_command_is_asked_to_end_stands_beside_its_name_or_with_it(fault):
    [planned] = freeze(parse(f"diloco_chaos: 1\nname: x\n{COMMANDS}\nfaults: [{fault}]"), 0).faults
    assert (planned.fault.targets, planned.fault.signal, planned.fault.grace) == (("w",), "USR1", 4.0)


def test_a_node_of_ours_has_two_seconds_as_in_older_plans_and_ends_by_one_signal():
    plan = freeze(parse("diloco_chaos: 1\nname: x\nfaults: [{terminate: learner-1, at: 1s}]"), 0)
    assert plan.document()["faults"][0]["fault"].keys() == {"kind", "targets", "id", "at", "when", "after", "for",
                                                            "restart_after"}
    with pytest.raises(ScenarioError, match="nodes of trainer decoupled-diloco end by SIGTERM only"):
        parse("diloco_chaos: 1\nname: x\nfaults: [{terminate: learner-1, at: 1s, signal: USR1}]")
