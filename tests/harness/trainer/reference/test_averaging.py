"""A run of the quadratic model whose gradients are averaged, computed again from its event log."""

import pytest

from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.exploration.generate import plan_of
from diloco_chaos.chaos.exploration.strategies import scenario
from diloco_chaos.chaos.runner.simulate import simulate
from diloco_chaos.harness.record.tape.events import Merge, Resumed, Step
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.trainer.reference import averaging
from recorded_events import changed

KILL = {"kill": "learner-2", "at": "3s", "restart_after": "1s"}
CUT_OFF = {"partition": "learner-3", "at": "5s", "for": "1500ms"}
COORDINATOR = {"kill": "syncer", "at": "2s", "restart_after": "1s"}
RIGID, ELASTIC = "data_parallel", "elastic_data_parallel"


def run(*faults, mode=RIGID, **cluster):
    return simulate(plan_of(scenario(mode=mode, **{"budget": "60 steps"} | cluster), list(faults), 0)).history


def again(history):
    return history.plan.trainer.recomputed(history)


@pytest.mark.parametrize("mode", [RIGID, ELASTIC])
@pytest.mark.parametrize("cluster", [{}, {"batch": [1, 2, 3]}, {"gradients": "bfloat16", "broadcasts": "bfloat16"}],
                         ids=str)
def test_every_mean_and_every_gradient_is_the_same_whatever_broke(mode, cluster):
    history = run(KILL, CUT_OFF, COORDINATOR, mode=mode, **cluster)
    found = again(history)
    assert (found.difference, found.missing) == (None, "")
    assert found.versions == len(history.tape.of(Merge))
    assert found.steps == sum(len(merge.contributions) for merge in history.tape.of(Merge))


def altered(history, where, **fields):
    """The same run, one event of which says something else."""
    return again(History(history.plan, Tape([changed(event, **fields) if event is where else event
                                             for event in history.tape.events])))


@pytest.mark.parametrize(("name", "field", "value"), [
    ("merge", "digest", "0" * 32), ("merge", "processed", 1), ("replica", "digest", "0" * 32), ("step", "loss", 9.0),
    ("initial", "digests", ["0" * 32]), ("grouped", "step", 99)])
def test_what_the_log_says_otherwise_is_found_and_named(name, field, value):
    history = run(KILL)
    there = history.tape.named(name)
    event = there[len(there) // 2]
    found = altered(history, event, **{field: value}).difference
    assert found is not None
    assert f"{event.node}.{event.inc}, {name} at {event.t:.2f} s" in found.words


def test_a_gradient_of_nobody_is_found():
    history = run()
    merge = history.tape.of(Merge)[9]
    parts = [merge.contributions[0].__replace__(learner="learner-9")] if hasattr(
        merge.contributions[0], "__replace__") else [changed(merge.contributions[0], learner="learner-9")]
    assert "learner-9" in altered(history, merge, contributions=parts).difference.words


def test_after_a_step_that_is_not_in_the_log_nothing_is_known():
    history = run()
    gone = history.tape.of(Merge)[20]
    found = again(History(history.plan, Tape([event for event in history.tape.events if event is not gone])))
    assert found.difference is None
    assert found.missing == "the event log tells of step 22 after step 20"


def test_a_hub_that_goes_on_from_what_is_not_in_the_log_proves_nothing():
    history = run(COORDINATOR)
    found = altered(history, history.tape.of(Resumed)[0], step=99)
    assert found.difference is None
    assert "from step 99" in found.missing


def test_of_a_long_run_the_first_steps_are_computed_again(monkeypatch):
    history = run()
    monkeypatch.setattr(averaging, "MOST", 30)
    found = again(history)
    assert (found.difference, found.missing) == (None, "")
    assert found.versions == 30
    assert 0 < found.steps < len(history.tape.of(Step))
