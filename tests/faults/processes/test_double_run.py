"""A process of a trainer of commands that comes back beside its successor ends, or tells of no round."""

import pytest

from diloco_chaos.chaos.checks.injection import measure
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.record.tape.reading import Tape
from recorded_events import an_event

TEXT = """diloco_chaos: 1
name: x
trainer: {kind: commands, nodes: {w: {worker: true, run: ls}}, progress: [{node: w, written: true}]}
faults: [{zombie: w, at: 4s, for: 2s}]
"""


def found(*stale, gone=None, first=5.0, end=30.0, back=6.0):
    """What came of w.0, which was stopped at 4 s and came back at 6 s, when it told of rounds at these times. `gone`:
    when it ended. `first`: the first round of its successor."""
    harness = [(0.0, "spawn", {"target": "w", "incarnation": 0}),
               (4.0, "injecting", {"fault": "f1", "kind": "zombie", "targets": ["w"]}),
               (4.0, "spawn", {"target": "w", "incarnation": 1}), (4.1, "injected", {"fault": "f1"}),
               *([] if back is None else [(back, "healed", {"fault": "f1"})]),
               *([] if gone is None else [(gone, "exit", {"target": "w", "incarnation": 0, "status": 3})]),
               (end, "end", {"outcome": "finished"})]
    events = [an_event(t, "harness", 0, name, fields) for t, name, fields in harness]
    events += [an_event(0.0, "rounds", 0, "steady", {"step": 0})]
    events += [an_event(t, "w", 0, "stale_round", {"round": 40 + number}) for number, t in enumerate(stale)]
    events += [] if first is None else [an_event(first, "w", 1, "step", {"step": 41, "tokens": 0})]
    history = History(freeze(parse(TEXT), 0), Tape(sorted(events, key=lambda event: event.t)))
    result = measure(history, history.spans[0])
    return result.ok, result.reacted, result.observed


def test_one_that_ends_has_seen_it():
    assert found(gone=7.0) == (True, True, "w.0 came back and ended (3)")


def test_one_that_lives_and_tells_of_no_round_has_seen_it():
    assert found() == (True, True, "w.0 came back and told of no round for 24.0 s")


def test_one_that_goes_on_has_not():
    assert found(6.1, 6.2, 6.3) == (
        True, False, "w.0 came back and went on to train beside w.1: it told of round 40 and others after that")


def test_one_that_went_on_before_it_ended_has_not():
    assert found(6.1, 6.2, gone=7.0)[:2] == (True, False)


def test_the_round_that_it_was_in_is_no_second_one():
    assert found(6.1, gone=7.0)[:2] == (True, True)


def test_until_its_successor_has_told_of_a_round_it_is_the_rightful_one():
    assert found(6.1, 6.2, 6.3, first=7.0, gone=8.0)[:2] == (True, True)


@pytest.mark.parametrize(("changed", "why"), [
    ({"first": None}, "w.1 told of no round, so w.0 had no reason to end"),
    ({"end": 9.0}, "told of no round for 3.0 s: let the run go on for 10.0 s to know"),
    ({"gone": 5.0}, "w.0 ended before it came back (3)"), ({"back": None}, "w.0 did not come back")])
def test_where_it_can_not_be_known_nothing_is_proved(changed, why):
    ok, _, observed = found(**changed)
    assert not ok
    assert why in observed
