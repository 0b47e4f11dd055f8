"""Who can have taken part in a merge: going by the plan's faults, and never for longer than the bounds allow."""

import pytest

from diloco_chaos.chaos.evidence.availability import Availability
from forged_runs import CALM, calmly, stormy, with_a_syncer_born_again


@pytest.fixture(scope="module")
def calm():
    return calmly(CALM)


@pytest.fixture(scope="module")
def storm():
    return stormy()


@pytest.fixture(scope="module")
def reborn():
    return with_a_syncer_born_again()


def out(story, node):
    return Availability(story.history()).out[node]


def test_without_faults_everybody_is_there_all_the_time(calm):
    there = Availability(calm.history())
    pieces = list(there.pieces(calm.zero, calm.end))
    assert [(piece.start, piece.end, len(piece.present)) for piece in pieces] == [(calm.zero, calm.end, 4)]
    assert there.able(pieces[0])
    assert there.unable_s(calm.zero, calm.end) == 0


def test_who_was_killed_is_out_until_it_is_merged_from_again(storm):
    (gone, back), = out(storm, "learner-1")
    kill = storm.one("exit", "harness", target="learner-1")
    spawn = next(event for event in storm.all("spawn", "harness", target="learner-1") if event.t > kill.t)
    first = next(merge for merge in storm.all("merge") if merge.t > spawn.t and any(
        part.learner == "learner-1" for part in merge.contributions))
    assert gone == pytest.approx(kill.t, abs=0.01)
    assert back == first.t


def test_who_never_comes_back_is_excused_no_longer_than_the_bound(storm):
    spawn = storm.all("spawn", "harness", target="learner-1")[-1].t
    (_, back), = out(storm.unmerged(spawn, storm.end, "learner-1"), "learner-1")
    assert back == pytest.approx(spawn + storm.plan.checks.reintegration.within, abs=0.05)


def test_a_learner_that_is_cut_off_leaves_enough_for_a_quorum_of_one(storm):
    assert Availability(storm.history()).unable_s(storm.zero, storm.end) == 0


def test_a_learner_that_is_cut_off_leaves_too_few_where_all_are_needed(storm):
    there = Availability(storm.bounded(quorum=4).history())
    assert there.unable_s(storm.zero, storm.end) > 6


def test_nothing_can_be_merged_while_the_syncer_is_gone(reborn):
    (gone, back), = out(reborn, "syncer")
    assert Availability(reborn.history()).unable_s(reborn.zero, reborn.end) == pytest.approx(back - gone)
    assert all(not gone + 1e-6 < merge.t < back for merge in reborn.all("merge"))


def test_one_fault_may_be_left_out_of_it(storm):
    assert Availability(storm.history(), "f1").out["learner-1"] == []
