"""A machine that is lost takes the last moments of its tapes with it, and nobody is accused for what they would say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diloco_chaos.chaos.evidence.truncated import Truncated, truncated
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.record.tape.series import Series
from forged_runs import ALWAYS, Story, stormy
from recorded_events import an_event

GONE = "kn2, which it was on, has lost its power"


def lost(storm: Story, seconds: float) -> Story:
    """Learner-1's machine is lost, and the last so many seconds of its tape with it."""
    end = storm.one("exit", "harness", target="learner-1", incarnation=0)
    return storm.torn_at(end.t - seconds, "learner-1").forged(end, lost=GONE)


@pytest.fixture(scope="session")
def storm() -> Story:
    """A learner was killed and came back."""
    return stormy()


@given(seconds=st.floats(0.0, 0.3))
@settings(max_examples=25, deadline=None, print_blob=False)
def test_nobody_is_accused_for_what_was_lost_with_a_machine(storm, seconds):
    told = lost(storm, seconds).describe()
    assert {name: verdict for name, verdict in told.items() if verdict != "passed"} == {}


def test_a_tape_that_lacks_as_much_while_the_machine_is_there_is_not_excused(storm):
    end = storm.one("exit", "harness", target="learner-1", incarnation=0)
    told = storm.torn_at(end.t - 0.2, "learner-1").describe()
    assert (told["processed_correct"], told["exactly_once"]) == ("failed", "failed")


@pytest.mark.parametrize("check", ["exactly_once", "processed_correct", "weights_correct", "learning_rate_correct"])
def test_what_was_not_lost_is_judged_as_ever(storm, check):
    assert check in ALWAYS
    story = lost(storm, 0.1)
    at = next(number for number, merge in enumerate(story.all("merge")) if merge.t > story.zero + 12)
    merge = story.all("merge")[at]
    forged = {"exactly_once": lambda: story.part(merge, first=lambda first: first - 5),
              "processed_correct": lambda: story.forged(merge, processed=lambda count: count + 5000),
              "weights_correct": lambda: story.part(merge, weight=lambda weight: weight * 1.5),
              "learning_rate_correct": lambda: story.forged(story.all("step", "learner-2")[200],
                                                            lr=lambda rate: rate * 1.2)}[check]()
    assert forged.verdict(check).verdict == "failed"


def test_more_steps_than_there_was_time_for_are_nobody_s(storm):
    story = lost(storm, 0.1)
    end = story.one("exit", "harness", target="learner-1", incarnation=0)
    merge = next(one for one in story.all("merge") if one.t > end.t - 0.1
                 and any(part.learner == "learner-1" for part in one.contributions))
    index = next(number for number, part in enumerate(merge.contributions) if part.learner == "learner-1")
    assert story.part(merge, index, last=lambda last: last + 30).verdict("exactly_once").verdict == "failed"


def steps(*times):
    return [an_event(t, "a", 0, "step", {"step": number, "tokens": 16}) for number, t in enumerate(times, 1)]


def test_it_can_have_gone_on_as_fast_as_it_was_until_it_was_lost():
    told = steps(1.0, 1.5, 1.75)
    gone = an_event(3.0, "harness", 0, "exit", {"target": "a", "incarnation": 0, "lost": GONE})
    found = truncated(Tape([*told, gone]), {("a", 0): Series.of(told)})[("a", 0)]
    assert found == Truncated(1.75, 3.0, 0.25, 16.0, 3)
    assert list(found.steps(np.asarray([1.0, 1.75, 1.8, 2.5, 3.0, 9.0]))) == [0, 0, 1, 4, 6, 6]
    assert found.known(np.asarray([2, 5, 6]), np.asarray([2.0, 2.0, 2.0])).tolist() == [2, 3, 6]


def test_of_a_node_that_was_killed_on_its_machine_everything_is_told():
    told = steps(1.0, 1.5)
    gone = an_event(3.0, "harness", 0, "exit", {"target": "a", "incarnation": 0, "status": -9, "killed": True})
    assert truncated(Tape([*told, gone]), {("a", 0): Series.of(told)}) == {}


def lost_at(t, *more, **fields):
    """What is not known of a process with these steps that was lost then."""
    told = steps(1.0, 1.5, 1.75)
    gone = an_event(t, "harness", 0, "exit", {"target": "a", "incarnation": 0, "lost": GONE, **fields})
    tape = Tape(sorted([*told, gone, *more], key=lambda event: event.t))
    return truncated(tape, {("a", 0): Series.of(told)}, 0.01)[("a", 0)]


def test_what_its_machine_has_answered_to_is_known():
    assert lost_at(9.0).since == pytest.approx(1.74)
    assert lost_at(9.0, heard=8.0).since == pytest.approx(7.74)
    assert lost_at(9.0, heard=1.0).since == pytest.approx(1.74)  # its tape says more


def test_who_was_given_up_before_was_heard_of_no_more():
    gone = an_event(4.0, "syncer", 0, "lost", {"learner": "a", "incarnation": 0})
    other = an_event(3.0, "syncer", 0, "lost", {"learner": "b", "incarnation": 0})
    again = an_event(3.5, "syncer", 0, "hello", {"learner": "a", "incarnation": 0})
    assert lost_at(9.0, other, gone).until == pytest.approx(4.01)
    assert lost_at(9.0, again, gone).until == pytest.approx(9.01)


def test_one_that_was_lost_after_its_first_step_was_as_quick_as_the_quickest():
    told = steps(1.0)
    gone = an_event(2.0, "harness", 0, "exit", {"target": "a", "incarnation": 0, "lost": GONE})
    others = Series.of(steps(1.0, 1.25, 2.0))
    found = truncated(Tape([*told, gone]), {("a", 0): Series.of(told), ("b", 0): others})
    assert found["a", 0].fastest == 0.25
