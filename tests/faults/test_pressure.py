"""Pressure on a machine, and who felt it."""

from types import SimpleNamespace

import pytest

from diloco_chaos.faults import FAULTS
from diloco_chaos.harness.places.pressure import Felt, Met

NOTHING = Met(5.0, 0.0, 0)


def fault(kind="cpu_pressure", **more):
    size = {"size": "1GB"} if kind == "memory_pressure" and "share" not in more else {}
    return FAULTS[kind].model_validate({"targets": "w", "at": "1s", "for": "4s"} | size | more)


class Machine:
    """One that does this to its nodes."""

    def __init__(self, felt=None, why=""):
        self._felt, self._why, self.loads = felt, why, []

    def press_on(self, fault, load, nodes):
        self.loads.append(load)
        return self._why

    def lift(self, fault):
        self.loads.clear()

    def felt(self, fault, node):
        return self._felt


def effect(one, machine, samples=()):
    hit = SimpleNamespace(id="f1", having=lambda capability: machine)
    seen = one.inject(hit)
    one.undo(hit)
    assert not machine.loads
    seen |= {} if seen else one.observe_end(hit)
    run = SimpleNamespace(tape=SimpleNamespace(of=lambda *kinds, node: samples), until=lambda on: 5.0)
    return one.verify(run, SimpleNamespace(observed=seen, began=1.0))


def sampled(t, memory=0.0, sync=0.0):
    return SimpleNamespace(t=t, memory=memory, sync=sync)


@pytest.mark.parametrize(("one", "words"), [
    (fault(), "a busy worker on each processor beside w for 4.0 s"),
    (fault(workers=3, nice=5), "3 busy workers at nice 5 beside w for 4.0 s"),
    (fault("memory_pressure"), "1.0 GB of memory held beside w for 4.0 s"),
    (fault("memory_pressure", share="50%"), "50% of the free memory held beside w for 4.0 s"),
    (fault("io_pressure"), "4 workers write and sync beside w for 4.0 s")])
def test_it_says_what_is_taken(one, words):
    assert one.describe() == words


@pytest.mark.parametrize(("more", "words"), [
    ({"kind": "cpu_pressure", "nice": -1}, "greater than or equal to 0"),
    ({"kind": "cpu_pressure", "workers": 0}, "greater than or equal to 1"),
    ({"kind": "memory_pressure"}, "say how much memory, in one way"),
    ({"kind": "memory_pressure", "size": "1GB", "share": "50%"}, "say how much memory, in one way")])
def test_what_can_not_be_is_refused_with_a_sentence(more, words):
    with pytest.raises(ValueError, match=words):
        FAULTS[more["kind"]].model_validate({"targets": "w", "at": "1s", "for": "4s"} | more)


@pytest.mark.parametrize(("waited", "before", "ok"), [
    (0.4, 0.0, True), (0.4, 0.2, True), (0.01, 0.0, False), (2.0, 2.0, True), (2.0, 2.4, False)])
def test_a_target_that_waits_more_than_before_felt_it(waited, before, ok):
    felt = Felt("", "", Met(4.0, waited, 0), Met(5.0, before, 0))
    assert effect(fault(), Machine(felt)).ok is ok


def test_it_says_how_long_a_target_waited_and_what_to_write_where_that_is_too_little():
    felt = Felt("", "", Met(4.0, 1.0, 0), NOTHING)
    assert effect(fault(), Machine(felt)).observed == (
        "w: waited 1.0 s for a processor (run delay), 25.0% of the time, 0.0% before")
    assert effect(fault(), Machine(Felt("", "", Met(4.0, 0.0, 0), NOTHING))).observed.endswith(
        "that is no more than before: write more `workers`, or a lower `nice`")


@pytest.mark.parametrize(("pages", "psi", "ok"), [(500, 0.0, True), (0, 0.2, True), (3, 0.01, False)])
def test_memory_that_targets_lack_is_told_by_their_pages_or_by_the_kernel(pages, psi, ok):
    felt = Felt("held 1000000000", "", Met(4.0, 0.0, pages), NOTHING)
    found = effect(fault("memory_pressure"), Machine(felt), [sampled(3.0, memory=psi), sampled(9.0, memory=1.0)])
    assert found.ok is ok
    assert found.observed.startswith(f"1.0 GB held; w: {pages} pages read from disk (major faults), 0 before; ")
    assert ok or found.observed.endswith("there was enough for all: hold more, by `size` or `share`")


def test_memory_that_was_not_held_by_its_end_is_no_sign_of_enough():
    found = effect(fault("memory_pressure"), Machine(Felt("", "", Met(4.0, 0.0, 0), NOTHING)))
    assert not found.ok
    assert found.observed.endswith("it was over before all was held: let it last longer (`for`)")


@pytest.mark.parametrize(("sync", "ok"), [(0.5, True), (0.015, False), (0.05, False)])
def test_a_disk_that_is_kept_busy_is_told_by_a_probe_of_it(sync, ok):
    samples = [sampled(0.5, sync=0.02), sampled(3.0, sync=sync)]
    found = effect(fault("io_pressure"), Machine(Felt("", "", NOTHING, NOTHING)), samples)
    assert found.ok is ok
    assert found.observed.startswith(f"a probe's byte took up to {sync * 1e3:.0f} ms to be on the run's disk, 20 ms")


@pytest.mark.parametrize("kind", ["cpu_pressure", "memory_pressure", "io_pressure"])
def test_why_there_was_none_is_told(kind):
    assert effect(fault(kind), Machine(why="write less"))[:2] == (False, "write less")
    assert effect(fault(kind), Machine())[:2] == (False, "it never began")
    assert effect(fault(kind), Machine(Felt("", "it ended", NOTHING, NOTHING)))[:2] == (False, "it ended")


def test_all_nodes_of_the_machine_feel_it():
    assert fault(targets=["syncer", "l-1"]).affected_nodes(["l-1", "l-2"]) == ["syncer", "l-1", "l-2"]
