"""Preemption: what is asked of the cluster, and what a tape must have to prove it."""

import signal

import pytest

from diloco_chaos.chaos.checks.injection import measure
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.places.base import Preemption
from diloco_chaos.harness.record.tape.reading import Tape
from recorded_events import an_event

TEXT = """diloco_chaos: 1
name: x
trainer: {kind: commands, nodes: {w: {worker: true, run: ls}}, progress: [{node: w, written: true}]}
faults: [{preempt: w, at: 4s, SETTINGS}]
"""
TERM, USR1, KILLED = -signal.SIGTERM, -signal.SIGUSR1, -signal.SIGKILL
AFTER, BESIDE = "restart_after: 1s", "beside: 0s, grace: 2s"
NOTICE = "signal: USR1, notice: 3s, grace: 2s, restart_after: 1s"


def test_a_cluster_gets_the_whole_order(cluster, hit, fault):
    one = fault(kind="preempt", targets="w", signal="USR1", notice="10s", grace="5s", restart_after="2s")
    one.inject(hit)
    fault(kind="preempt", targets="w", beside="100ms").inject(hit)
    assert cluster.calls == [("preempt", "w", Preemption(signal.SIGUSR1, 5.0, 10.0, 2.0)),
                             ("preempt", "w", Preemption(signal.SIGTERM, 2.0, None, None, 0.1))]
    assert one.expected_duration() == 12
    assert one.describe() == "preempt w (SIGUSR1, SIGTERM 10.0 s later), back after 2.0 s"


def test_one_whose_successor_comes_beside_it_needs_a_place_for_two(fault):
    one = fault(kind="preempt", targets="w", beside="0s")
    assert "supersede" in one.requires()
    assert "supersede" not in fault(kind="preempt", targets="w", restart_after="0s").requires()
    assert (one.starts_beside(), one.starts_process(), one.expected_duration()) == (True, True, 0.0)
    assert one.describe() == "preempt w (SIGTERM), its successor beside it"


def test_one_that_is_not_started_again_stays_away(fault):
    one = fault(kind="preempt", targets="w")
    assert (one.starts_process(), one.expected_duration(), one.expected_lost_time()) == (False, None, float("inf"))


def found(settings, *, gone=None, spawn=None, first=None, stale=(), forced=None, other=None):
    """What came of w.0, which was preempted at 4 s. `gone`: (when it ended, its status). `spawn`, `first`: when its
    successor was started, and reported its first round. `stale`: when w.0 reported rounds beside it."""
    events = [an_event(t, "harness", 0, name, fields) for t, name, fields in [
        (0.0, "spawn", {"target": "w", "incarnation": 0}),
        (4.0, "injecting", {"fault": "f1", "kind": "preempt", "targets": ["w"]}), (4.0, "injected", {"fault": "f1"}),
        *([] if spawn is None else [(spawn, "spawn", {"target": "w", "incarnation": 1})]),
        *([] if gone is None else [(gone[0], "exit", {"target": "w", "incarnation": 0, "status": gone[1],
                                                      "killed": True, "forced_after": forced})]),
        *([] if other is None else [(other, "exit", {"target": "w", "incarnation": 1, "status": KILLED,
                                                     "killed": True})]),
        (30.0, "end", {"outcome": "finished"})]]
    events += [an_event(0.0, "rounds", 0, "steady", {"step": 0})]
    events += [an_event(t, "w", 0, "stale_round", {"round": 40 + number}) for number, t in enumerate(stale)]
    events += [] if first is None else [an_event(first, "w", 1, "step", {"step": 41, "tokens": 0})]
    history = History(freeze(parse(TEXT.replace("SETTINGS", settings)), 0),
                      Tape(sorted(events, key=lambda event: event.t)))
    result = measure(history, history.spans[0])
    return result.ok, result.reacted, result.observed


@pytest.mark.parametrize(("settings", "events", "words"), [
    (AFTER, {"gone": (4.5, 0)}, "w ended after 500 ms (0)"),
    (AFTER, {"gone": (34.0, KILLED), "forced": 30.0}, "w had to be killed, 30.0 s after it was asked to end"),
    (NOTICE, {"gone": (5.5, 85)}, "w ended within its notice, after 1.5 s (85)"),
    (NOTICE, {"gone": (4.01, USR1)}, "w ended within its notice, after 10 ms (SIGUSR1)"),
    (NOTICE, {"gone": (7.25, TERM)}, "w ended 250 ms after SIGTERM (SIGTERM)"),
    (NOTICE, {"gone": (9.0, KILLED), "forced": 2.0}, "w had to be killed, 2.0 s after it was asked to end")])
def test_it_is_said_which_signal_ended_it(settings, events, words):
    assert found(settings, **events) == (True, True, words)


def test_one_that_goes_on_was_not_preempted():
    assert found(AFTER) == (False, True, "w did not end")


def test_how_long_two_lived_at_once_is_measured():
    assert found(BESIDE, spawn=4.0, gone=(5.5, 0)) == (
        True, True, "w ended after 1.5 s (0); w.0 lived beside w.1 for 1.5 s")


@pytest.mark.parametrize(("stale", "reacted"), [
    ([], True), ([5.2], True), ([4.3, 4.6, 4.9], True), ([5.2, 5.4], False)],
    ids=["quiet", "the round that it was in", "before its successor trained", "goes on"])
def test_one_that_trains_on_beside_its_successor_has_not_reacted(stale, reacted):
    ok, did, words = found(BESIDE, spawn=4.0, first=5.0, stale=stale, gone=(6.0, KILLED), forced=2.0)
    assert (ok, did) == (True, reacted)
    assert ("went on to train: it told of round 40" in words) is not reacted


def test_a_successor_that_another_fault_kills_is_not_taken_for_the_old_process():
    assert found(BESIDE, spawn=4.0, other=4.5, gone=(6.0, KILLED), forced=2.0) == (
        True, True, "w had to be killed, 2.0 s after it was asked to end; w.0 lived beside w.1 for 2.0 s")


def test_one_that_had_ended_before_its_successor_came_shows_nothing():
    ok, _, words = found("beside: 2s", gone=(4.2, 0), spawn=6.0)
    assert not ok
    assert words == ("w ended after 200 ms (0), before w.1 was started: nothing lived beside it. Start that sooner "
                     "(`beside: 0s`), or leave `notice` out")


def test_one_beside_which_an_older_process_still_lived_shows_nothing():
    ok, _, words = found(BESIDE, gone=(4.2, 0), spawn=4.3)
    assert not ok
    assert "A process before w.0 was still there: preempt it once that has ended" in words
