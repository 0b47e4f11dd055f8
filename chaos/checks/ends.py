"""Did every process end as it should?"""

from __future__ import annotations

import signal

from diloco_chaos.chaos.checks.base import PROMISE, Finding, Late, Unknown, check, need, no_round_reported, violations
from diloco_chaos.chaos.evidence.clocks import WRITTEN_S
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.harness.base.lines import Line, line
from diloco_chaos.harness.base.units import show_seconds
from diloco_chaos.harness.places.base import status_words
from diloco_chaos.harness.record.tape.events import (
    End,
    Ending,
    Event,
    Exit,
    Failed,
    Finished,
    Merge,
    RefusedCheckpoint,
    Spawn,
    Superseded,
)

_OTHERS = {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, -signal.SIGQUIT}
"""Exit statuses that something else brings about: a person, or a kernel that is short of memory. No process ends itself
by one of these signals."""
_MACHINE = ("No space left", "Disk quota", "Input/output error", "Cannot allocate memory", "Read-only file system")
"""What the machine did to a node, by its own word."""
_LOOKS_S = 0.5
"""The harness looks now and then."""
_OWN_SHARE = 0.5
"""Who had the machine to itself for less than this share of the bound may be late."""
_AFTER_S = 5.0
"""So long after a fault it may still be why a process ends."""


@check(**PROMISE)
def no_unplanned_exit(history: History) -> Finding:
    """No process ends but by a fault, because its successor is there, or because training is over."""
    need(history.tape.of(End, node="harness"), "the harness recorded no end of the run")
    exits = history.exits  # none where no process ended before the harness ended them all
    need(all(gone.status is not None for gone in exits), "the harness did not record how a process ended")
    wrong: list[Line] = []
    doubtful: list[Line] = []
    over = min((event.t for event in history.tape.of(Finished, node=history.recorder) if not event.early), default=None)
    judged = [event for event in exits if over is not None or event.t <= history.end]
    for gone in judged:
        own = [event for event in history.tape.of(Finished, Superseded, Failed, RefusedCheckpoint, Exit,
                                                  node=gone.target) if event.inc == gone.incarnation]
        if gone.status in history.plan.trainer.may_end_with(gone.target):
            continue
        if why := _unplanned(gone, own, over is not None and over <= gone.t):
            (doubtful if (other := _outside_cause(history, gone, own)) else wrong).append(line(why, other))
    if doubtful and not wrong:
        raise Unknown(line(*(part for each in doubtful for part in ("; ", each)))[1:])
    return Finding(not wrong, f"{len(wrong)} of {len(judged)}", "0", wrong[:5], figures=violations(wrong))


@check(**PROMISE | {"needs": {"protocol"}})
def end_correct(history: History) -> Finding:
    """Training is over for all nodes at once: a node that was connected, and left alone, ends by itself within the
    bound; none ends before the syncer says so, and nothing is merged after that."""
    finished = history.tape.of(Finished, node=history.recorder)
    endings = history.tape.of(Ending, node="harness")
    need(finished and endings, "nobody watched the end of training")
    over, within = finished[0].t, history.plan.cluster.ends_within_s
    wrong = [line(f"{event.node}.{event.inc} took training to be over at ", event.t, ", and the syncer at ", over)
             for event in history.tape.of(Finished)
             if event.node in history.plan.cluster.names and event.t < over - history.clocks.tolerance]
    wrong += [line("a merge at ", merge.t, ", when training was over since ", over)
              for merge in history.tape.of(Merge, node=history.recorder) if merge.t > over + WRITTEN_S]
    hit = {node for span in history.spans if span.overlaps(over - _AFTER_S, over) or over - _AFTER_S < span.began < over
           for node in span.planned.fault.affected_nodes(history.plan.cluster.names)}
    stayed = [node for node in endings[0].awaited
              if node not in hit and not _ended(history, node, endings[0].t + within)]
    wrong += [line(f"{node} was told that training is over at ", over,
                   f", and was still there {show_seconds(within)} later") for node in stayed]
    awaited = len(endings[0].awaited)
    return Finding(not wrong, f"{len(wrong)} of {awaited} did not end",
                   f"0 within {show_seconds(within)}{history.clocks.allowed()}", wrong[:5],
                   [Late(over, over + within, _OWN_SHARE * within)] if len(stayed) == len(wrong) else [],
                   violations(wrong))


def _ended(history: History, node: str, until: float) -> bool:
    """Return whether the newest process of a node had ended by itself by `until`; one whose fault came in the last
    moment counts."""
    last = [event for event in history.tape.of(Spawn, Exit, node="harness") if event.target == node]
    return bool(last) and isinstance(last[-1], Exit) and last[-1].t <= until + _LOOKS_S


def _unplanned(gone: Exit, own: list[Event], over: bool) -> Line:
    """Return what was wrong with an end; empty where nothing was. `own`: the process' own words; `over`: training was.
    """
    status = gone.status or 0
    if gone.killed or (over and status in (-signal.SIGTERM, -signal.SIGKILL)):
        return ()  # the harness ends what is still there
    if status == 0 and (over or any(isinstance(event, Superseded) for event in own)):
        return ()
    reason = "".join(f": {why}" for why in _reasons(own))
    return line(f"{gone.target}.{gone.incarnation} ended at ", gone.t, f", {'after' if over else 'before'} training "
                f"was over ({status_words(status)}{reason})")


def _reasons(own: list[Event]) -> list[str]:
    """Return why a process ended, by its own words."""
    return [event.reason for event in own if isinstance(event, Superseded | Failed | RefusedCheckpoint)]


def _outside_cause(history: History, gone: Exit, own: list[Event]) -> str:
    """Say what may have ended a process beside its own program; empty where nothing else may."""
    if gone.oom or gone.status in _OTHERS or any(isinstance(event, Exit) and event.told for event in own):
        return "; somebody else ended it"
    if any(words in why for why in _reasons(own) for words in _MACHINE):
        return "; the machine is why"
    names = history.plan.cluster.names
    if gone.status == 0 and gone.target in names and no_round_reported(history):
        return "; nobody had told of a round, so nobody knows whether its training was over"
    on = [span.id for span in history.spans if span.overlaps(gone.t - _AFTER_S, gone.t)
          and span.planned.fault.stops_target and gone.target in span.planned.fault.affected_nodes(names)]
    return f"; fault {on[0]} had hit it" if on else ""
