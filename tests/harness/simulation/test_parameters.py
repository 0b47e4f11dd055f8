"""Parameters, and how they are measured on a tape."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.simulation.parameters import Parameters, measured
from recorded_events import an_event


def recorded(compute=0.02, delay=0.001, commit=0.006, count=40):
    events = [an_event(0.0, "harness", 0, "spawn", {"target": name, "incarnation": 0})
              for name in ("syncer", "learner-1")]
    events += [an_event(0.5, "syncer", 0, "listening", {}),
               an_event(1.7, "syncer", 0, "hello", {"learner": "learner-1", "incarnation": 0})]
    for step in range(1, count + 1):
        at = 2.0 + step
        events += [
            an_event(at, "learner-1", 0, "step", {"began": at - compute}),
            an_event(at, "learner-1", 0, "outer_gradient", {"fragment": 0, "step": step}),
            an_event(at + 0.1, "syncer", 0, "merge", {
                "fragment": 0, "closed": at + 0.1 - commit,
                "contributions": [{"learner": "learner-1", "incarnation": 0, "last": step, "arrived": at + delay}]})]
    return Tape(events)


def test_what_is_measured_is_what_was_recorded():
    found = measured(recorded(), 2)
    assert found.start_syncer == pytest.approx(0.5)
    assert found.start_learner == pytest.approx(1.7)
    assert found.compute == pytest.approx(0.02)
    assert found.delay == pytest.approx(0.001)
    assert found.write == found.sync == pytest.approx(0.001)
    assert found.compute_spread == pytest.approx(0.0, abs=1e-6)


def test_a_tape_on_which_little_happened_is_refused():
    with pytest.raises(ValueError, match="too little"):
        measured(recorded(count=5), 2)


def test_a_digest_names_the_values():
    assert Parameters().digest == Parameters().digest != Parameters(delay=0.5).digest


@pytest.mark.parametrize("wrong", [{"delay": -1}, {"tick": 0}, {"unknown": 1}])
def test_impossible_parameters_are_refused(wrong):
    with pytest.raises(ValidationError):
        Parameters(**wrong)
