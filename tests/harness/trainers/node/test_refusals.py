"""What is told of strangers: not at any length, and not any number of times."""

from diloco_chaos.harness.record.tape.events import PartialFrame, RefusedFrame
from diloco_chaos.harness.trainers.node.refusals import LONGEST, MOST, WINDOW_S, Refusals


class Tape:
    def __init__(self):
        self.events, self.now = [], 0.0
        self.refusals = Refusals(self.events.append, lambda: self.now)


def test_a_reason_is_cut():
    tape = Tape()
    tape.refusals.record(RefusedFrame(peer="unknown", reason="x" * 10_000))
    assert tape.events == [RefusedFrame(peer="unknown", reason="x" * LONGEST)]


def test_a_flood_is_told_up_to_a_number_and_then_summed_up():
    tape = Tape()
    for _ in range(1000):
        tape.refusals.record(RefusedFrame(peer="unknown", reason="garbage"))
    assert len(tape.events) == MOST
    tape.now = WINDOW_S
    tape.refusals.record(PartialFrame(peer="unknown", bytes=1, expected=2))
    assert [getattr(event, "more", None) for event in tape.events[MOST:]] == [1000 - MOST, None]
    assert tape.events[-1] == PartialFrame(peer="unknown", bytes=1, expected=2)


def test_what_was_not_told_is_summed_up_at_the_end_and_once():
    tape = Tape()
    for _ in range(MOST + 3):
        tape.refusals.record(RefusedFrame(peer="unknown", reason="garbage"))
    tape.refusals.sum_up()
    tape.refusals.sum_up()
    assert [event.more for event in tape.events[MOST:]] == [3]


def test_what_a_learner_of_the_run_sends_is_told_in_the_middle_of_a_flood():
    tape = Tape()
    for _ in range(1000):
        tape.refusals.record(RefusedFrame(peer="unknown", reason="garbage"))
    tape.refusals.record(PartialFrame(peer="learner-1", bytes=1, expected=2))
    assert tape.events[-1] == PartialFrame(peer="learner-1", bytes=1, expected=2)
