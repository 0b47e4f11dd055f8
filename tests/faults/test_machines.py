"""What happens to pods and to the machines under them."""

from __future__ import annotations

import signal
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from diloco_chaos.harness.record.tape.reading import Tape
from recorded_events import an_event

ON = SimpleNamespace(id="f1", began=5.0, ended=7.0, observed={})


def run(*events):
    tape = Tape([an_event(float(t), "harness", 0, name, fields) for t, name, fields in events])
    return SimpleNamespace(tape=tape, recorder="syncer", learners=["learner-1", "learner-2"], merges=[], end=20.0,
                           until=lambda span: span.ended)


def ended(status=0, **more):
    return 5.5, "exit", {"target": "learner-1", "incarnation": 0, "status": status, "killed": True, **more}


def spawned(t, pod, incarnation=0):
    return t, "spawn", {"target": "learner-1", "incarnation": incarnation, "host": pod}


@pytest.mark.parametrize("kind", ["delete_pod", "evict", "drain_node"])
@pytest.mark.parametrize("status", [0, -signal.SIGTERM, -signal.SIGKILL])
def test_whose_pod_is_taken_away_is_told_to_end_and_comes_back_in_another(fault, kind, status):
    story = run(spawned(0, "learner-1-0"), ended(status), spawned(7, "learner-1-1", 1))
    effect = fault(kind=kind, targets="learner-1", restart_after="1s").verify(story, ON)
    assert effect.ok
    assert "back in another pod" in effect.observed


def test_a_pod_that_is_deleted_may_have_a_longer_grace_period_and_older_plans_say_nothing_of_it(fault):
    usual, longer = (fault(kind="delete_pod", targets="learner-1", **more) for more in ({}, {"grace": "20s"}))
    assert (usual.grace_s, longer.grace_s) == (2.0, 20.0)
    assert "grace" not in usual.model_dump()
    for grace in ("0s", "1500ms"):
        with pytest.raises(ValidationError, match="in whole seconds, 1s or more"):
            fault(kind="delete_pod", targets="learner-1", grace=grace)
    late = run(spawned(0, "learner-1-0"), (18, "exit", {**ended(7)[2]}))
    assert longer.verify(late, ON).ok


def test_one_that_comes_back_in_the_same_pod_lost_none(fault):
    story = run(spawned(0, "learner-1-0"), ended(), spawned(7, "learner-1-0", 1))
    effect = fault(kind="delete_pod", targets="learner-1", restart_after="1s").verify(story, ON)
    assert not effect.ok
    assert effect.observed == "exit status 0, but learner-1 came back in the same pod"


def test_what_comes_after_its_successor_says_nothing_of_it(fault):
    killed_later = (12, "exit", {"target": "learner-1", "incarnation": 1, "status": -9, "killed": True})
    story = run(spawned(0, "job 2"), ended(), spawned(7, "job 2, requeued 1 times", 1), killed_later,
                spawned(13, "job 2, requeued 1 times", 2))
    effect = fault(kind="requeue", targets="learner-1", restart_after="1s").verify(story, ON)
    assert (effect.ok, effect.observed) == (True, "exit status 0; back in its job's next start")
    same = run(spawned(0, "job 2"), ended(), spawned(7, "job 2", 1), killed_later, spawned(13, "job 4", 2))
    effect = fault(kind="requeue", targets="learner-1", restart_after="1s").verify(same, ON)
    assert effect.observed == "exit status 0, but learner-1 came back in a job that was not requeued"


@pytest.mark.parametrize("kind", ["delete_pod", "evict", "drain_node", "node_power_loss"])
def test_one_that_went_on_was_not_hit(fault, kind):
    effect = fault(kind=kind, targets="learner-1").verify(run(spawned(0, "learner-1-0")), ON)
    assert (effect.ok, effect.observed) == (False, "learner-1 did not end")


def test_a_machine_without_power_takes_all_with_it(fault):
    story = run(spawned(0, "a"), ended(-signal.SIGKILL, lost="kn1, which it was on, has lost its power"))
    effect = fault(kind="node_power_loss", targets="learner-1").verify(story, ON)
    assert (effect.ok, effect.observed) == (True, "kn1, which it was on, has lost its power")


def test_a_process_that_was_merely_killed_lost_no_machine(fault):
    story = run(spawned(0, "a"), ended(-signal.SIGKILL))
    assert not fault(kind="node_power_loss", targets="learner-1").verify(story, ON).ok


@pytest.mark.parametrize(("merged", "ok"), [((4.0, 5.1, 9.5), True), ((4.0, 6.0, 7.0, 8.0, 11.0, 14.0, 17.0), False)])
def test_nothing_comes_through_to_a_machine_that_is_cut_off(fault, merged, ok):
    story = run()
    story.merges = [an_event(t, "syncer", 0, "merge", {"contributions": [{"learner": "learner-1"}]}) for t in merged]
    one = fault(kind="node_partition", targets="learner-1", **{"for": "4s"})
    assert one.verify(story, SimpleNamespace(**vars(ON) | {"ended": 9.0})).ok is ok


@pytest.mark.parametrize(("away", "ok"), [(4.2, True), (0.0, False)])
def test_a_control_plane_is_restarted_where_it_did_not_answer_for_a_while(fault, away, ok):
    one = fault(kind="restart_control_plane", targets="syncer")
    assert one.verify(run(), SimpleNamespace(**vars(ON) | {"observed": {"ok": ok, "away_s": away}})).ok is ok


def test_each_asks_the_cluster_for_what_it_is(cluster, hit, fault):
    for kind in ("delete_pod", "evict", "drain_node", "node_power_loss"):
        fault(kind=kind, targets="learner-1", restart_after="1s").inject(hit)
    fault(kind="restart_control_plane", targets="syncer").inject(hit)
    assert [name for name, *_ in cluster.calls] == ["delete_pod", "delete_pod", "drain", "lose_machine",
                                                    "restart_control_plane"]
