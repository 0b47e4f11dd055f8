"""Did every process end as it should?"""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Iterator

from diloco_chaos.chaos.checks.base import (
    PROMISE,
    Figure,
    Finding,
    Late,
    Unknown,
    alive,
    at_most,
    check,
    from_logs,
    need,
    no_round_reported,
    unnumbered_epochs,
    violations,
)
from diloco_chaos.chaos.evidence.clocks import WRITTEN_S
from diloco_chaos.chaos.evidence.history import History, Span
from diloco_chaos.chaos.scenario.bounds import Restarts
from diloco_chaos.faults.inner import OfProcess
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
"""Exit statuses that something else brings about: a person, or a kernel that is short of memory. A process ends itself
by one of these signals only if a library interrupts its main thread, as Monarch does if an actor's process is gone."""
_MACHINE = ("No space left", "Disk quota", "Input/output error", "Cannot allocate memory", "Read-only file system")
"""What the machine did to a node, by its own word."""
_LOOKS_S = 0.5
"""The harness looks now and then."""
_OWN_SHARE = 0.5
"""Who had the machine to itself for less than this share of the bound may be late."""
_AFTER_S = 5.0
"""So long after a fault it may still be why a process ends."""
_AS_FAR = 0.9
"""A worker that has made this share of the others' rounds, or trained for this share of their time, has not left them
long before their end."""
_SAME_ENDS = 3
"""So many ends of a node in a row that are alike, without a new round between them, are a crash loop."""


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
        ended_well = gone.status == 0 and (_trained_to_its_end(history, gone) or _over_by_then(history, over, gone))
        if (ended_well or _by_its_process(history, gone) or _of_its_own_accord(history, gone)
                or _with_its_job(history, gone)):
            continue
        if why := _unplanned(gone, own, over is not None and over <= gone.t):
            (doubtful if (other := _outside_cause(history, gone, own)) else wrong).append(line(why, other))
    if doubtful and not wrong:
        raise Unknown(line(*(part for each in doubtful for part in ("; ", each)))[1:])
    return Finding(not wrong, f"{len(wrong)} of {len(judged)}", "0", wrong[:5], figures=violations(wrong))


@check(Restarts, **PROMISE | {"needs": {"rounds"}})
def restarts(history: History, bound: Restarts) -> Finding | None:
    """No node ends in the same way three times in a row without a new round between, and none is started again by its
    scheduler more often than the scenario allows."""
    again = Counter(gone.target for gone in history.exits if gone.again and (gone.trusted or not gone.killed))
    if not again and bound.most is None:
        return None
    most = max(again.values(), default=0)
    wrong = [words for node in again if (words := _crash_loop(history, node))]
    wrong += [line(f"{node} was started again {count} times") for node, count in again.most_common()
              if bound.most is not None and count > bound.most]
    counts = ", ".join(f"{node} {count}" for node, count in again.most_common(5))
    return Finding(not wrong, f"{most} restarts", "no crash loop" if bound.most is None else at_most(bound.most),
                   wrong[:5] or ([f"started again by its scheduler: {counts}"] if again else []),
                   figures=[] if bound.most is None else [Figure(value=most, limit=bound.most, unit="restarts")])


def _crash_loop(history: History, node: str) -> Line:
    """Say how often a node ended in the same way, in a row and with no new round between; empty where it was not often.
    """
    row: list[Exit] = []
    worst: list[Exit] = []
    newest, last = -1, ""
    for gone in (event for event in history.exits if event.target == node):
        made = max((step.step for step in history.steps.get(gone.process, ())), default=-1)
        how = _alike(history, gone)
        planned = gone.killed or gone.status in history.plan.trainer.may_end_with(node)
        if planned or _of_its_own_accord(history, gone):
            row = []
        else:
            row = [*row, gone] if row and made <= newest and how == last else [gone]
        newest, last = max(newest, made), how
        worst = max(worst, row, key=len)
    if len(worst) < _SAME_ENDS:
        return ()
    how = "".join(f": {why}" for why in _own_reasons(history, worst[-1]))
    return line(f"{node} ended {len(worst)} times in the same way, between ", worst[0].t, " and ", worst[-1].t,
                f", and made no new round ({status_words(worst[-1].status or 0)}{how})")


def _alike(history: History, gone: Exit) -> str:
    """Return how a process ended, without what differs from time to time: numbers, addresses."""
    return f"{gone.status} " + re.sub(r"0x[0-9a-fA-F]+|\d+", "#", " ".join(_own_reasons(history, gone)))


def _own_reasons(history: History, gone: Exit) -> list[str]:
    return [event.reason for event in history.tape.of(Failed, node=gone.target) if event.inc == gone.incarnation]


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


def _over_by_then(history: History, over: float | None, gone: Exit) -> bool:
    """Return whether training was over when a node ended that is no worker, of a trainer that writes no event log: its
    end may be seen a moment before those of the workers."""
    served = gone.target not in history.plan.cluster.names
    return from_logs(history) and served and over is not None and over <= gone.t + _LOOKS_S


def _trained_to_its_end(history: History, gone: Exit) -> bool:
    """Return whether a worker had trained to its end, by the rounds that it reported: to the round that was asked for;
    where none was, about as far, or as long, as the others."""
    if not from_logs(history) or gone.target not in history.plan.cluster.names or gone.again:
        return False
    newest: dict[str, int] = {}
    moments: list[float] = []
    for (node, _), steps in history.steps.items():
        if steps:
            newest[node] = max(newest.get(node, 0), *(step.step for step in steps))
            moments += [steps[0].t, steps[-1].t]
    own, asked = newest.get(gone.target, 0), history.plan.cluster.budget_tokens
    if asked or not newest:
        return own >= asked > 0
    most, first, last = max(newest.values()), min(moments), max(moments)
    return own >= max(1, min(_AS_FAR * most, most - 1)) or gone.t - first >= _AS_FAR * (last - first)


def _hit(history: History, span: Span, gone: Exit) -> bool:
    """Return whether a fault came to this very process not long before its end. What it damaged on a disk hits those
    that come after, too."""
    fault = span.planned.fault
    return (gone.target in fault.affected_nodes(history.plan.cluster.names) and span.overlaps(gone.t - _AFTER_S, gone.t)
            and ("state" in fault.requires() or history.tape.newest(gone.target, span.began) == gone.incarnation))


def _of_its_own_accord(history: History, gone: Exit) -> bool:
    """Return whether a process ended because a fault that was there in its life left it nothing else to do, and its
    scheduler started the node again. Such a fault also hits those that begin while it lasts."""
    if gone.again is not True:
        return False
    spawn = _spawn_of(history, gone)
    began = 0.0 if spawn is None else spawn.t
    return any(span.planned.fault.may_end_target and gone.target in span.planned.fault.targets
               and (span.overlaps(max(began, gone.t - _AFTER_S), gone.t)
                    or (span.injected is not None and _stood_still(history, span, gone, span.ended)))
               for span in history.spans)


def _with_its_job(history: History, gone: Exit) -> bool:
    """Return whether a worker ended because a fault had stopped another node, of a job that dies as a whole and goes on
    from a checkpoint, and its scheduler started it again. Only the process that was there when the fault came may; or
    one that came before another worker was back, and had part in no round."""
    if not (gone.again is True and history.plan.cluster.blocking and history.plan.checks.resumed is not None):
        return False
    if gone.process not in history.steps and _came_alone(history, gone):
        return True
    return any(span.planned.fault.stops_target and gone.target not in span.planned.fault.targets
               and history.tape.newest(gone.target, span.began) == gone.incarnation
               and (span.overlaps(gone.t - _AFTER_S, gone.t) or _stood_still(history, span, gone))
               for span in history.spans if span.injected is not None)


def _came_alone(history: History, gone: Exit) -> bool:
    """Return whether a fault had stopped a node before this process was started, and another worker was not back when
    it was."""
    if (spawn := _spawn_of(history, gone)) is None or not any(
            span.planned.fault.stops_target and span.injected is not None and span.injected < spawn.t
            for span in history.spans):
        return False
    return len(alive(history, spawn.t)) < len(history.plan.cluster.names)


def _spawn_of(history: History, gone: Exit) -> Spawn | None:
    """Return how the process that ended was started."""
    return next((event for event in history.tape.of(Spawn, node="harness") if event.process == gone.process), None)


def _by_its_process(history: History, gone: Exit) -> bool:
    """Return whether a node ended by the signal that a fault sent to one of its processes: its own, or it passes on how
    that one ended; or it ended for that reason, and its scheduler starts it again."""
    for span, fault in _on_its_processes(history, gone):
        spawn = _spawn_of(history, gone)
        signalled = str(span.observed.get("pids", "")).split(", ")
        ended_as = fault.ends_as
        if spawn is not None and str(spawn.pid) in signalled and gone.status in ended_as[:1]:
            return True
        if _hit(history, span, gone) and (gone.again or gone.status in ended_as):
            return True
    return gone.again is True and _after_its_process(history, gone)


def _after_its_process(history: History, gone: Exit) -> bool:
    """Return whether a node did nothing from a fault of one of its processes to its end."""
    return any(_stood_still(history, span, gone) for span, _ in _on_its_processes(history, gone))


def _on_its_processes(history: History, gone: Exit) -> Iterator[tuple[Span, OfProcess]]:
    """Yield the faults that came to one of the processes that a node had started."""
    for span in history.spans:
        fault = span.planned.fault
        if isinstance(fault, OfProcess) and span.injected is not None and gone.target in fault.targets:
            yield span, fault


def _stood_still(history: History, span: Span, gone: Exit, since: float | None = None) -> bool:
    """Return whether a process reported no round from a fault to its end, or none `since` then: some trainers take
    longer than `_AFTER_S` to notice that one of their processes is gone, or to give up, and end then. How long it stood
    is for other checks."""
    if gone.t < span.began or history.tape.newest(gone.target, span.began) != gone.incarnation:
        return False
    steps = history.steps.get((gone.target, gone.incarnation))
    return steps is not None and steps[-1].t <= max(span.began, since or 0.0) + _LOOKS_S


def _reasons(own: list[Event]) -> list[str]:
    """Return why a process ended, by its own words."""
    return [event.reason for event in own if isinstance(event, Superseded | Failed | RefusedCheckpoint)]


def _outside_cause(history: History, gone: Exit, own: list[Event]) -> str:
    """Say what may have ended a process beside its own program; empty where nothing else may."""
    interrupted_itself = gone.status == -signal.SIGINT and _after_its_process(history, gone)
    signalled = gone.status in _OTHERS and not interrupted_itself
    if gone.oom or signalled or any(isinstance(event, Exit) and event.told for event in own):
        return "; somebody else ended it"
    if any(words in why for why in _reasons(own) for words in _MACHINE):
        return "; the machine is why"
    names = history.plan.cluster.names
    if gone.status == 0 and gone.target in names and no_round_reported(history):
        return "; nobody had told of a round, so it is not known whether its training was over"
    if gone.status == 0 and gone.target in names and unnumbered_epochs(history)[0]:
        return "; its rounds begin again with each epoch, so it is not known whether its training was over"
    on = [span.id for span in history.spans if span.planned.fault.stops_target and _hit(history, span, gone)]
    return f"; fault {on[0]} had hit it" if on else ""
