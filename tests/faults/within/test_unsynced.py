"""Kills that take with them what was not synced."""

from types import SimpleNamespace

import pytest

from diloco_chaos.faults import Kill
from diloco_chaos.faults.evidence import Effect
from diloco_chaos.faults.within.unsynced import with_loss
from diloco_chaos.harness.preload.unsynced import Loss


def kill(**more):
    return Kill.model_validate({"kind": "kill", "targets": "w", "at": "1s", "lose_unsynced": True} | more)


class Losing:
    """A place in which every node has this loss."""

    def __init__(self, loss):
        self.asked, self._loss = [], loss

    def kill_unsynced(self, node, restart_after, pattern):
        self.asked.append((node, restart_after, pattern))
        return self._loss


def effect(fault, loss):
    place = Losing(loss)
    observed = fault.inject(SimpleNamespace(id="f1", having=lambda capability: place))
    return with_loss(Effect(True, "exit status SIGKILL"), SimpleNamespace(observed=observed)), observed, place.asked


@pytest.mark.parametrize(("more", "words"), [
    ({}, "kill w with what was not synced"),
    ({"lose_unsynced": "*.pt", "restart_after": "1s"}, "kill w with what was not synced of *.pt, back after 1.0 s")])
def test_it_says_what_is_lost(more, words):
    assert kill(**more).describe() == words


@pytest.mark.parametrize(("more", "words"), [
    ({"only": "process"}, "loses all of the node's processes: leave `only` out"),
    ({"lose_unsynced": "{state}/x"}, r"\{state\} stands for nothing here"),
    ({"lose_unsynced": ""}, "at least 1 character"),
    ({"lose_unsynced": False}, "Input should be True")])
def test_what_can_not_be_is_refused_with_a_sentence(more, words):
    with pytest.raises(ValueError, match=words):
        kill(**more)


def test_only_such_a_kill_needs_what_few_places_have():
    assert "lose_unsynced" in kill().requires()
    assert "lose_unsynced" not in kill(lose_unsynced=None).requires()
    assert "lose_unsynced" not in kill(lose_unsynced=None).model_dump()


def test_it_took_effect_where_something_was_lost_and_says_what():
    (ok, words, _), observed, asked = effect(
        kill(restart_after="1s"), Loss((("a.pt", 1_000_000), ("b", 10), ("c", 5), ("d", 1)), 2, mapped=1))
    assert ok
    assert words == ("exit status SIGKILL; w: 4 files lost 1.0 MB that was not synced: a.pt (1.0 MB), b (10 B), "
                     "c (5 B), ...; 2 files kept all that was written; 1 file spared: mapped, or written through")
    assert observed["lost_bytes"] == 1_000_016
    assert asked == [("w", 1.0, "")]


@pytest.mark.parametrize(("loss", "words"), [
    (Loss((), 3), "w: nothing was lost: everything was synced (3 files); aim at a moment between a write and its "
                  "fsync"),
    (Loss((), 0), "w: nothing was lost: it has written no file that *.pt means"),
    (Loss((), 0, older=2), "w: nothing was lost: it has written no file that *.pt means; 2 files not synced, but left "
                           "alone for 30 s"),
    (Loss((), 0, why="it was not there"), "w: it was not there")])
def test_where_nothing_was_lost_it_is_not_verified_and_says_why(loss, words):
    (ok, _, _), observed, _ = effect(kill(lose_unsynced="*.pt"), loss)
    assert not ok
    assert observed["why"].startswith(words)
