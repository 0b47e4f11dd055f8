"""What may be held against each other, and what is said where it may not."""

import pytest

from diloco_chaos.chaos.report.comparison.variants import (
    VariantError,
    differing,
    must_compare,
    settings_of,
    variant,
    ways_of,
)

SCENARIO = """
diloco_chaos: 1
name: small
cluster: {model: quadratic, learners: 3, budget: 150 steps, step_time: 60ms, quorum: 2, speeds: [1, 0.9, 0.8]}
deadline: 30s
faults:
  - {kill: learner-1, at: 2s, restart_after: 2s}
"""
COMMANDS = """
diloco_chaos: 1
name: own
trainer:
  kind: commands
  nodes:
    worker: {count: 2, worker: true, run: "{python} train.py", env: {SAVE_EVERY: "100"}}
  progress:
    - {node: worker, log: 'round=(?P<round>[0-9]+)'}
  rounds: 100
faults:
  - {kill: worker-1, at: 2s, restart_after: 2s}
"""


@pytest.fixture
def small(tmp_path):
    (tmp_path / "small.yaml").write_text(SCENARIO.lstrip())
    return str(tmp_path / "small.yaml")


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.yaml").write_text(COMMANDS.lstrip())
    return str(tmp_path / "own.yaml")


@pytest.mark.parametrize(("said", "name", "settings"), [
    ("cluster.quorum=1", "quorum=1", [(("cluster", "quorum"), 1)]),
    ("quorum=1,overlap=0", "quorum=1, overlap=0", [(("quorum",), 1), (("overlap",), 0)]),
    ("prepared: quorum=1", "prepared", [(("quorum",), 1)]),
    ("speeds=[1, 0.5]", "speeds=[1, 0.5]", [(("speeds",), [1, 0.5])]),
    ("nodes.a.run=python x --a=1, b", "run=python x --a=1, b", [(("nodes", "a", "run"), "python x --a=1, b")])])
def test_what_with_says(said, name, settings):
    told = variant(said)
    assert (told.name, list(told.settings)) == (name, settings)


@pytest.mark.parametrize("said", ["cluster.quorum=1", "trainer.quorum=1", "quorum=1"])
def test_a_variant_is_the_scenario_with_another_setting(small, said):
    ways = ways_of([small], [variant(said)], [0, 1])
    must_compare(ways)
    assert [way.name for way in ways] == ["quorum=2", "quorum=1"]
    assert [[plan.cluster.quorum for plan in way.plans] for way in ways] == [[2, 2], [1, 1]]
    assert differing(*(settings_of(way.plans[0]) for way in ways)) == ["cluster.quorum 2 → 1"]


def test_what_a_command_gets_is_text_and_a_list_is_counted_from_1(own, small):
    (_, other) = ways_of([own], [variant("nodes.worker.env.SAVE_EVERY=10,nodes.worker.env.MORE=1")], [0])
    assert other.plans[0].cluster.nodes["worker"].env == {"SAVE_EVERY": "10", "MORE": "1"}
    (_, other) = ways_of([small], [variant("speeds.2=0.5")], [0])
    assert list(other.plans[0].cluster.speeds) == [1, 0.5, 0.8]


@pytest.mark.parametrize(("said", "message"), [
    ("qurum=1", "no key 'qurum'; did you mean 'quorum'?; there are abort_when, checks, "),
    ("cluster.qurum=1", "no key 'cluster.qurum'; did you mean 'quorum'?; cluster has anchor, "),
    ("cluster.quorum.x=1", "cluster.quorum is 2, and has no keys: there is no quorum.x"),
    ("speeds.9=1", "cluster.speeds is a list of 3: say which, from 1 on, as in cluster.speeds.1"),
    ("quorum=9", "--with quorum=9: "),
    ("quorum", "write KEY=VALUE, as in --with cluster.quorum=2; several with commas"),
    ("quorum=[", "'[' is no value"),
    ("quorum=2", "two ways are called 'quorum=2'")])
def test_a_mistake_in_with_gets_a_sentence(small, said, message):
    with pytest.raises(VariantError) as error:
        ways_of([small], [variant(said)], [0])
    assert message in str(error.value)


@pytest.mark.parametrize(("change", "message"), [
    (("at: 2s", "at: 3s"), "they have other faults: f1 (kill learner-1, back after 2.0 s, at 2.0 s), and f1 "),
    (("  - {kill", "  - {pause: learner-2, at: 1s, for: 1s}\n  - {kill"), "one has 1, the other 2")])
def test_other_faults_are_not_compared(small, tmp_path, change, message):
    (tmp_path / "other.yaml").write_text(SCENARIO.lstrip().replace(*change))
    with pytest.raises(VariantError) as error:
        must_compare(ways_of([small, str(tmp_path / "other.yaml")], [], [0]))
    assert str(error.value).startswith("small and other can't be compared: ")
    assert message in str(error.value)


def test_rounds_of_another_trainer_are_not_compared(small, own):
    with pytest.raises(VariantError, match="rounds of trainer decoupled-diloco and of trainer commands are not the"):
        must_compare(ways_of([small, own], [], [0]))


def test_the_same_scenario_twice_is_refused(small):
    with pytest.raises(VariantError, match="the same scenario twice"):
        ways_of([small, small], [], [0])
