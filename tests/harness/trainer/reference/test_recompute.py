"""A run of the quadratic model, computed again from its event log: every version, whatever was broken meanwhile."""

import pytest

from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.exploration.generate import plan_of
from diloco_chaos.chaos.exploration.strategies import scenario
from diloco_chaos.chaos.runner.simulate import simulate
from diloco_chaos.harness.record.tape.events import Initial, Merge, OuterGradient, Step
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.trainer.reference import recompute
from recorded_events import changed

KILL = {"kill": "learner-2", "at": "5s", "restart_after": "1s"}
CUT_OFF = {"partition": "learner-3", "at": "3s", "for": "1500ms"}
COORDINATOR = {"kill": "syncer", "at": "4s", "restart_after": "1s"}


def run(*faults, seed=0, **cluster):
    return simulate(plan_of(scenario(**{"budget": "100 steps", "fragments": 4} | cluster), list(faults), seed)).history


def again(history):
    return history.plan.trainer.recomputed(history)


@pytest.mark.parametrize("cluster", [
    {}, {"on_receipt": "overwrite"}, {"anchor": "base"}, {"merge": "average"}, {"quorum": 2}, {"mode": "streaming"},
    {"mode": "diloco"}, {"batch": [1, 2, 3]}, {"momentum_ramp": "40 steps", "sync_growth": "40 steps"},
    {"recovery": "peer"}, {"fragments": 8}, {"fragments": 1}, {"gradients": "int4", "error_feedback": True},
    {"gradients": "int8", "broadcasts": "bfloat16", "rounding": "stochastic"}], ids=str)
def test_every_version_and_every_step_is_the_same(cluster):
    history = run(KILL, CUT_OFF, **cluster)
    found = again(history)
    assert (found.difference, found.missing) == (None, "")
    assert found.versions == len({(merge.fragment, merge.version) for merge in history.tape.of(Merge)})
    assert found.steps == len(history.tape.of(Step))


def test_another_seed_is_another_problem():
    assert again(run(KILL, seed=5)).difference is None
    assert run(seed=5).tape.of(Initial)[0].digests != run().tape.of(Initial)[0].digests


@pytest.mark.parametrize("fault", [COORDINATOR, {"power_loss": "syncer", "at": "4s", "restart_after": "1s"},
                                   {"corrupt_memory": "learner-1", "at": "4s"},
                                   {"corrupt_memory": "learner-1", "at": "4s", "content": "bits"},
                                   {"zombie": "learner-1", "at": "4s", "for": "2s"},
                                   {"poison": "learner-1", "at": "4s"},
                                   {"flapping": "learner-1", "at": "3s", "for": "3s"}], ids=str)
def test_faults_change_nothing_of_the_formulas(fault):
    found = again(run(fault))
    assert (found.difference, found.missing) == (None, "")
    assert found.versions > 30


def altered(history, where, **fields):
    """The same run, one event of which says something else."""
    events = [changed(event, **fields) if event is where else event for event in history.tape.events]
    return again(History(history.plan, Tape(events)))


@pytest.mark.parametrize(("name", "field", "value"), [
    ("merge", "digest", "0" * 32), ("received", "digest", "0" * 32), ("outer_gradient", "digest", "0" * 32),
    ("received", "carried", 7), ("received", "closed", 7), ("outer_gradient", "base", 0), ("step", "loss", 9.0),
    ("step", "lr", 1.0), ("step", "position", 3), ("merge", "outer", [0.5, 0.5]), ("initial", "digests", ["0"] * 4),
    ("merge", "state", "0" * 32), ("initial", "states", ["0"] * 4)])
def test_what_the_log_says_otherwise_is_found_and_named(name, field, value):
    history = run()
    there = history.tape.named(name)
    event = there[len(there) // 2]
    found = altered(history, event, **{field: value}).difference
    assert found is not None
    assert found.t >= event.t
    if field == "digest":
        assert f"{event.node}.{event.inc}, {name} at {event.t:.2f} s" in found.words
        assert "was " + "0" * 32 in found.words


def test_what_was_merged_from_an_answer_that_is_not_in_the_log_is_missing():
    history = run()
    gone = history.tape.of(OuterGradient)[20]
    found = again(History(history.plan, Tape([event for event in history.tape.events if event is not gone])))
    assert found.difference is not None or "not in the event log" in found.missing


def test_after_a_merge_that_is_not_in_the_log_nothing_is_known():
    history = run()
    gone = history.tape.of(Merge)[20]
    found = again(History(history.plan, Tape([event for event in history.tape.events if event is not gone])))
    assert found.difference is None
    assert "is not in the event log" in found.missing
    assert found.versions == 20


@pytest.mark.parametrize("faults", [[], [COORDINATOR]])
def test_of_a_long_run_the_first_versions_are_computed_again(faults, monkeypatch):
    history = run(*faults)
    monkeypatch.setattr(recompute, "MOST", 30)
    found = again(history)
    assert (found.difference, found.missing) == (None, "")
    assert found.versions == 30
    assert 0 < found.steps < len(history.tape.of(Step))


def test_for_other_models_there_is_none():
    plan = plan_of(scenario(budget="100 steps", fragments=4, model="micro"), [], 0)
    assert plan.trainer.recomputed(History(plan, Tape())) is None
