"""What every fault has in common."""

import pytest

from diloco_chaos.faults import FAULTS, Composite, OfProcess

LASTING = sorted(kind for kind, fault in FAULTS.items() if fault.reversible)
OVER_AT_ONCE = sorted(FAULTS.keys() - set(LASTING))
UNNAMED = {"restart_links", "restart_engine", "restart_control_plane"}
"""They hit what no node is."""
ON_SYNCER = {kind for kind, fault in FAULTS.items() if fault.target_role == "syncer"}


def settings(kind):
    target = "syncer" if kind in ON_SYNCER else "learner-1"
    return {"kind": kind, "targets": target} | ({"for": "2s"} if kind in LASTING else {}) | (
        {"process": "rank-3"} if issubclass(FAULTS[kind], OfProcess) else {}) | (
        {"path": "*.pt", "error": "EIO"} if kind == "io" else {}) | (
        {"size": "1GB"} if kind == "memory_pressure" else {}) | (
        {"with": "learner-4"} if kind == "replace" else {}) | ({"error": "ecc"} if kind == "cuda" else {})


def test_every_kind_is_registered_under_the_key_that_names_it():
    assert {"kill", "pause", "latency", "corrupt", "straggler", "storm"} <= FAULTS.keys()
    assert [fault.model_fields["kind"].default for fault in FAULTS.values()] == list(FAULTS)


@pytest.mark.parametrize("kind", [*LASTING, *OVER_AT_ONCE])
def test_every_fault_says_in_words_what_it_does_and_when(fault, kind):
    one = fault(**settings(kind))
    assert kind in UNNAMED or ("syncer" if kind in ON_SYNCER else "learner-1") in one.describe()
    assert one.describe_trigger() == "at 1.0 s"
    assert one.expected_lost_time() >= 0
    assert one.expected_duration() is None or one.expected_duration() >= 0


@pytest.mark.parametrize("kind", LASTING)
def test_an_undo_is_harmless_twice_and_without_the_fault(cluster, hit, fault, kind):
    one = fault(**settings(kind))
    one.undo(hit)
    one.undo(hit)
    assert not cluster.down
    assert not cluster.toxics.get("learner-1")
    assert {name for name, *_ in cluster.calls} <= {"resume", "revive", "throttle", "unlimit_writes",
                                                      "disconnect", "empty_disk", "signal_process", "part_machine",
                                                      "disarm", "release", "lift", "heal_cuda"}


@pytest.mark.parametrize("kind", LASTING)
def test_what_was_injected_is_undone(cluster, hit, fault, kind):
    one = fault(**settings(kind))
    if isinstance(one, Composite):
        return
    before = list(cluster.calls)
    one.inject(hit)
    assert cluster.calls != before or cluster.down or any(cluster.toxics.values())
    one.undo(hit)
    assert not cluster.down
    assert not any(cluster.toxics.values())


def test_a_fault_can_come_after_another_one_and_after_a_while(fault):
    assert fault(kind="kill", targets="learner-1", after="f1").describe_trigger() == "after f1"
    late = fault(kind="kill", targets="learner-1", after={"fault": "f1", "wait": "2s"})
    assert late.describe_trigger() == "2.0 s after f1"


def test_a_fault_can_wait_for_a_state_of_training(fault):
    one = fault(kind="kill", targets="learner-1", when={"loss_below": 2.5})
    assert one.when.met(2.4, 4) == "the training loss is 2.400, below 2.5"
    assert one.when.met(2.6, 4) == ""
    assert one.when.met(None, 4) == ""


def test_a_loss_that_is_no_number_is_above_every_bound(fault):
    one = fault(kind="kill", targets="learner-1", when={"loss_above": 4})
    assert one.when.met(float("nan"), 4)
    assert not one.when.met(4.0, 4)


@pytest.mark.parametrize("when", [
    {}, {"node": "learner-1"}, {"event": "step"}, {"loss_below": 2, "event": "step", "node": "learner-1"},
    {"loss_below": 2, "count": 3}, {"node": "learner-1", "event": "step", "failpoint": "upload.half"}])
def test_a_trigger_names_one_thing(fault, when):
    with pytest.raises(ValueError):
        fault(kind="kill", targets="learner-1", when=when)
