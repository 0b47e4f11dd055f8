"""A learner that has nothing gets it from another one, where the plan has it so."""

import pytest

from diloco_chaos.chaos.runner.simulate import simulate
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from forged_runs import Story

CHECK = "recovered_from_peers"
SCENARIO = """
diloco_chaos: 1
name: peers
deadline: 600s
cluster: {{model: quadratic, learners: 3, budget: 250 steps, step_time: 60ms, recovery: {recovery},
          heartbeat_timeout: 2s}}
faults: [{faults}]
"""
KILL = "{kill: learner-2, at: 4s, restart_after: 1s}"


def story(faults=KILL, recovery="peer"):
    plan = freeze(parse(SCENARIO.format(faults=faults, recovery=recovery)), 0)
    history = simulate(plan).history
    return Story(plan, tuple(history.tape.events), tuple(history.curve), dict(history.references))


@pytest.fixture(scope="module")
def killed():
    """learner-2 was killed, and learner-1 gave what its successor needed."""
    return story()


def asked_at(event):
    return event.event == "recovering" and event.learner == "learner-2" and event.incarnation == 1


def test_a_successor_that_a_learner_brings_up_to_date_passes(killed):
    assert (killed.verdict(CHECK).verdict, killed.verdict(CHECK).measured) == ("passed", "0 of 1")


def late(event):
    return event.event == "donated" and event.learner == "learner-2" and event.versions[0]


@pytest.mark.parametrize("change", [lambda story: story.without(late), lambda story: story.forged(late, later=3.2)])
def test_a_donor_that_gives_nothing_or_too_late_is_named(killed, change):
    verdict = change(killed).verdict(CHECK)
    assert (verdict.verdict, verdict.measured) == ("failed", "1 of 1")
    assert verdict.evidence[0].startswith("learner-1 was asked at ")
    assert verdict.evidence[0].endswith("for what learner-2 needed, and gave nothing within 3.0 s")


def test_a_syncer_that_does_it_itself_fails_whether_or_not_it_says_so(killed):
    unsaid = killed.without(asked_at).verdict(CHECK)
    assert unsaid.verdict == "failed"
    assert unsaid.evidence[0].startswith("learner-2 was brought up to date by the syncer at ")
    assert unsaid.evidence[0].endswith(", though learner-1 held everything")
    said = killed.forged(asked_at, **{"from": "syncer"}).verdict(CHECK)
    assert said.evidence == unsaid.evidence


def test_where_the_plan_has_the_syncer_do_it_nothing_is_asked():
    assert CHECK not in story(recovery="syncer").describe()


@pytest.mark.parametrize("fault", [
    "{pause: learner-1, at: 4s, for: 4s}", "{kill: syncer, at: 4500ms, restart_after: 1s}",
    "{kill: learner-1, when: {node: learner-1, failpoint: donate.half, count: 3}, restart_after: 1s}"])
def test_a_donor_or_syncer_that_a_fault_has_a_hold_of_is_not_blamed(fault):
    assert story(f"{KILL}, {fault}").describe().get(CHECK, "passed") == "passed"
