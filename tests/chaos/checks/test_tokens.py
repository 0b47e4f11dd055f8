"""What became of every processed token: each step of each fragment has one fate."""

from __future__ import annotations

from collections import Counter
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diloco_chaos.chaos.evidence.accounting.parts import parts_of
from diloco_chaos.chaos.evidence.accounting.token_accounting import account, closing_intervals
from diloco_chaos.harness.record.tape.events import Merge
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.record.tape.series import Series
from recorded_events import an_event

NODE = ("learner-1", 0)
TOKENS = 16


class Life:
    """Writes the tape of fragment 0 and learner-1, event by event, a millisecond apart."""

    def __init__(self, plan, life=0):
        self.plan, self.life, self.events, self._clock = plan, life, [], count(1)

    def _say(self, node, event, life=0, **fields):
        self.events.append(an_event(next(self._clock) / 1e3, node, life, event, fields))
        return self

    def steps(self, first, last):
        for step in range(first, last + 1):
            self._say("learner-1", "step", self.life, step=step, tokens=TOKENS,
                      position=100 * self.life + step, loss=1.0, began=0.0)
        return self

    def answers(self, first, last):
        return self._say("learner-1", "outer_gradient", self.life, round=1, fragment=0, base=0, first=first, step=last,
                         steps=last - first + 1, tokens=(last - first + 1) * TOKENS, digest="d")

    def merged(self, version, first, last, life=None):
        life = self.life if life is None else life
        part = {"learner": "learner-1", "incarnation": life, "first": first, "last": last}
        return self._say("syncer", "merge", fragment=0, version=version, contributions=[part])

    def refused(self, reason, first, last):
        return self._say("syncer", "refused", fragment=0, learner="learner-1", incarnation=self.life, reason=reason,
                         first=first, last=last)

    def receives(self, version, step, closed, carried=0):
        return self._say("learner-1", "received", self.life, fragment=0, version=version, step=step, digest="v",
                         closed=closed, carried=carried)

    def breaks(self):
        return self._say("learner-1", "disconnected", self.life, reason="cut", step=0)

    def dies(self):
        return self._say("harness", "exit", target="learner-1", incarnation=self.life, status=-9, killed=True)

    def accounting(self):
        steps = {}
        for event in self.events:
            if event.event == "step":
                steps.setdefault((event.node, event.inc), []).append(event)
        return account(self.plan, Tape(self.events), {node: Series.of(taken) for node, taken in steps.items()},
                       parts_of([event for event in self.events if isinstance(event, Merge)]))

    def fates(self):
        """The fates of fragment 0 in the order of the steps; the tape must not contradict itself."""
        accounting = self.accounting()
        assert accounting.violations == []
        return list(accounting.fates[0, ("learner-1", self.life)].values())


@pytest.fixture
def life(calm):
    return Life(calm.plan)


# -- one fate after the other --------------------------------------------------------------------------------------

def test_a_step_of_a_merged_answer_is_merged(life):
    assert life.steps(1, 3).answers(1, 3).merged(1, 1, 3).receives(1, 3, 3).fates() == ["merged"] * 3


def test_a_step_after_the_answer_that_the_receipt_overwrites_is_lost_to_the_overlap(life):
    life.steps(1, 3).answers(1, 3).steps(4, 5).merged(1, 1, 3).receives(1, 5, 5)
    assert life.fates() == ["merged"] * 3 + ["overlap"] * 2


def test_a_step_after_the_answer_that_is_carried_waits_for_its_own_fate(life):
    life.steps(1, 3).answers(1, 3).steps(4, 5).merged(1, 1, 3).receives(1, 5, 3, carried=2)
    assert life.fates() == ["merged"] * 3 + ["outstanding"] * 2
    life.steps(6, 6).answers(4, 6).merged(2, 4, 6).receives(2, 6, 3)
    assert life.fates() == ["merged"] * 6


@pytest.mark.parametrize("reason", ["late", "stale", "already merged", "old incarnation", "not finite", "wrong digest",
                                    "duplicate"])
def test_a_step_of_a_refused_answer_has_the_reason_as_its_fate(life, reason):
    assert life.steps(1, 3).answers(1, 3).refused(reason, 1, 3).receives(1, 3, 3).fates() == [reason] * 3


def test_steps_after_a_refused_answer_are_lost_to_the_overlap(life):
    life.steps(1, 3).answers(1, 3).refused("late", 1, 3).steps(4, 4).receives(1, 4, 4)
    assert life.fates() == ["late"] * 3 + ["overlap"]


def test_a_refusal_that_the_syncer_wrote_after_the_receipt_is_still_the_reason(life):
    # The usual way to be late on a slow link: the broadcast is there before the answer has arrived.
    life.steps(1, 3).answers(1, 3).receives(1, 3, 3).refused("late", 1, 3)
    assert life.fates() == ["late"] * 3
    assert life.steps(4, 6).answers(4, 6).receives(2, 6, 3).fates() == ["late"] * 3 + ["lost on the way"] * 3


def test_a_late_answer_whose_steps_were_merged_after_all_is_merged(life):
    # Cumulative: refused as late, nothing received, and the next answer from the same base has the steps again.
    life.steps(1, 3).answers(1, 3).refused("late", 1, 3).steps(4, 4).answers(1, 4).merged(1, 1, 4).receives(1, 4, 4)
    assert life.fates() == ["merged"] * 4


def test_an_answer_that_begins_at_a_merged_step_loses_only_what_is_new_in_it(life):
    # The broadcast of version 1 was lost, so steps 1 to 5 were answered from the same base, and refused.
    life.steps(1, 3).answers(1, 3).merged(1, 1, 3).breaks().steps(4, 5).answers(1, 5)
    life.refused("already merged", 1, 5).receives(1, 5, 5)
    assert life.fates()[:3] == ["merged"] * 3
    assert set(life.fates()[3:]) <= {"already merged", "overlap"}


def test_a_step_that_was_refused_because_its_answer_was_merged_before_is_not_the_overlaps(life):
    # Goodput forgives the overlap; these steps were lost because a broadcast was.
    life.steps(1, 3).answers(1, 3).merged(1, 1, 3).breaks().steps(4, 5).answers(1, 5)
    life.refused("already merged", 1, 5).receives(1, 5, 5)
    assert life.fates()[3:] == ["already merged"] * 2


def test_a_step_of_an_answer_that_nobody_saw_was_lost_on_the_way(life):
    assert life.steps(1, 3).answers(1, 3).breaks().receives(1, 3, 3).fates() == ["lost on the way"] * 3


def test_a_step_that_a_receipt_closed_unasked_was_not_asked_for(life):
    assert life.steps(1, 3).receives(1, 3, 3).fates() == ["not requested"] * 3


def test_a_step_that_was_open_when_the_process_was_killed_is_lost_to_the_crash(life):
    life.steps(1, 3).answers(1, 3).merged(1, 1, 3).receives(1, 3, 3).steps(4, 5).dies()
    assert life.fates() == ["merged"] * 3 + ["crash"] * 2


def test_an_answer_that_was_merged_although_its_learner_died_is_merged(life):
    assert life.steps(1, 3).answers(1, 3).dies().merged(1, 1, 3).fates() == ["merged"] * 3


def test_a_step_that_is_open_at_the_end_is_outstanding(life):
    life.steps(1, 3).answers(1, 3).merged(1, 1, 3).receives(1, 3, 3).steps(4, 5).answers(4, 5)
    assert life.fates() == ["merged"] * 3 + ["outstanding"] * 2


def test_an_answer_to_an_earlier_version_is_no_reason_for_a_later_step(life):
    life.steps(1, 2).answers(1, 2).merged(1, 1, 2).receives(1, 2, 2).steps(3, 4).receives(2, 4, 2)
    assert life.fates() == ["merged"] * 2 + ["not requested"] * 2


def test_receiving_the_same_version_again_closes_nothing_twice(life):
    life.steps(1, 2).answers(1, 2).merged(1, 1, 2).receives(1, 2, 2).receives(1, 2, 0).steps(3, 3)
    assert life.fates() == ["merged"] * 2 + ["outstanding"]


def test_a_process_that_begins_in_the_middle_of_the_run_owes_no_steps_before_it(calm):
    life = Life(calm.plan, life=1).receives(7, 100, 0).steps(101, 103).answers(101, 103).merged(8, 101, 103)
    assert life.receives(8, 103, 3).fates() == ["merged"] * 3


def test_other_fragments_have_fates_of_their_own(life):
    accounting = life.steps(1, 3).answers(1, 3).merged(1, 1, 3).receives(1, 3, 3).accounting()
    assert [set(accounting.fates[index, NODE].values()) for index in range(4)] == [{"merged"}] + [{"outstanding"}] * 3


# -- counting ------------------------------------------------------------------------------------------------------

def test_tokens_are_counted_by_fate_weighted_by_the_fragments_sizes(life):
    sizes = [fragment.size for fragment in life.plan.cluster.fragment_table()]
    accounting = life.steps(1, 10).answers(1, 10).merged(1, 1, 10).receives(1, 10, 10).accounting()
    assert accounting.processed == 160
    assert accounting.by_fate == {"merged": round(160 * sizes[0] / sum(sizes)),
                                  "outstanding": round(160 * sum(sizes[1:]) / sum(sizes))}
    steps, shares = accounting.shares(NODE)
    assert (steps.tolist(), shares.tolist()) == (list(range(1, 11)), [sizes[0] / sum(sizes)] * 10)
    assert accounting.useful(NODE, np.array([3, 2])).tolist() == [sizes[0] / sum(sizes)] * 2
    assert accounting.shares(("learner-2", 0))[0].size == 0


@pytest.mark.parametrize("run", ["calm", "brief", "paper", "storm", "reborn"])
def test_every_step_of_every_fragment_of_a_real_run_has_exactly_one_fate(request, run):
    _assert_complete(request.getfixturevalue(run).history())


@settings(max_examples=25)
@given(data=st.data())
def test_whatever_messages_are_lost_nothing_is_merged_twice_and_nothing_is_without_a_fate(perform, data):
    kinds = st.sampled_from(["outer_gradient", "broadcast", "request", "report", "hello", "welcome"])
    lost = data.draw(st.sets(st.tuples(kinds, st.integers(1, 200)), max_size=30))
    seen = Counter()

    def lose(sender, receiver, message):
        seen[message.type] += 1
        return (message.type, seen[message.type]) in lost

    story = perform(lose, on_receipt=data.draw(st.sampled_from(["carry", "overwrite"])),
                    max_staleness=data.draw(st.integers(1, 4)), quorum=data.draw(st.integers(1, 3)))
    _assert_complete(story.history())
    words = story.describe()
    assert "failed" not in {words[name] for name in ("exactly_once", "replica_consistency", "weights_correct",
                                                     "quorum_respected", "staleness_bounded")}, words


# -- contradictions ------------------------------------------------------------------------------------------------

def test_overlapping_intervals_are_a_violation(life):
    accounting = life.steps(1, 6).merged(1, 1, 3).merged(2, 3, 6).accounting()
    assert accounting.violations == [
        "fragment 0 version 2: learner-1.0 steps 3-6 merged again (steps 1-3 were merged before)"]


def test_adjacent_intervals_are_none(life):
    assert life.steps(1, 6).merged(1, 1, 3).merged(2, 4, 6).accounting().violations == []


def test_the_same_steps_of_another_incarnation_are_other_steps(life):
    life.steps(1, 3).merged(1, 1, 3).dies()
    life.life = 1
    assert life.steps(1, 3).merged(2, 1, 3).accounting().violations == []


def test_steps_that_nobody_took_are_a_violation(life):
    assert life.steps(1, 3).merged(1, 1, 4).accounting().violations == [
        "fragment 0 version 1: learner-1.0 steps 1-4: only 3 of these steps are on the learner's tape"]


def test_an_impossibly_long_interval_is_a_violation_at_once(life):
    assert "only 3 of these steps" in life.steps(1, 3).merged(1, 1, 10**12).accounting().violations[0]


def test_an_interval_without_a_step_is_a_violation(life):
    assert life.steps(1, 3).merged(1, 4, 3).accounting().violations
    assert life.merged(2, 3, 1).accounting().violations


@pytest.mark.parametrize("closed", [0, 2, 4])
def test_a_receipt_that_closed_another_number_of_steps_than_there_were_is_a_violation(life, closed):
    assert life.steps(1, 3).receives(1, 3, closed).accounting().violations == [
        f"fragment 0, learner-1.0: version 1 closed {closed} steps, but 3 had no fate"]


def test_a_hole_in_a_learners_steps_is_a_violation_and_no_crash(life):
    # Steps 1, 2, 4: the sequence of intervals is to have no gaps.
    accounting = life.steps(1, 2).steps(4, 5).answers(1, 5).merged(1, 1, 5).receives(1, 5, 5).accounting()
    assert "only 4 of these steps are on the learner's tape" in accounting.violations[0]


def test_a_hole_among_steps_that_were_not_merged_is_a_violation_too(life):
    assert life.steps(1, 2).steps(4, 5).receives(1, 5, 5).accounting().violations


# -- closing_intervals ---------------------------------------------------------------------------------------------

def test_a_receipt_closes_the_newest_answer_and_knows_whether_the_connection_broke_since(life):
    life.answers(1, 3).receives(1, 3, 3).answers(4, 5).answers(4, 6).breaks().receives(2, 6, 3).receives(3, 6, 0)
    found = [(receipt.version, answer and answer.step, broken)
             for receipt, answer, broken in closing_intervals(life.events)]
    assert found == [(1, 3, False), (2, 6, True), (3, None, False)]


def _assert_complete(history):
    accounting = history.accounting
    assert accounting.violations == []
    for node, events in history.steps.items():
        taken = [event.step for event in events]
        for index in range(len(history.plan.cluster.fragment_table())):
            assert sorted(accounting.fates[index, node]) == taken
    assert accounting.processed == sum(event.tokens for events in history.steps.values() for event in events)
    assert abs(sum(accounting.by_fate.values()) - accounting.processed) <= len(accounting.by_fate)  # each is rounded
    known = {"merged", "overlap", "outstanding", "late", "stale", "already merged", "lost on the way", "not requested",
             "crash", "old incarnation", "duplicate"}
    assert set(Counter(accounting.by_fate)) <= known
