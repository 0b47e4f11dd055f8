"""Rounds that were counted are not lost beyond what the scenario allows."""

from __future__ import annotations

import json

import pytest

from chaos.checks import judge
from chaos.checks.base import Unknown
from chaos.evidence.history import History
from chaos.registry import CHECKS
from chaos.scenario.loading import parse
from chaos.scenario.plan import freeze
from harness.tape.event import Event
from harness.tape.reading import Tape


def found(*steps, **settings):
    """What the check finds: see `told`."""
    return CHECKS["rounds_never_go_back"](told(*steps, **settings))


def told(*steps, checks="{}", shared=True):
    """A run in which these rounds were told, (worker, incarnation, round), a tenth of a second apart."""
    trainer = {"kind": "commands", "rounds": 9, "shared": shared,
               "nodes": {"w": {"run": "python3 -c 1", "worker": True, "count": 2}},
               "progress": [{"node": "w", "log": r"(?P<round>\d+)"}]}
    plan = freeze(parse(f"diloco_chaos: 1\nname: x\ntrainer: {json.dumps(trainer)}\nchecks: {checks}\n"), 0)
    events = [Event(index / 10, worker, incarnation, "step", {"step": number, "tokens": 0})
              for index, (worker, incarnation, number) in enumerate(steps)]
    return History(plan, Tape(events))


def test_rounds_that_go_on_lose_nothing():
    assert found(("w-1", 0, 1), ("w-2", 0, 1), ("w-1", 0, 2), ("w-1", 1, 2), ("w-1", 1, 5)).holds


def test_a_process_that_begins_behind_what_its_predecessor_told_fails():
    lost = found(("w-1", 0, 7), ("w-1", 1, 0))
    assert (lost.holds, lost.measured, lost.bound) == (False, "7 rounds lost", "≤ 0")
    assert lost.evidence == ["w-1.1 began with round 0 at 0.10 s, when round 7 had been told"]


def test_one_that_goes_on_behind_itself_fails():
    lost = found(("w-1", 0, 7), ("w-1", 0, 3))
    assert lost.measured == "4 rounds lost"
    assert lost.evidence == ["w-1.0 told of round 3 at 0.10 s, when round 7 had been told"]


@pytest.mark.parametrize("shared", [True, False])
def test_others_rounds_count_where_they_are_finished_together(shared):
    assert found(("w-1", 0, 8), ("w-2", 0, 2), shared=shared).holds is not shared


def test_so_many_may_be_done_again_as_the_scenario_says():
    steps = [("w-1", 0, 7), ("w-1", 1, 4)]
    assert found(*steps, checks="{rounds_never_go_back: {rounds: 3}}").holds
    assert not found(*steps, checks="{rounds_never_go_back: {rounds: 2}}").holds


def test_checks_without_their_evidence_are_out_of_reach_and_it_is_said_what_would_bring_it():
    judgement = judge(told(("w-1", 0, 1)))
    names = [name for names in judgement.out_of_reach.values() for name in names]
    assert {"exactly_once", "goodput", "replica_consistency", "quorum_respected", "end_correct"} <= set(names)
    assert not set(names) & {verdict.name for verdict in judgement.checks}
    assert set(judgement.out_of_reach) == {"what became of every step", "versions and digests of what is merged",
                                           "its word on who is gone and when training is over"}


def test_what_nobody_told_is_not_known():
    with pytest.raises(Unknown):
        found()
