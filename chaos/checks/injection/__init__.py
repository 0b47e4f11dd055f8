"""What a fault was meant to do beside what was observed of it, for every kind of fault."""

from __future__ import annotations

from chaos.checks.injection import byzantine, containers, links, processes, state
from chaos.checks.injection.base import FeltResult, Measure
from chaos.evidence.history import History, Span
from faults import (
    ClockJump,
    CorruptMemory,
    Damage,
    Disconnect,
    Ending,
    FailingWrites,
    Fault,
    Join,
    Kill,
    Lie,
    LinkFault,
    OutOfMemory,
    Partition,
    Pause,
    Poison,
    PowerLoss,
    RestartEngine,
    RestartLinks,
    Straggler,
    Zombie,
)

_MEASURES: dict[type[Fault], Measure] = {
    Kill: processes.killed, PowerLoss: processes.killed, ClockJump: processes.jumped, Ending: processes.ended,
    Pause: processes.paused, Join: processes.joined,
    Zombie: processes.superseded,
    Straggler: processes.slowed, Damage: state.damaged, FailingWrites: state.failed_write, Poison: byzantine.poisoned,
    Lie: byzantine.refused, CorruptMemory: state.corrupted,
    Partition: links.cut, LinkFault: links.probed, Disconnect: links.silenced, OutOfMemory: containers.out_of_memory,
    RestartLinks: containers.links_restarted, RestartEngine: containers.engine_restarted}
"""By the nearest class of the fault."""


def measure(history: History, span: Span) -> FeltResult:
    """What one fault observed like, from the tape."""
    fault = span.planned.fault
    if span.injected is None:
        return FeltResult(False, fault.describe(), f"never came: {fault.describe_trigger()}")
    if not span.done:
        return FeltResult(False, fault.describe(), "the injection was not recorded to its end")
    by = next(_MEASURES[kind] for kind in type(fault).__mro__ if kind in _MEASURES)
    ok, words = by(history, span)
    if not span.observed.get("ok", True):
        ok, words = False, "; ".join(filter(None, [words, *(str(span.observed.get(key, ""))
                                                            for key in ("why", "error"))]))
    return FeltResult(ok, fault.describe(), words)


__all__ = ["FeltResult", "measure"]
