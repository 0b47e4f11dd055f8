"""Bugs that are patched into the trainer from outside, to see whether they are found."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, Protocol

from diloco_chaos.chaos.exploration.strategies import scenario
from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.record.storage import checkpoint
from diloco_chaos.harness.record.storage.disk import Content, Disk
from diloco_chaos.harness.trainer.coordinator.fragment_state import FragmentState
from diloco_chaos.harness.trainer.coordinator.syncer import Syncer
from diloco_chaos.harness.trainer.learner.learner import Learner
from diloco_chaos.harness.trainer.protocol.messages import Broadcast, Hello
from diloco_chaos.harness.trainers.core.effects import AtFailpoint, Commit, Effect

BASE = scenario()


class Patch(Protocol):
    """pytest's `MonkeyPatch` for one."""

    def setattr(self, target: object, name: str, value: object) -> None:
        """Replace an attribute until it is undone."""
        ...


def double_merge(patch: Patch) -> str:
    """What was merged, and whose acknowledgement was lost, is merged again."""
    patch.setattr(FragmentState, "already_merged", lambda *_: "")
    return "exactly_once"


def counters_kept(patch: Patch) -> str:
    """The counters of a fragment are not reset on receipt."""
    receive = Learner._receive

    def kept(self: Learner, message: Broadcast, tensors: Tensors) -> Iterable[Effect]:
        before = self.held[message.fragment].steps
        yield from receive(self, message, tensors)
        self.held[message.fragment].steps = before
    patch.setattr(Learner, "_receive", kept)
    return "exactly_once"


def fresh_donor(patch: Patch) -> str:
    """A syncer that comes back gives initial values for what it had committed."""
    restored = FragmentState.restored
    initial = BASE.trainer.initial()

    def fresh(tensors: Tensors, meta: dict[str, Any]) -> FragmentState:
        state = restored(tensors, meta)
        return replace(state, value={name: initial[name] for name in state.value})
    patch.setattr(FragmentState, "restored", staticmethod(fresh))
    return "replica_consistency"


def stale_copy(patch: Patch) -> str:
    """The older copy of a checkpoint that was cut off between its two copies is not made good: the trainer's own bug
    once."""
    either = checkpoint.load_either

    def trusting(disk: Disk, name: str, present: Collection[str]) -> tuple[Content, dict[str, str]]:
        content, damaged = either(disk, name, present)
        return content, {copy: why for copy, why in damaged.items() if why != checkpoint.BEHIND}
    patch.setattr(checkpoint, "load_either", trusting)
    return "replica_consistency"


def unheard_successor(patch: Patch) -> str:
    """The syncer does not commit that it has heard of a new incarnation: the trainer's own bug once."""
    hello = Syncer._hello

    def forgetful(self: Syncer, connection: int, message: Hello, now: float) -> Iterable[Effect]:
        before: Effect | None = None
        for effect in hello(self, connection, message, now):
            if not isinstance(effect, Commit) or isinstance(before, AtFailpoint):  # a merge's commit follows it
                yield effect
            before = effect
    patch.setattr(Syncer, "_hello", forgetful)
    return "exactly_once"


PLANTED: dict[str, Callable[[Patch], str]] = {
    "double_merge": double_merge, "counters_kept": counters_kept, "fresh_donor": fresh_donor}
"""Each plants its bug and names the check that must find it."""
HARDER: dict[str, Callable[[Patch], str]] = {"stale_copy": stale_copy, "unheard_successor": unheard_successor}
"""These need two or three faults at the right moments."""
