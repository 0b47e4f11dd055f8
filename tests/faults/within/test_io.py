"""Calls on files that fail."""

from types import SimpleNamespace

import pytest

from diloco_chaos.faults import Io
from diloco_chaos.harness.preload.page import Hits


def io(**more):
    return Io.model_validate({"kind": "io", "targets": "w", "at": "1s", "for": "2s", "path": "*.pt"} | more)


class Preloaded:
    """A node in which every rule has this effect."""

    def __init__(self, hits=None, others=(), why=""):
        self.armed, self.rules, self._done, self._why = [], [], (hits, list(others)), why

    def arm(self, node, fault, rule):
        self.armed.append((node, fault))
        self.rules.append(rule)
        return self._why

    def disarm(self, node, fault):
        self.armed = [each for each in self.armed if each != (node, fault)]

    def hits(self, node, fault):
        return None if self._done[0] is None else self._done


def context(node):
    return SimpleNamespace(id="f1", having=lambda capability: node)


def effect(fault, node):
    observed = fault.inject(context(node))
    fault.undo(context(node))
    observed |= fault.observe_end(context(node))
    return fault.verify(None, SimpleNamespace(observed=observed))


@pytest.mark.parametrize(("more", "words"), [
    ({"error": "ENOSPC", "after_bytes": "10MB"}, "write on *.pt fails with ENOSPC after 10 MB at w for 2.0 s"),
    ({"error": "EIO", "calls": "fsync"}, "fsync on *.pt fails with EIO at w for 2.0 s"),
    ({"delay": "300ms", "share": "10%"},
     "open, read, write, fsync or rename on *.pt waits for 300 ms (10% of calls) at w for 2.0 s"),
    ({"hang": True, "calls": ["write"]}, "write on *.pt hangs at w for 2.0 s"),
    ({"short": True}, "read or write on *.pt does half at w for 2.0 s"),
    ({"corrupt": "bit"}, "write on *.pt has a bit turned over at w for 2.0 s"),
    ({"corrupt": "scale"}, "write on *.pt has a value of another magnitude at w for 2.0 s"),
    ({"corrupt": "zeros", "after_bytes": "1MB"}, "write on *.pt has zeros instead after 1.0 MB at w for 2.0 s")])
def test_it_says_what_becomes_of_which_calls(more, words):
    assert io(**more).describe() == words


@pytest.mark.parametrize(("more", "words"), [
    ({}, "say what becomes of the calls, in one way"),
    ({"error": "EIO", "hang": True}, "say what becomes of the calls, in one way"),
    ({"error": "ENOSPACE"}, r"there is no error 'ENOSPACE'; did you mean 'ENOSPC'\?"),
    ({"error": "EIO", "path": "{state}/x"}, r"\{state\} stands for nothing here"),
    ({"corrupt": "bit", "calls": "read"}, "only what is written can be corrupted"),
    ({"error": "EIO", "calls": ["writes"]}, "Input should be 'open', 'read', 'write'"),
    ({"error": "EIO", "share": "0%"}, "greater than 0")])
def test_what_can_not_be_is_refused_with_a_sentence(more, words):
    with pytest.raises(ValueError, match=words):
        io(**more)


def test_it_took_effect_where_a_call_was_hit_and_says_on_which_file():
    node = Preloaded(Hits(7, {"write": 2, "fsync": 1}, 1500, "/r/a.pt"))
    ok, words, _ = effect(io(error="EIO"), node)
    assert (ok, words) == (True, "w: EIO for 2 write, 1 fsync calls, 1.5 kB of them lost, first on /r/a.pt")
    assert not node.armed


@pytest.mark.parametrize(("hits", "others", "more", "words"), [
    (Hits(0, {}, 0, ""), [], {}, "w: no read, write or fsync on any file while it lasted"),
    (Hits(0, {}, 0, ""), ["/r/b.bin"], {}, "w: no read, write or fsync on *.pt; there was on /r/b.bin"),
    (Hits(3, {}, 0, ""), [], {"after_bytes": "1MB"},
     "w: 3 calls on *.pt, and none was hit: fewer than 1.0 MB were read or written"),
    (Hits(3, {}, 0, ""), [], {"share": "1%"}, "w: 3 calls on *.pt, and none was hit: by chance"),
    (None, [], {}, "w: it was never armed")])
def test_where_no_call_was_hit_it_is_not_verified_and_says_why(hits, others, more, words):
    assert effect(io(error="EIO", **more), Preloaded(hits, others))[:2] == (False, words)


def test_where_nothing_is_preloaded_the_reason_is_told():
    node = Preloaded(None, why="w: daemon is linked statically: nothing can be preloaded into it")
    assert io(error="EIO").inject(context(node)) == {
        "ok": False, "why": "w: daemon is linked statically: nothing can be preloaded into it"}


def test_each_target_has_a_chance_of_its_own():
    node = Preloaded()
    io(error="EIO", targets=["w", "v"], seed=4).inject(context(node))
    assert [rule.seed for rule in node.rules] == [4, 5]
