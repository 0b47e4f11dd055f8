"""Main threads that stand."""

from types import SimpleNamespace

import pytest

from diloco_chaos.faults import FAULTS
from diloco_chaos.faults.within import hang as module
from diloco_chaos.harness.preload.page import Stood


def fault(kind="hang", **more):
    return FAULTS[kind].model_validate({"targets": "w", "at": "1s", "for": "2s"} | more)


class Node:
    """A node whose main thread stands at the so-manieth try."""

    def __init__(self, tries=1, why="", stood=None):
        self.left, self.why, self.stood, self.hanging = tries, why, stood or Stood(4711), []

    def hang(self, node, fault, holding):
        return self.hang_inner(node, fault, "", holding)

    def hang_inner(self, node, fault, process, holding):
        self.hanging.append((node, process, holding))
        return self.why

    def press(self, fault):
        self.left -= 1
        return self.stood if self.left <= 0 else None

    def release(self, fault):
        self.hanging.clear()


def observed(one, node):
    hit = SimpleNamespace(id="f1", having=lambda capability: node)
    seen = one.inject(hit)
    seen |= {} if seen else one.observe(hit)
    one.undo(hit)
    assert node.hanging == []
    return one.verify(None, SimpleNamespace(observed=seen))


@pytest.mark.parametrize(("one", "words"), [
    (fault(), "w hangs, holding the GIL, for 2.0 s"),
    (fault(holding="nothing"), "w hangs, in a call, for 2.0 s"),
    (fault(**{"in": "network"}), "w hangs, in its next network call, for 2.0 s"),
    (fault("hang_process", process="rank-1"), "rank-1 of w hangs, holding the GIL, for 2.0 s")])
def test_it_says_who_hangs_and_with_what(one, words):
    assert one.describe() == words


@pytest.mark.parametrize(("holding", "words"), [
    ("gil", "with the GIL: all threads of Python stood"), ("nothing", "without the GIL: other threads went on")])
def test_it_took_effect_once_a_main_thread_said_that_it_stands(holding, words):
    effect = observed(fault(holding=holding), Node(tries=3))
    assert (effect.ok, effect.observed) == (True, f"the main thread of pid 4711 stood, {words}")


@pytest.mark.parametrize(("stood", "words"), [
    (Stood(4711, "recv"), "stood in recv, without the GIL: other threads went on"),
    (Stood(4711, "connect", with_gil=True), "stood in connect, with the GIL: all threads of Python stood"),
    (Stood(4711), "stood, without the GIL: other threads went on")], ids=["Python's", "a library's", "simulated"])
def test_of_a_network_call_it_says_which_and_whether_that_held_the_gil(stood, words):
    node = Node(tries=3, stood=stood)
    one = fault(**{"in": "network"})
    effect = observed(one, node)
    assert one.place == "network"
    assert (effect.ok, effect.observed) == (True, f"the main thread of pid 4711 {words}")


def test_a_network_call_and_what_to_hold_exclude_each_other():
    with pytest.raises(ValueError, match="leave `holding` or `in` out"):
        fault(**{"in": "network", "holding": "gil"})


@pytest.mark.parametrize("given", [{}, {"holding": "nothing"}, {"in": "network"}])
def test_its_document_is_read_again_and_holds_nothing_that_was_not_known_before(given):
    document = fault(**given).model_dump(mode="json", by_alias=True)
    assert {"holding", "in"} & document.keys() == (given.keys() or {"holding"})
    assert FAULTS["hang"].model_validate(document) == fault(**given)


@pytest.mark.parametrize(("given", "remedy"), [
    ({}, "say `holding: nothing`"), ({"holding": "nothing"}, "leave `holding` out"),
    ({"in": "network", "for": "20ms"}, "say `holding: nothing` instead of `in`")])
def test_where_none_ever_stood_it_says_what_to_write_instead(monkeypatch, given, remedy):
    monkeypatch.setattr(module, "_TRIES_S", 0.01)
    effect = observed(fault(**given), Node(tries=10_000))
    assert not effect.ok
    assert effect.observed.endswith(remedy)


def test_why_it_can_not_hang_is_told():
    assert observed(fault(), Node(why="w had no process rank-1"))[:2] == (False, "w had no process rank-1")
    assert fault().verify(None, SimpleNamespace(observed={}))[:2] == (False, "no main thread said that it stood")


def test_one_of_its_processes_is_named_as_for_other_faults():
    node = Node()
    observed(fault("hang_process", process="rank-1"), node)
    assert "hang_inner" in fault("hang_process", process="rank-1").requires() - fault().requires()
