"""The verdict on what was computed: by a reference that shares no code with the trainer."""

import pytest

from diloco_chaos.chaos.checks import judge
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.exploration.generate import plan_of
from diloco_chaos.chaos.exploration.strategies import scenario
from diloco_chaos.chaos.runner.simulate import simulate
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.base.lines import text
from diloco_chaos.harness.record.tape.events import Merge
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.trainer.data_parallel import hub
from recorded_events import changed

CHECK = "arithmetic_correct"


@pytest.fixture(scope="module")
def history() -> History:
    return simulate(plan_of(scenario(budget="60 steps"), [], 0)).history


def verdict(plan: Plan, events):
    return next((one for one in judge(History(plan, Tape(list(events)))).checks if one.name == CHECK), None)


def test_a_sound_run_is_computed_as_the_formulas_say(history):
    found = verdict(history.plan, history.tape.events)
    assert found.verdict == "passed"
    assert found.measured.endswith("180 steps computed again")


def test_a_value_that_is_another_fails_and_says_where(history):
    merge = history.tape.of(Merge)[9]
    events = [changed(event, digest="0" * 32)
              if event is merge else event for event in history.tape.events]
    found = verdict(history.plan, events)
    assert found.verdict == "failed"
    assert found.measured == f"differs at {merge.t:.2f} s"
    assert f"version {merge.version} of fragment {merge.fragment} was 000" in text(found.evidence[0])


def test_without_a_learners_events_nothing_is_known(history):
    found = verdict(history.plan, [event for event in history.tape.events if event.node != "learner-2"])
    assert found.verdict == "unknown"


def test_a_model_that_has_no_reference_has_no_such_verdict(calm):
    assert CHECK not in calm.describe()


def averaging():
    return plan_of(scenario(mode="data_parallel", budget="60 steps"), [
        {"kill": "learner-1", "at": "1s", "restart_after": "1s"}], 0)


def test_where_gradients_are_averaged_explorations_remember_what_was_computed_with():
    done = simulate(averaging())
    found = next(one for one in done.judgement.checks if one.name == CHECK)
    assert found.verdict == "passed"
    assert found.measured.startswith(f"{len(done.history.merges)} versions")


def test_there_too_a_mean_that_leaves_somebody_out_fails(monkeypatch):
    usual = hub.averaged
    monkeypatch.setattr(hub, "averaged", lambda gradients, tokens: usual(gradients[:-1], tokens[:-1]))
    assert CHECK in simulate(averaging()).failed
