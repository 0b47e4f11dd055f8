"""Workers that stand when a run ends, by the steps that they told."""

from diloco_chaos.chaos.runner.experiment import Standing
from diloco_chaos.harness.record.tape.events import Spawn, Step


def standing(*told, asked=0):
    """Told: (moment, node, step)."""
    workers = Standing(asked)
    for t, node, step in told:
        workers.on_event(Step(step=step, tokens=0, began=0.0).stamped(t, node, 0))
    return workers


def test_who_told_no_step_for_five_seconds_stands():
    workers = standing((1.0, "w-1", 1), (1.0, "w-2", 1), (9.0, "w-2", 2))
    assert workers.at(5.0) == []
    assert workers.at(10.0) == ["w-1"]


def test_who_has_always_been_slow_does_not():
    assert standing((1.0, "w-1", 1), (9.0, "w-1", 2)).at(20.0) == []
    assert standing((1.0, "w-1", 1), (9.0, "w-1", 2)).at(26.0) == ["w-1"]


def test_who_has_made_all_steps_or_never_told_any_does_not():
    workers = standing((1.0, "w-1", 9), asked=9)
    workers.on_event(Spawn(target="w-2", incarnation=0).stamped(1.0, "harness", 0))
    assert workers.at(99.0) == []
