"""A mistake hides no other: whatever is wrong with a file is told at once, each with line and column."""

import pytest

from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.problems import ScenarioError

HEAD = "diloco_chaos: 1\nname: mine\n"
FAULTS = """faults:
  - {kil: learner-1, at: 1s}
  - {pause: learner-9, at: 1s, for: lots}
  - {kill: learner-9, at: 1s}
  - {kill: learner-1, after: f9}
  - {kill: learner-2, when: {node: learner-8, event: step}}
  - {kill: learner-2, after: f7}
  - {kill: learner-2, after: f6}
checks: {participation: [{learner: learner-7, at_least: 80%}], reintegration: {withn: 8s}}
abort_when: {alive_below: 9}
"""
INDEPENDENT = ["no fault 'kil'", "f2.for: 'lots'", "no fault 'f9'", "after itself", "after itself", "'withn'"]
"""Of `FAULTS`, what is wrong whichever nodes there are; ..."""
OF_NAMES = ["no node 'learner-9'", "no node 'learner-9'", "no node 'learner-8'", "no learner 'learner-7'",
            "never more than 4 learners"]
"""... and what is wrong with nodes that are known."""


def problems(text, folder="."):
    with pytest.raises(ScenarioError) as caught:
        parse(text, f"{folder}/mine.yaml")
    return [problem.at("")[1:] for problem in caught.value.problems]


def all_told(found, words):
    """Whether each of these is told, as often as it stands there, and nothing else; each with line and column."""
    left = list(found)
    for word in words:
        fits = [line for line in left if word in line]
        assert fits, (word, found)
        left.remove(fits[0])
    assert not left
    assert all(line.split(":")[0].isdecimal() and line.split(":")[1].isdecimal() for line in found)
    return True


@pytest.mark.parametrize(("cluster", "words"), [
    ("cluster: {quorm: 1}", ["unknown key 'quorm'; did you mean 'quorum'?"]),
    ("cluster: {model: quadratc, budget: 300 stps}", ["model", "budget"]),
    ("cluster: {quorum: 9}", ["quorum 9 can't be reached"]),
    ("cluster: {quorum: 9, nonsense: 1}", ["quorum 9 can't be reached", "unknown key 'nonsense'"]),
    ("deadline: soon", ["deadline: 'soon'"]),
])
def test_a_wrong_setting_hides_nothing_of_the_faults_where_the_nodes_are_known(cluster, words):
    assert all_told(problems(f"{HEAD}{cluster}\n{FAULTS}"), [*words, *INDEPENDENT, *OF_NAMES])


@pytest.mark.parametrize(("cluster", "words"), [
    ("trainer: decopled-diloco", ["no trainer 'decopled-diloco'; did you mean"]),
    ("trainer: [3]", ["trainer"]),
    ("cluster: 3", ["cluster: it must be a mapping"]),
    ("cluster: {learners: four}", ["cluster.learners: it must be a valid integer"]),
    ("cluster: {lerners: 9}", ["unknown key 'lerners'; did you mean 'learners'?"]),
    ("extends: nowhere", ["extends nowhere: no such file"]),
    ("extends: base.yaml", ["extends base.yaml: unknown key 'clutser'", "extends base.yaml: no fault 'pse'"]),
])
def test_where_the_nodes_are_not_known_all_else_is_told_and_no_node_is_missed(tmp_path, cluster, words):
    (tmp_path / "base.yaml").write_text(f"{HEAD}clutser: {{}}\nfaults: [{{pse: learner-1, at: 1s}}]\n")
    assert all_told(problems(f"{HEAD}{cluster}\n{FAULTS}", tmp_path), [*words, *INDEPENDENT])


COMMANDS = """trainer:
  kind: commands
  nodes:
    store: {listens: true, run: "python3 store.py {prt}"}
    replica: {count: 2, worker: true, run: "python3 work.py {store}", SPOILT}
  progress: [{node: replica, log: 'round=(?P<round>[0-9]+)'}]
faults:
  - {kill: learner-1, at: 1s}
  - {kill: replica, at: 1s}
  - {kill: replica-2, at: 1s, restart_after: 1s}
  - {latency: replica-1.store, at: 3s, for: 1s, delay: 5ms}
  - {latency: replica-1.nowhere, at: 5s, for: 1s, delay: 5ms}
"""


@pytest.mark.parametrize(("spoilt", "words"), [
    ("restart: sometimes", ["nodes.replica.restart"]),
    ("env: {A: [1]}", ["trainer.nodes.replica.env.A"]),
    ("ready: {url: nowhere}", ["trainer.nodes.replica.ready.url"]),
])
def test_a_wrong_word_about_a_node_hides_neither_other_commands_nor_faults(spoilt, words):
    found = problems(HEAD + COMMANDS.replace("SPOILT", spoilt))
    assert all_told(found, [*words, "{prt}", "no node 'learner-1'", "'replica-1.nowhere'", "replica is several nodes"])


@pytest.mark.parametrize("spoilt", ["count: two", "listens: perhaps", "conut: 3"])
def test_where_it_is_not_known_which_nodes_there_are_none_is_missed(spoilt):
    line = COMMANDS.replace("count: 2, ", "") if spoilt.startswith("count") else COMMANDS
    assert len(problems(HEAD + line.replace("SPOILT", spoilt))) == 1


def test_an_unknown_key_of_a_fault_does_not_hide_what_else_is_wrong_with_it():
    assert all_told(problems(HEAD + "faults: [{kill: learner-9, nonsense: 3}]\n"),
                    ["unknown key 'nonsense'", "f1: say when", "no node 'learner-9'"])


def test_a_key_that_was_meant_for_another_one_is_not_said_to_be_missing():
    assert all_told(problems(HEAD + "faults: [{pause: learner-1, at: 1s, fro: 2s}]\n"),
                    ["unknown key 'fro'; did you mean 'for'?"])


def test_faults_that_overlap_are_told_beside_faults_that_are_wrong():
    found = problems(HEAD + """faults:
  - {kill: learner-9, at: 1s}
  - {pause: learner-1, at: 2s, for: 2s}
  - {pause: learner-1, at: 3s, for: 2s}
""")
    assert all_told(found, ["no node 'learner-9'", "overlaps with"])


def test_a_joiner_that_is_left_out_for_another_mistake_is_not_missed_among_the_others():
    found = problems(HEAD + "faults: [{join: learner-4, at: 1}, {join: learner-3, at: 2s}]\n")
    assert all_told(found, ["f1.at: 1 has no unit"])


@pytest.mark.parametrize(("entry", "name"), [
    ("{kill: learner-1, at: 3}", "f2.at: "), ("{kill: learner-1, at: 3, id: late}", "late.at: "),
    ("{kill: learner-1, at: 3s, id: 7}", "f2.id: "), ("7", "f2: ")])
def test_a_fault_is_called_in_a_message_what_it_is_called_in_the_plan(entry, name):
    [found] = problems(f"{HEAD}faults:\n  - {{kill: learner-2, at: 1s, restart_after: 1s}}\n  - {entry}\n")
    assert found.split(": ", 1)[1].startswith(name)


def test_what_stands_in_a_list_is_counted_from_one():
    [found] = problems(HEAD + "checks: {participation: [{learner: learner-1, at_least: 80%}, {learner: learner-2}]}\n")
    assert "checks.participation.2: give a bound" in found
