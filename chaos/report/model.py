"""What a report tells, as numbers with units, made from a run's folder alone; every form of a report is made of it.

All times are seconds since the steady state, which is t = 0; what lay before it is negative.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import isfinite
from typing import Literal

from pydantic import BaseModel, ConfigDict

from diloco_chaos.chaos.checks.base import Figure, Verdict, tightest
from diloco_chaos.chaos.checks.injection import measure
from diloco_chaos.chaos.evidence.history import History, Span
from diloco_chaos.chaos.evidence.interference import interference
from diloco_chaos.chaos.evidence.phases import Recovery, recoveries
from diloco_chaos.chaos.evidence.recovery.costs import costs
from diloco_chaos.chaos.report.causes import causes, stalls
from diloco_chaos.chaos.report.costs import CostTold, cost_told
from diloco_chaos.chaos.report.story import QUIET, because
from diloco_chaos.chaos.runner.run import INCONCLUSIVE, Result, exit_code
from diloco_chaos.harness.base.lines import text
from diloco_chaos.harness.base.units import shortened
from diloco_chaos.harness.record.tape.events import Event, Warning
from diloco_chaos.harness.record.tape.reading import Tape

Word = Literal["PASSED", "FAILED", "INCONCLUSIVE", "INTERRUPTED"]
WORDS: dict[int, Word] = {0: "PASSED", 1: "FAILED", 3: "INCONCLUSIVE", 130: "INTERRUPTED"}
_MOST_EVENTS = 2000
_SLICES, _SLICE_S = 240, 0.5
"""Of the run, in which merges are counted: how many at the most, and how long at the least."""
_TAIL, _LONGEST = 30, 300


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True)


class CheckTold(_Told):
    """A check."""

    name: str
    verdict: Literal["passed", "failed", "unknown"]
    measured: str
    bound: str
    causes: list[str]
    """Why it failed, as far as the event log proves it."""
    evidence: list[str]
    figures: list[Figure]
    """The numbers behind it; none where it is not about one."""
    windows: list[tuple[float, float]]
    """From when to when something took longer than it may, the worst first."""


    @property
    def tightest(self) -> Figure | None:
        """Return the figure that is nearest to its limit, or farthest beyond it."""
        return tightest(self.figures)


class FaultTold(_Told):
    """A fault."""

    id: str
    kind: str
    requested: str
    trigger: str
    observed: str
    verified: bool
    reacted: bool
    planned: tuple[float, float] | None
    """From when to when, by the plan; None where that is not a matter of time."""
    began: float | None
    """None: it never came."""
    ended: float | None
    """Undone, or its target started again; None: never."""
    recoveries: list[RecoveryTold] = []
    """Of each target that it took out."""
    cost: CostTold | None = None
    """What it cost, where it took a node out."""


class PhaseTold(_Told):
    """A phase of a recovery that ended."""

    name: str
    end: float
    seconds: float
    """Since the phase before it ended, or since the injection."""
    by: str
    """Who shows that."""


class RecoveryTold(_Told):
    """What followed a fault, for one of its targets."""

    target: str
    phases: list[PhaseTold]
    """In the order in which they ended: together they are the time from the injection to the last."""
    not_told: dict[str, str]
    """Phase -> why it has no time."""
    time_to_detect: float | None
    """Seconds; MTTD is the mean of these."""
    time_to_recover: float | None
    """Seconds until the pace was what it was before; MTTR is the mean of these."""
    lost_steps: int | None
    successor: str = ""
    """The node that took its place; empty where it came back itself."""


class StateTold(_Told):
    """A state that a node was in for a time."""

    start: float
    end: float
    state: str


class LaneTold(_Told):
    """A node's states, in order."""

    node: str
    states: list[StateTold]


class MergesTold(_Told):
    """Merges in a slice of time, or rounds."""

    start: float
    end: float
    rate: float
    """A second."""
    contributors: float
    """Mean of these merges; 0 where there was none."""


class CurveTold(_Told):
    """Losses by the tokens, or rounds, that were processed."""

    name: str
    points: list[tuple[float, float]]


class EventTold(_Told):
    """A line of the event log that is not one of thousands."""

    t: float
    node: str
    incarnation: int
    event: str
    fields: str


class NextCommands(_Told):
    """The commands to type next."""

    check: str
    repeat: str


class ReportModel(_Told):
    """A run's report."""

    schema_version: Literal[1] = 1
    run: str
    scenario: str
    description: str
    trainer: str
    seed: int
    place: str
    """Where it ran: `local`, `compose`, `simulated`, or what another package calls its own."""
    plan: str
    """Digest."""
    verdict: Word
    why: str
    """Why it proves nothing, or how it ended; empty where the checks say all."""
    change: str
    """Where it proves nothing, the one thing to change for it to do so; empty where nobody knows."""
    gaps: list[str]
    """Where the event log is incomplete."""
    warnings: list[str] = []
    """What people should know, and decides nothing: whose, and how often."""
    took: float
    """Seconds from its start."""
    start: float
    """Of the run."""
    end: float
    """Up to where it is judged."""
    unit: Literal["learner", "worker"]
    quorum: int
    """Learners that a merge needs."""
    checks: list[CheckTold]
    out_of_reach: dict[str, list[str]]
    """What would bring them -> checks that this trainer gives no evidence for."""
    faults: list[FaultTold]
    cost: CostTold | None = None
    """What all faults together cost, from the steady state to the end; None where none took a node out."""
    lanes: list[LaneTold]
    stalls: list[tuple[float, float]]
    """Times without a merge that are far longer than most, whether or not a check allows them."""
    busy: list[tuple[float, float, str]]
    """When others had the machine, and how."""
    merges: list[MergesTold]
    loss_unit: str
    loss_by: Literal["tokens", "rounds"]
    curves: list[CurveTold]
    tokens: dict[str, int]
    bytes_received: dict[str, int]
    """By the syncer, by what they were for."""
    bytes_sent: dict[str, int]
    events: list[EventTold]
    events_left_out: int
    logs: dict[str, list[str]]
    """Node -> the last lines of its newest log."""
    stacks: dict[str, list[str]] = {}
    """Node and number of its process -> where its threads stood when it hung at the end of the run."""
    environment: dict[str, str]
    commands: NextCommands

    @property
    def failed(self) -> list[CheckTold]:
        """Checks that failed."""
        return [check for check in self.checks if check.verdict == "failed"]

    @property
    def unknown(self) -> list[CheckTold]:
        """Checks that prove nothing."""
        return [check for check in self.checks if check.verdict == "unknown"]


def change(result: Result) -> str:
    """The one thing to change for a run that proves nothing to prove something the next time."""
    return result.judgement.change if exit_code(result) == INCONCLUSIVE else ""


def model_of(result: Result) -> ReportModel:
    """The report of a run that was judged."""
    history, plan, told = result.history, result.history.plan, result.history.once(costs)
    zero, accounting, traffic = history.origin, result.history.accounting, result.traffic
    why = causes(history, result.judgement.checks)
    checks = [_check(history, verdict, why.get(verdict.name, [])) for verdict in result.judgement.checks]
    events, left_out = _events(history, zero)
    return ReportModel(
        run=result.folder.path.name, scenario=plan.scenario, description=plan.description,
        trainer=plan.trainer.algorithm or plan.trainer.name, seed=plan.seed, place=result.folder.place,
        plan=plan.digest, verdict=WORDS[exit_code(result)],
        why=because(result),
        change=change(result), gaps=result.judgement.gaps, warnings=warnings_of(history.tape),
        took=result.took, start=-zero,
        end=history.end - zero, unit=plan.trainer.counting.worker,
        quorum=plan.cluster.learners_needed, checks=checks, out_of_reach={
            bringing: list(names) for bringing, names in result.judgement.out_of_reach.items()},
        faults=list(_faults(history, zero)), cost=cost_told(told.run, zero) if told.faults else None,
        lanes=list(_lanes(history, zero)),
        stalls=[(start - zero, end - zero) for start, end in stalls(history)],
        busy=[(window.start - zero, window.end - zero, f"{window.why}; {window.numbers()}")
              for window in interference(history)],
        merges=list(_merges(history, zero)), loss_unit=plan.trainer.loss_unit,
        loss_by=plan.trainer.counting.unit, curves=list(_curves(history)),
        tokens={"processed": accounting.processed, **dict(accounting.by_fate)},
        bytes_received=dict(traffic.received), bytes_sent=dict(traffic.sent), events=events, events_left_out=left_out,
        logs={name: tail for name in (*plan.cluster.all_nodes, "links")
              if (tail := [line for line in result.folder.log_tail(name, _TAIL) if line.strip()])},
        stacks=result.folder.stacks,
        environment={key: str(value) for key, value in result.folder.manifest().items()
                     if isinstance(value, (str, int, float))},
        commands=NextCommands(check=f"diloco-chaos check {result.folder.path} --verbose", repeat=result.folder.repeat))


def phases_of(model: ReportModel) -> Iterator[tuple[FaultTold, RecoveryTold, PhaseTold]]:
    """Yield all phases of all recoveries."""
    yield from ((fault, recovery, phase) for fault in model.faults for recovery in fault.recoveries
                for phase in recovery.phases)


def costs_of(model: ReportModel) -> Iterator[tuple[str, CostTold]]:
    """Yield what each fault cost, by its id, and, under no name, all of them together."""
    yield from ((fault.id, fault.cost) for fault in model.faults if fault.cost is not None)
    if model.cost is not None:
        yield "", model.cost


def warnings_of(tape: Tape) -> list[str]:
    """Return the warnings of the event log, each once, in the order in which they first came."""
    counted = Counter((event.node, "; ".join(filter(None, [event.reason, event.change]))) for event in tape.of(Warning))
    return [f"{node}: {reason}" + (f" ({count} times)" if count > 1 else "")
            for (node, reason), count in counted.items()]


def _check(history: History, verdict: Verdict, why: list[str]) -> CheckTold:
    zero = history.origin
    return CheckTold(name=verdict.name, verdict=verdict.verdict, measured=verdict.measured, bound=verdict.bound,
                     causes=why, evidence=[text(line, zero) for line in verdict.lines],
                     figures=verdict.figures, windows=[(start - zero, end - zero) for start, end in verdict.windows])


def _faults(history: History, zero: float) -> Iterable[FaultTold]:
    followed: dict[str, list[RecoveryTold]] = {}
    for recovery in history.once(recoveries):
        followed.setdefault(recovery.span.id, []).append(_recovery(recovery, zero))
    told = {name: cost_told(cost, zero) for name, cost in history.once(costs).faults.items()}
    for span in history.spans:
        measured = measure(history, span)
        yield FaultTold(id=span.id, kind=span.planned.fault.kind, requested=measured.requested,
                        trigger=span.planned.fault.describe_trigger(), observed=measured.observed, verified=measured.ok,
                        reacted=measured.reacted, planned=_planned(span),
                        began=None if span.injected is None else span.injected - zero,
                        ended=None if span.ended is None else span.ended - zero,
                        recoveries=followed.get(span.id, []), cost=told.get(span.id))


def _recovery(recovery: Recovery, zero: float) -> RecoveryTold:
    passed = [PhaseTold(name=phase.name, end=end - zero, seconds=seconds, by=phase.by)
              for phase, end, seconds in recovery.passed]
    return RecoveryTold(target=recovery.target, phases=passed,
                        not_told={phase.name: phase.missing for phase in recovery.phases if phase.t is None},
                        time_to_detect=recovery.to_detect, time_to_recover=recovery.to_recover,
                        lost_steps=recovery.lost_steps, successor=recovery.successor)


def _planned(span: Span) -> tuple[float, float] | None:
    fault = span.planned.fault
    if fault.at is None:
        return None
    lasts = fault.duration or getattr(fault, "restart_after", None) or 0.0
    return fault.at, fault.at + lasts


def _lanes(history: History, zero: float) -> Iterable[LaneTold]:
    for node, lane in history.lanes.nodes.items():
        changes = [change for change in lane.changes if change[0] < history.end]
        borders = pairwise([*changes, (history.end, "")])
        yield LaneTold(node=node, states=[StateTold(start=began - zero, end=until - zero, state=state)
                                          for (began, state), (until, _) in borders if until > began])


def _merges(history: History, zero: float) -> Iterable[MergesTold]:
    count = min(_SLICES, int(history.end / _SLICE_S))
    width = history.end / max(1, count)
    rates = _rates(history, count, width)
    for number in range(count):
        start = number * width
        parts = [len(merge.contributions) for merge in history.merges_between(start, start + width)]
        yield MergesTold(start=start - zero, end=start + width - zero, rate=rates[number],
                         contributors=sum(parts) / len(parts) if parts else 0.0)


def _rates(history: History, count: int, width: float) -> list[float]:
    """Merges a second in each slice. A merge belongs to all of the time since the one before it: counted at its own
    moment, what is steady would go up and down as slices have room for one more."""
    shares = [0.0] * count
    times = [merge.t for merge in history.merges]
    for start, t in pairwise([max(0.0, times[0] - width), *times] if times else []):
        end = min(t, count * width)
        for number in range(int(start / width), min(count, int(end / width) + 1)):
            inside = min(end, (number + 1) * width) - max(start, number * width)
            shares[number] += inside / (end - start) if end > start else 1.0
    return [share / width for share in shares]


def _curves(history: History) -> Iterable[CurveTold]:
    curves = [("this run", history.curve), *((kind, reference.curve) for kind, reference in history.references.items())]
    for name, points in curves:
        known = [(float(point.processed), point.loss) for point in points if isfinite(point.loss)]
        if known:
            yield CurveTold(name=name, points=known)


def _events(history: History, zero: float) -> tuple[list[EventTold], int]:
    """Return the events of which there are few, and how many are left out; where they are many all the same, the first
    and the last."""
    rare = history.tape.named(*(name for name in history.tape.names if name not in QUIET))
    left_out = max(0, len(rare) - _MOST_EVENTS)
    if left_out:
        rare = [*rare[:_MOST_EVENTS // 2], *rare[-_MOST_EVENTS // 2:]]
    return [EventTold(t=event.t - zero, node=event.node, incarnation=event.inc, event=event.event,
                      fields=_fields(event)) for event in rare], left_out


def _fields(event: Event) -> str:
    fields: Sequence[str] = [f"{name} {value}" for name, value in event.payload()
                             if isinstance(value, (str, int, float, list))]
    return shortened(", ".join(fields), _LONGEST)
