"""From what workers report to the events of a run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.trainers.commands.rounds import PATIENCE_S, Rounds
from diloco_chaos.harness.trainers.core.round_reports import RoundReport

A, B = "replica-1", "replica-2"


class Told:
    """Rounds, and what has come of them."""

    def __init__(self, workers=(A, B), *, shared=True, target=0):
        self.rounds, self.events = Rounds(workers, shared=shared, target=target), []
        for worker in workers:
            self.start(worker, 0, 0.0)

    def start(self, worker, incarnation, t):
        self.events += self.rounds.on_start(worker, incarnation, t)

    def end(self, worker, incarnation, t, again=False):
        self.events += self.rounds.on_end(worker, incarnation, t, again=again)

    def report(self, worker, number, t, incarnation=0, **said):
        self.events += self.rounds.on_report(worker, incarnation, RoundReport(number, **said), t)

    def time(self, t):
        self.events += self.rounds.on_time(t)

    def named(self, name):
        return [event for event in self.events if event.event == name]

    def merges(self):
        """(round, when, its members) of each."""
        return [(event.round, event.t, [part.learner for part in event.contributions])
                for event in self.named("merge")]


def test_a_round_is_over_once_all_who_are_there_have_reported_it():
    told = Told()
    told.report(A, 1, 1.0)
    assert told.merges() == []
    told.report(B, 1, 1.1)
    assert told.merges() == [(1, 1.0, [A, B])]


def test_a_round_that_somebody_does_not_report_is_over_with_the_next_or_after_a_while():
    told = Told()
    told.report(A, 1, 1.0)
    told.report(A, 2, 1.5)
    assert told.merges() == [(1, 1.0, [A])]
    told.time(1.5 + PATIENCE_S / 2)
    assert len(told.merges()) == 1
    told.time(1.5 + PATIENCE_S)
    assert told.merges()[1:] == [(2, 1.5, [A])]


def test_how_many_took_part_stands_with_whoever_said_so():
    told = Told()
    told.report(A, 1, 1.0, members=2)
    told.report(B, 1, 1.1)
    merge, = told.named("merge")
    assert [part.members for part in merge.contributions] == [2, None]


def test_who_died_is_not_waited_for():
    told = Told()
    told.report(A, 1, 1.0)
    told.end(B, 0, 1.2)
    assert told.merges() == [(1, 1.0, [A])]
    assert [event.learner for event in told.named("lost")] == [B]


def test_a_report_of_a_former_process_counts_no_more():
    told = Told()
    told.end(B, 0, 1.0, again=True)
    told.start(B, 1, 2.0)
    told.report(B, 5, 2.1, incarnation=0)
    assert told.named("step") == []
    told.report(B, 5, 2.1, incarnation=1)
    assert [event.step for event in told.named("step")] == [5]


def test_a_late_report_of_an_old_round_is_a_step_and_no_round():
    told = Told()
    told.report(A, 3, 1.0)
    told.report(A, 4, 2.0)
    told.report(B, 3, 2.1)
    assert len(told.named("step")) == 3
    assert told.merges() == [(3, 1.0, [A])]


def test_workers_that_count_their_own_rounds_have_one_each():
    told = Told(shared=False)
    told.report(A, 1, 1.0)
    told.report(B, 1, 1.2)
    told.report(A, 2, 1.4)
    assert told.merges() == [(1, 1.0, [A]), (1, 1.2, [B]), (2, 1.4, [A])]


def test_the_steady_state_is_the_first_round_by_which_everybody_has_counted():
    told = Told()
    told.report(A, 1, 1.0)
    told.report(A, 2, 2.0)
    assert told.named("steady") == []
    told.report(B, 2, 2.1)
    assert [event.t for event in told.named("steady")] == [2.0]


def test_training_is_over_with_the_last_round_where_rounds_are_shared():
    told = Told(target=2)
    told.report(A, 1, 1.0)
    told.report(A, 2, 2.0)
    assert [event.early for event in told.named("finished")] == [False]
    told.report(B, 2, 2.1)
    assert len(told.named("finished")) == 1


def test_training_is_over_once_each_has_made_its_own_where_they_are_not():
    told = Told(shared=False, target=2)
    told.report(A, 2, 1.0)
    assert told.named("finished") == []
    told.report(B, 2, 1.5)
    assert [event.early for event in told.named("finished")] == [False]


@pytest.mark.parametrize(("target", "early"), [(0, False), (9, True)])
def test_training_is_over_when_all_have_ended_and_too_early_before_the_last_round(target, early):
    told = Told(target=target)
    told.report(A, 3, 1.0)
    told.end(A, 0, 2.0)
    assert told.named("finished") == []
    told.end(B, 0, 2.5)
    assert [event.early for event in told.named("finished")] == [early]


def test_who_is_to_be_started_again_is_waited_for():
    told = Told()
    told.end(A, 0, 1.0, again=True)
    told.end(B, 0, 1.0, again=True)
    assert told.named("finished") == []


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.integers(1, 6), st.floats(0, 0.4)), max_size=40), st.booleans())
def test_whatever_is_reported_rounds_have_each_member_once_and_versions_go_up(reports, shared):
    told, now = Told(shared=shared), 0.0
    for worker, number, later in reports:
        now += later
        told.report(worker, number, now)
        told.time(now)
    told.time(now + PATIENCE_S)
    merges = told.named("merge")
    assert [event.version for event in merges] == list(range(1, len(merges) + 1))
    members = [[part.learner for part in event.contributions] for event in merges]
    assert all(len(set(one)) == len(one) >= 1 for one in members)
    if shared:
        assert [event.round for event in merges] == sorted({event.round for event in merges})


def test_who_is_to_be_started_again_is_waited_for_though_the_last_survivor_ends():
    told = Told(target=9)
    told.end(A, 0, 1.0, again=True)
    told.end(B, 0, 1.5)
    assert told.named("finished") == []
    told.start(A, 1, 2.0)
    told.end(A, 1, 3.0)
    assert [event.early for event in told.named("finished")] == [True]


@given(st.floats(0.05, 60.0), st.floats(0.0, 0.95), st.integers(2, 12))
def test_who_reports_a_round_before_it_took_as_long_as_one_has_a_part_in_it(takes, share, count):
    told = Told()
    for number in range(1, count + 1):
        told.time(number * takes - 1e-6)
        told.report(A, number, number * takes)
        told.time((number + share) * takes)
        told.report(B, number, (number + share) * takes)
    assert [members for _, _, members in told.merges()] == [[A, B]] * count


@given(st.floats(0.05, 60.0))
def test_a_round_that_somebody_is_missing_in_is_over_once_another_would_be(takes):
    told = Told()
    for number in range(1, 4):
        told.report(A, number, number * takes)
    told.time(3 * takes + 0.9 * max(PATIENCE_S, takes))
    assert [number for number, _, _ in told.merges()] == [1, 2]
    told.time(3 * takes + 1.1 * max(PATIENCE_S, takes))
    assert [number for number, _, _ in told.merges()] == [1, 2, 3]


# -- ranks of a node -------------------------------------------------------------------------------------------------

def members(told):
    """(round, its members) of each."""
    return [(event.round, [part.member for part in event.contributions]) for event in told.named("merge")]


def test_ranks_of_a_node_are_members_each_and_the_first_round_waits_for_the_next():
    told = Told([A])
    told.report(A, 1, 1.0, rank="0")
    assert members(told) == []
    told.report(A, 1, 1.1, rank="1")
    told.report(A, 2, 2.0, rank="1")
    assert members(told) == [(1, [f"{A}/rank-0", f"{A}/rank-1"])]
    told.report(A, 2, 2.1, rank="0")
    assert members(told)[1:] == [(2, [f"{A}/rank-1", f"{A}/rank-0"])]


def test_a_rank_that_tells_no_round_any_more_is_waited_for_as_a_worker_is():
    told = Told([A, B])
    for number in (1, 2):
        for rank in ("0", "1"):
            told.report(A, number, float(number), rank=rank)
        told.report(B, number, float(number))
    told.report(A, 3, 3.0, rank="0")
    told.report(B, 3, 3.0)
    assert len(members(told)) == 2
    told.time(3.0 + PATIENCE_S)
    assert members(told)[2:] == [(3, [f"{A}/rank-0", B])]


def test_a_ranks_round_takes_from_its_own_last_one():
    told = Told([A])
    for t, rank in ((1.0, "0"), (1.3, "1"), (2.0, "0"), (2.3, "1")):
        told.report(A, int(t), t, rank=rank)
    assert [(step.rank, step.began) for step in told.named("step")] == [("0", 0.0), ("1", 0.0), ("0", 1.0), ("1", 1.3)]
