"""Did every process end as it should?"""

from __future__ import annotations

import signal

from chaos.checks.base import PROMISE, Finding, Unknown, check, need
from chaos.evidence.history import History
from chaos.scenario.model import SYNCER
from harness.tape.event import Event

_OTHERS = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
"""Somebody sends these: a person, or a kernel that is short of memory. No process ends itself by one."""
_CONTAINER = 128
"""In containers a process that a signal ended has this and the signal's number as its exit code."""
_MACHINE = ("No space left", "Disk quota", "Input/output error", "Cannot allocate memory", "Read-only file system")
"""What the machine did to a node, by its own word."""
_AFTER_S = 5.0
"""So long after a fault it may still be why a process ends."""


@check(**PROMISE)
def no_unplanned_exit(history: History) -> Finding:
    """No process ends but by a fault, because its successor is there, or because training is over."""
    need(history.tape.of("end", node="harness"), "the harness recorded no end of the run")
    exits = history.tape.of("exit", node="harness")  # none where nobody ended before the harness ended them all
    wrong: list[str] = []
    doubtful: list[str] = []
    over = bool(history.tape.of("finished", node=SYNCER))
    judged = [event for event in exits if over or event.t <= history.end]
    for event in judged:
        if why := _unplanned(history, event):
            (doubtful if (other := _somebody_else(history, event)) else wrong).append(why + other)
    if doubtful and not wrong:
        raise Unknown("; ".join(doubtful))
    return Finding(not wrong, f"{len(wrong)} of {len(judged)}", "0", wrong[:5])


def _unplanned(history: History, gone: Event) -> str:
    """What was wrong with an end; empty where nothing was."""
    name, incarnation, status = gone["target"], gone["incarnation"], gone["status"]
    if gone.fields.get("killed"):
        return ""
    own = [event for event in history.tape.of("finished", "superseded", "failed", "refused_checkpoint", node=name)
           if event.incarnation == incarnation]
    over = any(event.t <= gone.t for event in history.tape.of("finished", node=SYNCER))
    if status == 0 and (over or any(event.event in ("finished", "superseded") for event in own)):
        return ""
    if over and status in (-signal.SIGTERM, -signal.SIGKILL, *(_CONTAINER + one for one in _OTHERS)):
        return ""  # the harness ends what is still there
    reason = "".join(f": {event.fields['reason']}" for event in own if "reason" in event.fields)
    by = _signal(status)
    how = f"killed by {by.name}" if by else f"exit code {status}"
    when = "after" if over else "before"
    return f"{name}.{incarnation} ended at {gone.t:.2f} s, {when} training was over ({how}{reason})"


def _signal(status: int) -> signal.Signals | None:
    """What ended it, if a signal did."""
    number = -status if status < 0 else status - _CONTAINER
    return signal.Signals(number) if number in set(signal.Signals) else None


def _somebody_else(history: History, gone: Event) -> str:
    """Who may be why a process ended, beside its own program; empty where nobody may."""
    own = [event for event in history.tape.of("failed", "exit", node=gone["target"])
           if event.incarnation == gone["incarnation"]]
    told = [str(event.fields.get("reason", "")) for event in own]
    if gone.fields.get("oom") or _signal(gone["status"]) in _OTHERS or any(event.fields.get("told") for event in own):
        return "; somebody else ended it"
    if any(words in reason for reason in told for words in _MACHINE):
        return "; the machine is why"
    names = history.plan.cluster.names
    on = [span.id for span in history.spans if span.overlaps(gone.t - _AFTER_S, gone.t)
          and gone["target"] in span.planned.fault.affected_nodes(names)]
    return f"; fault {on[0]} had hit it" if on else ""
