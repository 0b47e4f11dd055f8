"""Scenario files: what is valid, and what a person is told about what is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.chaos.scenario.loading import load, parse
from diloco_chaos.chaos.scenario.problems import ScenarioError
from diloco_chaos.chaos.scenario.warnings import warnings_of
from diloco_chaos.scenarios import find

HEAD = "diloco_chaos: 1\nname: mine\n"


def problems(text):
    with pytest.raises(ScenarioError) as caught:
        parse(text, "mine.yaml")
    return [problem.at("mine.yaml") for problem in caught.value.problems]


def test_every_scenario_of_the_library_is_valid_and_bears_its_files_name():
    assert {"flagship", "no-fault", "kill-one", "kill-one-quorum-3", "far"} <= set(find())
    for name, path in find().items():
        scenario, _ = load(str(path))
        assert scenario.name == name
        assert scenario.description
        assert path.read_text().startswith("diloco_chaos: 1\n")


def test_one_scenario_of_the_library_runs_with_quorum_three():
    assert any(load(str(path))[0].cluster.quorum == 3 for path in find().values())


def test_all_problems_are_told_at_once_each_with_line_column_and_the_nearest_name():
    found = problems(HEAD + """clutser: {}
cluster: {learners: 4, quorm: 2, step_time: 60}
faults:
  - kil: learner-1
    at: 3s
  - straggler: learner-2
    at: 3s
    for: 3s
    factr: 0.5
checks: {uptime: {at_least: 200 percent}}
""")
    assert found[0] == "mine.yaml:3:1: unknown key 'clutser'; did you mean 'cluster'?"
    assert found[1] == "mine.yaml:4:24: unknown key 'quorm'; did you mean 'quorum'?"
    assert found[2].startswith("mine.yaml:4:34: cluster.step_time: 60 has no unit: write 60s or 60ms")
    assert found[3].startswith("mine.yaml:6:5: no fault 'kil'; did you mean 'kill'?")
    assert found[4].startswith("mine.yaml:11:5: unknown key 'factr'; did you mean 'factor'? (keys here are after,")
    assert "200 percent" in found[5]
    assert len(found) == 6


def test_a_bound_of_a_check_that_has_none_is_not_called_an_unknown_key():
    assert problems(HEAD + "checks: {exactly_once: {at_least: 2}, exactly_onc: {}}\n") == [
        "mine.yaml:3:10: the check exactly_once has no bound to set; remove this: it judges without one",
        "mine.yaml:3:39: unknown key 'exactly_onc'"]


def test_what_is_wrong_with_a_cluster_does_not_hide_what_else_is():
    found = problems(HEAD + """cluster: {model: quadratc, learners: 4, budget: 300 stps, step_time: -5ms}
faults: [{kill: learner-7, at: 3s}]
checks: {reintegration: {withn: 8s}}
""")
    assert [line.partition(": ")[0] for line in found] == [f"mine.yaml:{place}" for place in (
        "3:11", "3:41", "3:59", "4:10", "5:26")]
    assert "there is no node 'learner-7' here" in found[3]


def test_all_that_does_not_go_together_is_told_each_at_its_key():
    found = problems(HEAD + """cluster: {learners: 4, quorum: 9, variance: 60%, speeds: [1, 1]}
faults: [{kill: learner-7, at: 3s}]
""")
    assert found[0] == "mine.yaml:3:24: cluster: quorum 9 can't be reached by 4 learners"
    assert [line[:15] for line in found[1:]] == ["mine.yaml:3:50:", "mine.yaml:4:10:"]


def test_where_nobody_knows_how_many_learners_there_are_none_is_said_to_be_missing():
    [found] = problems(HEAD + "cluster: {learners: four}\nfaults: [{kill: learner-7, at: 3s}]\n")
    assert found == "mine.yaml:3:11: cluster.learners: it must be a valid integer; 'four' is text"


@pytest.mark.parametrize(("fault", "message"), [
    ("{kill: learner-9, at: 1s}", "no node 'learner-9' here; did you mean"),
    ("{corrupt: learner-1, at: 1s}", "only the syncer can be hit"),
    ("{kill: learner-1, at: -3s}", "'-3s' is not a duration"),
    ("{kill: learner-1, at: 3}", "3 has no unit: write 3s or 3ms"),
    ("{kill: learner-1}", "say when"),
    ("{kill: learner-1, at: 1s, when: {node: learner-1, event: step}}", "say when"),
    ("{straggler: learner-1, at: 1s}", "say for how long"),
    ("{kill: learner-1, at: 1s, for: 2s}", "kill takes no `for`"),
    ("{straggler: learner-1, at: 1s, for: 2s, factor: 1.5}", "less than 1"),
    ("{latency: learner-1, at: 1s, for: 2s, rate: 5}", "5 has no unit: write it like 1MB/s"),
    ("{kill: learner-1, when: {node: learner-1, failpoint: upload.hlf}}",
     "no failpoint 'upload.hlf'; did you mean 'upload.half'?"),
    ("{kill: learner-2, when: {node: learner-1, failpoint: upload.half}}", "hit learner-1 itself"),
    ("{kill: learner-1, when: {node: learner-1, failpoint: merge.before_commit}}", "only the syncer holds at"),
    ("{kill: [learner-1, learner-1], at: 1s}", "named twice"),
    ("{kill: learner-1, when: {node: nobody, event: step}}", "no node 'nobody'"),
    ("kill", "it must be a mapping"),
    ("{straggler: syncer, at: 1s, for: 2s}", "only a learner can be hit"),
    ("{kill: learner-1, when: {node: learner-2, event: uplod}}", "no event 'uplod'; did you mean 'upload'?"),
])
def test_a_wrong_fault_is_told_with_what_to_write_instead(fault, message):
    found = problems(f"{HEAD}faults:\n  - {fault}\n")
    assert message in found[0], found
    assert found[0].startswith("mine.yaml:4:")


@pytest.mark.parametrize(("text", "message"), [
    (HEAD.replace("chaos: 1", "chaos: 2"), "this version reads scenarios of format 1, and this one is of 2"),
    (HEAD.replace("mine", "Mine"), "name: 'Mine' is not a name: it has small letters"),
    (HEAD.replace("mine", '"mine\\n"'), "is not a name: it has small letters"),
    (HEAD + "checks: {uptime: {at_least: 150%}}\n", "checks.uptime.at_least: it must be at most 100%"),
    (HEAD + "checks: {goodput: {at_least: 150%}}\n", "checks.goodput.at_least: it must be at most 100%"),
    (HEAD + "checks: {blast_radius: {at_least: 1.5}}\n", "checks.blast_radius.at_least: it must be at most 100%"),
    (HEAD + "faults: [{kill: learner-1, at: 1s, id: 7up}]\n", "f1.id: '7up' is not a fault's id: a letter, and"),
])
def test_what_is_wrong_is_told_in_words_of_ours(text, message):
    assert message in problems(text)[0]


@pytest.mark.parametrize(("cluster", "message"), [
    ("{quorum: 5}", "quorum 5 can't be reached by 4 learners"),
    ("{fragments: 24}", "use fewer fragments"),
    ("{model: huge}", "choose one of tiny"),
    ("{warm_start: 300 steps, budget: 400 steps}", "more than a quarter"),
    ("{overlap: 0}", "set quorum to the number of learners"),
    ("{budget: many}", "write it like 600 steps"),
    ("{learners: '4'}", "'4' is text (leave the quotes out)"),
    ("{quorum: true}", "it must be a valid integer"),
    ("{step_time: 2s}", "use more than two steps"),
    ("{mode: synchronous}", "is made as a reference"),
    ("{mode: data_parallel, quorum: 2}", "mode data_parallel means quorum 4: leave quorum out"),
    ("{seed: 7}", "run --seed 7"),
])
def test_a_cluster_that_can_not_work_is_refused(cluster, message):
    assert message in problems(f"{HEAD}cluster: {cluster}\n")[0]


@pytest.mark.parametrize("text", ["", "a: [", "- 1", "diloco_chaos: 2\nname: x", "name: x", HEAD + "name: y\n",
                                  "\x00", "%bad", "&a *b", "!!python/object:os.system {}", "a: !!binary x"])
def test_what_is_no_scenario_is_told_and_never_crashes(text):
    assert problems(text)


@given(st.text(max_size=60), st.integers(0, 400))
def test_no_mutation_of_a_scenario_crashes_the_parser(noise, at):
    text = find()["flagship"].read_text()
    at %= len(text)
    try:
        parse(text[:at] + noise + text[at + len(noise):])
    except ScenarioError as error:
        assert str(error)


def test_a_name_that_is_nearly_right_is_suggested():
    with pytest.raises(ScenarioError, match="did you mean 'flagship'"):
        load("flagshp")


def test_a_wan_longer_than_the_grace_window_is_warned_of():
    far, flagship = load("far")[0], load("flagship")[0]
    assert "come too late" in warnings_of(far.trainer, far.faults)[0]
    assert warnings_of(flagship.trainer, flagship.faults) == []


def test_kills_that_leave_no_quorum_are_warned_of():
    scenario = parse(HEAD + "cluster: {quorum: 3}\nfaults:\n  - {kill: [learner-1, learner-2], at: 1s}\n")
    assert "quorum is never reached again" in warnings_of(scenario.trainer, scenario.faults)[0]


def test_two_faults_of_one_kind_on_one_target_at_once_are_refused():
    found = problems(HEAD + "faults:\n  - {latency: learner-1, at: 1s, for: 5s}\n"
                            "  - {latency: [learner-2, learner-1], at: 3s, for: 5s}\n")
    assert found == ["mine.yaml:5:5: learner-2 and learner-1 +20 ms ± 0 ms latency for 5.0 s overlaps with learner-1 "
                     "+20 ms ± 0 ms latency for 5.0 s: one at a time on a target"]
    parse(HEAD + "faults:\n  - {latency: learner-1, at: 1s, for: 2s}\n  - {latency: learner-1, at: 3s, for: 5s}\n"
                 "  - {straggler: learner-1, at: 1s, for: 9s}\n")


@pytest.mark.parametrize("budget", [10**9 + 1, 10**400, -10**400], ids=["too long", "no float holds it", "negative"])
def test_a_budget_that_cannot_be_is_told_once_and_implies_no_warm_up(budget):
    with pytest.raises(ScenarioError) as told:
        parse(f"diloco_chaos: 1\nname: x\ncluster: {{budget: {budget}}}\n")
    [problem] = told.value.problems
    assert problem.message.startswith("cluster.budget: ")
