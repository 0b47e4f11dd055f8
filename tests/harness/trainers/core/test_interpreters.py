"""What a core may rely on, whoever drives it: one suite for sockets, virtual time and the tests' own driver."""

import numpy as np
import pytest

from diloco_chaos.harness.record.tape.events import Custom
from diloco_chaos.harness.trainers.core.effects import (
    AtFailpoint,
    Close,
    Commit,
    Compute,
    Save,
    Send,
    Snapshot,
    Stop,
    Timer,
)
from diloco_chaos.harness.trainers.core.roles import COORDINATOR
from interpreters import HELLO, WORKER, Say, in_memory, on_sockets, simulated

SOME = {"a": np.arange(3, dtype=np.float32)}
OVER = Say(text="over")


@pytest.fixture(params=[in_memory, simulated, on_sockets], ids=lambda play: play.__name__)
def play(request, tmp_path):
    """play(coordinator, worker): each answers an input with effects; None: there are none."""
    def played(coordinator, worker=worker_that_obeys):
        return request.param(lambda *given: coordinator(*given) or (), lambda *given: worker(*given) or (), tmp_path)
    return played


def worker_that_obeys(method, *given):
    """Introduces itself, and stops when it is told that all is over."""
    if method == "on_connected":
        return [Send(HELLO)]
    if method == "on_message" and given[0] == OVER:
        return [Stop("over")]
    return None


def over(connection):
    return [Send(OVER, to=connection), Stop("over")]


def note(text):
    return Custom(kind="note", fields={"text": text})


def test_a_worker_introduces_itself_and_what_it_says_arrives_with_its_tensors(play):
    def coordinator(method, *given):
        if method == "on_message" and given[1] != HELLO:
            return over(given[0])
        return [Send(Say(text="go"), to=given[0])] if method == "on_message" else None

    def worker(method, *given):
        if method == "on_message" and given[0] == Say(text="go"):
            return [Send(Say(text="here"), SOME)]
        return worker_that_obeys(method, *given)
    played = play(coordinator, worker)
    (first, hello, _, _), (second, said, tensors, _) = played.of(COORDINATOR, "on_message")
    assert (hello, said, first) == (HELLO, Say(text="here"), second)
    assert np.array_equal(tensors["a"], SOME["a"])
    assert [method for method, *_ in played.inputs[WORKER]][:2] == ["on_connected", "on_message"]


def test_it_is_started_before_anybody_is_heard(play):
    played = play(lambda method, *given: over(given[0]) if method == "on_message" else None)
    assert played.inputs[COORDINATOR][0][0] == "start"


def test_effects_are_carried_out_in_their_order_and_a_commit_is_stored_when_what_is_behind_it_happens(play):
    def coordinator(method, *given):
        if method == "start":
            return [note("before"), AtFailpoint("nobody.stops.here"), Commit("f.safetensors", SOME, {"version": 1}),
                    note("after")]
        return over(given[0]) if method == "on_message" else None
    played = play(coordinator)
    assert played.notes[COORDINATOR] == ["before", "after"]
    assert np.array_equal(played.stored["f.safetensors"]["a"], SOME["a"])


def test_of_a_timer_the_newest_time_counts_and_it_fires_once(play):
    def coordinator(method, *given):
        if method == "on_message":
            return [Timer("t", given[-1] + 0.02), Timer("t", given[-1] + 0.06), Timer("end", given[-1] + 0.12)]
        return [Send(OVER, to=1), Stop("over")] if (method, given[0]) == ("on_timer", "end") else None
    played = play(coordinator)
    began = played.of(COORDINATOR, "on_message")[0][-1]
    [(key, at), (last, _)] = played.of(COORDINATOR, "on_timer")
    assert (key, last) == ("t", "end")
    assert at - began >= 0.06 - 1e-3


def test_what_was_computed_comes_back_with_the_time_at_which_it_was_begun(play):
    def coordinator(method, *given):
        if method == "on_message":
            return [Send(Say(text="go"), to=given[0])] if given[1] == HELLO else over(given[0])
        return None

    def worker(method, *given):
        if method == "on_message" and given[0] == Say(text="go"):
            return [Compute(7, 0.5)]
        return [Send(Say(text="done"))] if method == "on_computed" else worker_that_obeys(method, *given)
    played = play(coordinator, worker)
    [(result, began, now)] = played.of(WORKER, "on_computed")
    assert result == (7, 0.5)
    assert played.of(WORKER, "on_message")[0][-1] <= began <= now


def test_a_connection_that_is_closed_is_lost_to_the_worker_which_makes_another_one(play):
    def coordinator(method, *given):
        if method != "on_message":
            return None
        return [Close(given[0], "once more")] if given[0] == 1 else over(given[0])
    played = play(coordinator)
    assert [method for method, *_ in played.inputs[WORKER]][:3] == ["on_connected", "on_lost", "on_connected"]
    assert [connection for connection, *_ in played.of(COORDINATOR, "on_message")] == [1, 2]


def test_what_is_sent_to_nobody_is_dropped(play):
    def coordinator(method, *given):
        return [Send(Say(text="who?"), to=99), *over(given[0])] if method == "on_message" else None
    assert Say(text="who?") not in [said for said, *_ in play(coordinator).of(WORKER, "on_message")]


def test_a_part_of_a_checkpoint_is_told_when_it_is_safe(play):
    def coordinator(method, *given):
        if method == "start":
            return [Save(3, SOME, {"step": 5})]
        return [Timer("end", given[-1] + 0.2)] if method == "on_message" else (
            [Send(OVER, to=1), Stop("over")] if method == "on_timer" else None)
    assert [number for number, _ in play(coordinator).of(COORDINATOR, "on_saved")] == [3]


def test_a_snapshot_is_kept(play):
    def coordinator(method, *given):
        if method == "start":
            return [Snapshot(SOME, {"number": 0, "processed": 0, "merged": 0, "step": 0})]
        return over(given[0]) if method == "on_message" else None
    [snapshot] = play(coordinator).snapshots
    assert np.array_equal(snapshot["a"], SOME["a"])
