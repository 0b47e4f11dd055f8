"""Figures of a run, from its events."""

import pytest

from benchmarks.league.reading import figures, is_stall, longest_gap
from diloco_chaos.harness.record.tape.events import Step
from forged_runs import CALM, calmly, stormy
from recorded_events import an_event
from told_runs import told_run

STEADY = [0.0, 0.5, 1.0, 1.5, 2.0]


def test_the_longest_gap_is_from_round_to_round_and_counts_from_before_the_fault():
    assert longest_gap([*STEADY, 6.0, 6.5], 2.2, 7.0) == (2.0, 6.0)


def test_the_end_of_the_run_ends_a_gap():
    assert longest_gap(STEADY, 2.2, 9.0) == (2.0, 9.0)


def test_a_gap_before_the_fault_is_none_of_it():
    assert longest_gap([0.0, 5.0, 5.5, 6.0], 5.6, 6.1) == (5.5, 6.0)


def test_a_stall_is_far_longer_than_usual():
    assert is_stall(STEADY, 2.2, (2.0, 6.0))
    assert not is_stall(STEADY, 2.2, (2.0, 4.0))
    assert not is_stall([0.0, 0.05, 0.1], 0.1, (0.1, 0.5))


def both(moments, round_of=lambda t: round(t * 10)):
    """Rounds that two workers tell together, at these moments."""
    return [Step(step=round_of(t), tokens=0, began=0.0).stamped(t, worker, 0) for t in moments
            for worker in ("w-1", "w-2")]


def rounds(moments, members=2):
    return [an_event(t, "rounds", 0, "merge", {"version": round(t * 10), "contributions": [
        {"learner": worker, "members": members} for worker in ("w-2", "w-1")[:members]]}) for t in moments]


def tenths(first, last):
    return [number / 10 for number in range(round(first * 10), round(last * 10))]


def told(*events, **trainer):
    """The figures of a run of two workers in which w-1 is paused at 5 s and training ends at 20 s."""
    finished = an_event(20.0, "rounds", 0, "finished", {"processed": 0})
    return figures(told_run([*events, finished], "", "{}", True, 2, **trainer), 0.1)


def test_a_run_that_stands_for_three_seconds_recovers_behind_the_stall():
    moments = [*tenths(0, 5), *tenths(8, 20)]
    seen = told(*both(moments), *rounds(moments))
    assert (seen.stall, seen.recovered, seen.lost) == (pytest.approx(3.1), pytest.approx(3.0), 0.0)


def test_a_run_that_goes_on_with_fewer_members_has_not_recovered():
    seen = told(*both(tenths(0, 20)), *rounds(tenths(0, 5.3)), *rounds(tenths(5.3, 20), members=1))
    assert (seen.noticed, seen.recovered) == (pytest.approx(0.3), None)
    assert seen.watched == 15.0


def test_rounds_that_are_made_again_are_lost_work_in_seconds_of_training():
    moments = [*tenths(0, 5), *tenths(8, 20)]
    again = both(moments, lambda t: round(t * 10) if t < 5 else round(t * 10) - 50)
    assert told(*again, *rounds(moments)).lost == pytest.approx(2.0)


def test_the_word_of_the_node_that_was_hit_is_none_of_the_others():
    moments = tenths(0, 20)
    lines = [an_event(t, node, 0, "noticed", {"line": "no heartbeat"}) for t, node in ((5.1, "w-1"), (5.7, "w-2"))]
    assert told(*both(moments), *rounds(moments), *lines, noticed="no heartbeat").noticed == pytest.approx(0.7)


def test_of_the_built_in_trainer_what_its_events_say():
    seen = figures(stormy().history(), 0.05)
    assert seen.noticed is not None
    assert seen.stall is not None
    assert seen.lost > 0


def test_a_run_without_its_fault_has_no_figures():
    assert figures(calmly(CALM).history(), 0.05).stall is None
