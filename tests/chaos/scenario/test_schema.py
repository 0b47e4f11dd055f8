"""The published JSON schema: every scenario of the library is valid, and editors mark typical mistakes."""

import json

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.problems import ScenarioError
from diloco_chaos.chaos.scenario.schema import schema
from diloco_chaos.faults import FAULTS
from diloco_chaos.scenarios import find
from typed import typed

HEAD = "diloco_chaos: 1\nname: mine\n"
SCHEMA = schema()
VALIDATOR = Draft202012Validator(SCHEMA)
KINDS = sorted(FAULTS)


def marks(text):
    """What an editor would mark."""
    return list(VALIDATOR.iter_errors(YAML(typ="safe").load(text)))


def accepted(text):
    try:
        parse(text)
    except ScenarioError:
        return False
    return True


def faulty(fault):
    return f"{HEAD}faults:\n  - {{kill: learner-4, at: 1s, restart_after: 1s}}\n  - {fault}\n"


def test_it_is_a_schema_and_json():
    Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(schema(), allow_nan=False)) == SCHEMA


def test_the_command_prints_it():
    assert json.loads(typed("schema").stdout) == SCHEMA


COMMANDS = """trainer:
  kind: commands
  nodes: {store: {listens: true, run: "s.py"}, w: {worker: true, count: 2, run: "t.py {store}"}}
  progress: [{node: w, log: 'round (?P<round>[0-9]+)'}]
"""


def test_a_trainer_of_commands_is_valid():
    assert marks(HEAD + COMMANDS) == []


@pytest.mark.parametrize(("old", "new"), [
    ("run: \"s.py\"", "rnu: \"s.py\""), ("count: 2", "count: two"), ("kind: commands", "kind: comands"),
    ("  kind: commands\n", ""), ("node: w, ", "")])
def test_a_mistake_in_a_trainer_of_commands_is_marked(old, new):
    assert COMMANDS.count(old) == 1
    assert marks(HEAD + COMMANDS.replace(old, new))
    assert not accepted(HEAD + COMMANDS.replace(old, new))


@pytest.mark.parametrize(("text", "right"), [
    ("domains: {rack-1: learner-1, rack-2: [learner-2, learner-3]}\n", True), ("domains: {rack-1: []}\n", False),
    ("faults:\n  - {io: syncer, path: '*', calls: fsync, error: EIO, at: 6s, for: 2s}\n", True),
    ("faults:\n  - {io: syncer, path: '*', calls: [], error: EIO, at: 6s, for: 2s}\n", False)])
def test_one_name_stands_for_a_list_of_one_and_none_for_no_list(text, right):
    head = "diloco_chaos: 1\nname: x\n"
    assert (marks(head + text) == []) is accepted(head + text) is right


@pytest.mark.parametrize("name", find())
def test_every_scenario_of_the_library_is_valid(name):
    assert marks(find()[name].read_text()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_fault_is_known_with_what_it_does(kind):
    assert SCHEMA["$defs"][f"fault_{kind}"]["properties"][kind]["description"]


def test_no_kind_is_offered_that_can_not_be_named():
    offered = {name.removeprefix("fault_") for name in SCHEMA["$defs"] if name.startswith("fault_")}
    assert offered == set(KINDS)


RIGHT = [
    "faults:\n", "faults: []\n", "extends: flagship\n", "tier: ci\n", "deadline: 90s\n", "tape_limit: 200kB\n",
    "cluster: {budget: 600 steps, warmup: 1 step, final_lr: 5%, step_time: 0}\n", "cluster: {quorum: 2}\n",
    "checks: {uptime: {at_least: 0.9}, goodput: {at_least: 70%}}\n", "abort_when: {loss_above: 9}\n",
    "checks: {participation: [{learner: learner-1, at_least: 80%}], loss_parity: {against_baseline: 2%}}\n"]
RIGHT_FAULTS = [
    "{kill: learner-1, at: 0}", "{kill: [learner-1, learner-2], at: 8s, restart_after: 250ms}",
    "{kill: learner-1, at: 1s, restart_after: null}", "{kill: learner-1, after: f1}",
    "{kill: learner-1, after: {fault: f1, wait: 2s}}", "{kill: learner-1, when: {loss_below: 2.5}}",
    "{kill: learner-1, when: {node: learner-1, failpoint: upload.half, count: 3}}",
    "{pause: learner-1, at: 1s, for: 1s, id: a}",
    "{latency: syncer, at: 0.2min, for: 0.1m, profile: transatlantic}",
    "{bandwidth: learner-1, at: 1s, for: 1s, rate: 1MB/s}",
    "{storm: learners, at: 5s, for: 9s, of: [{kill: {restart_after: 1s}}, {pause: {for: 1s}}]}",
    "{flapping: learner-1, at: 1s, for: 9s, down: 200ms}", "{corrupt: syncer, at: 1s, mirrors: true, files: 2}"]
WRONG = [
    "clutser: {}\n", "faults: {kill: learner-1}\n", "tier: slow\n", "deadline: 90\n", "deadline: 90 seconds\n",
    "tape_limit: 200\n", "cluster: {quorm: 1}\n", "cluster: {quorum: 0}\n",
    "cluster: {learners: 65}\n", "cluster: {joining: 1}\n", "cluster: {seed: 7}\n",
    "cluster: {merge: mean}\n", "cluster: {budget: -1}\n",
    "checks: {uptime: 90%}\n", "checks: {uptime: {at_least: 90 percent}}\n", "checks: {participation: {}}\n",
    "checks: {no_such_check: {}}\n", "abort_when: {loss: 3}\n", "description: 5\n",
    "tape_limit: 20kB\n"]
WRONG_FAULTS = [
    "{kil: learner-1, at: 1s}", "{kill: learner-1, at: 1}", "{kill: learner-1, at: -1s}", "{kill: 5, at: 1s}",
    "{kill: [], at: 1s}", "{kill: learner-1, at: 1s, restart: 1s}",
    "{straggler: learner-1, at: 1s, for: 1s, factor: 2}",
    "{latency: learner-1, at: 1s, for: 1s, rate: 1}", "{latency: learner-1, at: 1s, for: 1s, profile: mars}",
    "{kill: learner-1, when: {node: learner-1, failpoint: upload.hlf}}", "{kill: learner-1, when: step}",
    "{kill: learner-1, at: 1s, pause: learner-2}", "kill", "[kill]", "{at: 1s}",
    "{kind: kill, targets: learner-1, at: 1s}",
    "{composite: learner-1, at: 1s}", "{kill: [learner-1, learner-1], at: 1s}",
    "{kill: learner-1, at: 1s, after: [f1]}",
    "{poison: learner-1, at: 1s, content: zero}", "{reset: learner-1, at: 1s, for: 2s, reset_after: [1s]}"]


@pytest.mark.parametrize("text", [*(HEAD + text for text in RIGHT), *map(faulty, RIGHT_FAULTS)])
def test_nothing_that_can_be_run_is_marked(text):
    assert accepted(text)
    assert marks(text) == []


def test_what_follows_from_something_else_has_no_default():
    assert "default" not in SCHEMA["$defs"]["TrainerConfig"]["properties"]["warmup"]


@pytest.mark.parametrize("text", [*(HEAD + text for text in WRONG), *map(faulty, WRONG_FAULTS)])
def test_a_typical_mistake_is_refused(text):
    assert not accepted(text)


_ONLY_WHEN_READ = {"tape_limit: 20kB\n"}
"""A quantity in words has a form that a schema can check, but no size."""


@pytest.mark.parametrize("text", [*(HEAD + text for text in WRONG if text not in _ONLY_WHEN_READ),
                                  *map(faulty, WRONG_FAULTS)])
def test_a_typical_mistake_is_marked(text):
    assert marks(text)


@pytest.mark.parametrize("text", ["name: mine\n", "diloco_chaos: 1\n", "diloco_chaos: 2\nname: mine\n",
                                  "diloco_chaos: 1\nname: Mine\n", "[]"])
def test_a_file_without_its_head_is_marked_and_refused(text):
    assert marks(text)
    assert not accepted(text)
