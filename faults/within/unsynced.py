"""What a kill takes with it where the machine loses its power: writes that no fsync followed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from diloco_chaos.faults.base import FaultContext, Observation
from diloco_chaos.faults.evidence import Effect, Injection
from diloco_chaos.faults.within.io import FilePattern
from diloco_chaos.harness.base.units import show_bytes
from diloco_chaos.harness.places.capabilities import Unsynced
from diloco_chaos.harness.preload.unsynced import Loss

Lost = Literal[True] | FilePattern
"""The files that lose what was not synced: those that a pattern means, or, true, all of the node's in the run's folder
and where it runs."""
_SHOWN = 3


def kill_unsynced(hit: FaultContext, targets: Sequence[str], restart_after: float | None, which: Lost) -> Observation:
    """Kill every target, and let it lose what it did not sync."""
    pattern = "" if which is True else which
    losses = {target: hit.having(Unsynced).kill_unsynced(target, restart_after, pattern) for target in targets}
    missed = [f"{target}: {why}" for target, loss in losses.items() if (why := _missed(target, loss, pattern))]
    if missed:
        return {"ok": False, "why": "; ".join(missed)}
    return {"ok": True, "lost": "; ".join(f"{target}: {_words(loss)}" for target, loss in losses.items()),
            "lost_bytes": sum(loss.bytes for loss in losses.values())}


def with_loss(killed: Effect, on: Injection) -> Effect:
    """Return what a kill came to that was to take this with it, too."""
    if lost := on.observed.get("lost"):
        return Effect(killed.ok, f"{killed.observed}; {lost}")
    return Effect(False, killed.observed)  # why nothing was lost is shown with what was observed


def _words(loss: Loss) -> str:
    shown = ", ".join(f"{name} ({show_bytes(size)})" for name, size in loss.lost[:_SHOWN])
    more = ", ..." if len(loss.lost) > _SHOWN else ""
    files = _files(len(loss.lost))
    return f"{files} lost {show_bytes(loss.bytes)} that was not synced: {shown}{more}{_kept(loss)}{_others(loss)}"


def _files(count: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}"


def _kept(loss: Loss) -> str:
    return f"; {_files(loss.synced)} kept all that was written" if loss.synced else ""


def _others(loss: Loss) -> str:
    """Say what became of files that lost nothing."""
    others = ((loss.older, "not synced, but left alone for 30 s"), (loss.mapped, "spared: mapped, or written through"),
              (loss.missed, "not followed: there were too many"))
    return "".join(f"; {_files(count)} {words}" for count, words in others if count)


def _missed(target: str, loss: Loss, pattern: str) -> str:
    if loss.why or loss.lost:
        return loss.why
    if not loss.synced:
        which = f" that {pattern} means" if pattern else ""
        return f"nothing was lost: it has written no file{which}{_others(loss)}"
    return (f"nothing was lost: everything was synced ({_files(loss.synced)}){_others(loss)}; aim at a moment "
            f"between a write and its fsync (`when: {{node: {target}, file: '*', grows: 1MB}}`), or hold the fsync "
            f"back by `io` with `calls: fsync` and `delay: 2s`")
