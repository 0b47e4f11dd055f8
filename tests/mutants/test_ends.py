"""Bugs that are planted into the end of training, and into whose turn it is."""

import pytest

from harness.trainer.coordinator import syncer
from harness.trainer.learner.learner import Learner
from harness.trainer.protocol.messages import Finish
from planting import failed


def ignored_stop(patch):
    usual = Learner.on_message
    patch.setattr(Learner, "on_message", lambda self, message, tensors, now: () if isinstance(
        message, Finish) and self.name == "learner-2" else usual(self, message, tensors, now))
    return "end_correct"


def never_due(patch):
    usual = syncer.due
    patch.setattr(syncer, "due", lambda *args: [index for index in usual(*args) if index != 3])
    return "fragments_in_turn"


def seldom_due(patch):
    usual = syncer.due
    patch.setattr(syncer, "due", lambda before, now, *more: [
        index for index in usual(before, now, *more) if index != 3 or int(now) % 32 < 8])
    return "fragments_in_turn"


def last_turns_left_out(patch):
    usual = syncer.due
    patch.setattr(syncer, "due", lambda before, now, *more: [] if now > 125 else usual(before, now, *more))
    return "fragments_in_turn"


@pytest.mark.parametrize("bug", [ignored_stop, never_due, seldom_due, last_turns_left_out])
def test_a_bug_of_the_end_or_of_turns_is_found(bug, monkeypatch):
    assert bug(monkeypatch) in failed([], {})
