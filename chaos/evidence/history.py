"""What happened in a run, as far as its folder tells: the checks' only source."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain, pairwise
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from diloco_chaos.chaos.evidence.accounting.parts import Integers, PartColumns, parts_of
from diloco_chaos.chaos.evidence.accounting.remade import ToldRound, told_rounds
from diloco_chaos.chaos.evidence.accounting.token_accounting import Node, TokenAccounting, account, counted, killed
from diloco_chaos.chaos.evidence.baseline import LossPoint, Reference
from diloco_chaos.chaos.evidence.clocks import ClockAgreement, clocks
from diloco_chaos.chaos.evidence.members import Members, moments_of_ranks
from diloco_chaos.chaos.evidence.outages import Outages
from diloco_chaos.chaos.evidence.timeline import Lanes
from diloco_chaos.chaos.evidence.truncated import Truncated, truncated
from diloco_chaos.chaos.scenario.plan import Plan, PlannedFault
from diloco_chaos.harness.record.tape.events import (
    CheckpointBegun,
    Continued,
    End,
    Exit,
    Finished,
    Healed,
    Injected,
    Injecting,
    Merge,
    Observed,
    Ready,
    Resumed,
    RolledBack,
    Spawn,
    Steady,
    Step,
    Verified,
)
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.record.tape.recovered import RecoveredMerge, RecoveredPart
from diloco_chaos.harness.record.tape.series import Series, times
from diloco_chaos.harness.trainers.storage.workings import Kept

D = TypeVar("D")


@dataclass(frozen=True)
class Span:
    """One planned fault in time, in seconds since the run began."""

    planned: PlannedFault
    injected: float | None = None
    ended: float | None = None
    """Healed; for a kill: the new process was started. None: it went on to the end."""
    observed: Mapping[str, Any] = field(default_factory=dict)
    done: bool = True
    """Whether the injection was recorded to its end."""

    @property
    def id(self) -> str:
        """The fault's."""
        return self.planned.id

    @property
    def began(self) -> float:
        """Return the time in seconds when the fault was injected; 0.0 where it never was."""
        return self.injected or 0.0

    def overlaps(self, start: float, end: float) -> bool:
        """Return whether the fault was on at any time between `start` and `end`."""
        return self.injected is not None and self.injected < end and (self.ended is None or self.ended > start)


@dataclass
class History:
    """A run's folder, read. Everything else is derived from these fields."""

    plan: Plan
    tape: Tape
    curve: Sequence[LossPoint] = ()
    references: Mapping[str, Reference] = field(default_factory=dict)
    workings: Iterable[Kept] | None = None
    """What nodes computed with; None: nothing was to be kept."""
    data: Path | None = None
    """The file that was trained on, where it is known."""
    _derived: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, derive: Callable[[History], D]) -> D:
        """Return what a function derives from this run: it is asked once, whoever wants to know."""
        if derive not in self._derived:
            self._derived[derive] = derive(self)
        derived: D = self._derived[derive]
        return derived

    @property
    def coordinator(self) -> str | None:
        """The name of the node that merges; None: there is none."""
        return self.plan.trainer.coordinator

    @property
    def recorder(self) -> str:
        """The name under which merges, the steady state and the end of training are on the tape."""
        return self.plan.trainer.recorder

    @property
    def learners(self) -> Sequence[str]:
        """The learners' names."""
        return self.plan.cluster.names

    @cached_property
    def log_gaps(self) -> list[str]:
        """Return the places where evidence is missing. A torn last line is normal where that incarnation was killed."""
        gaps = [why for node, why in self.tape.torn.items() if node not in self._killed or node in self.tape.unread]
        spawned = [spawn.process for spawn in self.tape.of(Spawn, node="harness")]
        gaps += [f"{name}.{incarnation} left no tape" for name, incarnation in spawned
                 if (name, incarnation) not in self.tape.ends.keys() | self._killed]
        gaps += [f"{name}.{incarnation} ended in good order, and its tape does not: "
                 f"what it wrote after {self.tape.ends.get((name, incarnation), 0.0):.2f} s is missing"
                 for name, incarnation in self._cut if (name, incarnation) in self.tape.ends]
        if not self.tape.of(End, node="harness"):
            gaps.append("the harness recorded no end: it died before the run was over")
        return gaps

    @cached_property
    def exits(self) -> list[Exit]:
        """Ends of processes, as the harness saw them."""
        return [event for event in self.tape.of(Exit, node="harness") if event.target]

    @cached_property
    def _killed(self) -> set[Node]:
        """Incarnations that a fault killed."""
        return set(killed(self.tape))

    @cached_property
    def _cut(self) -> list[Node]:
        """Incarnations that ended by themselves and in good order, whose tapes lack their last word: a copy that
        stopped between two lines looks like silence else."""
        said = {(event.node, event.inc) for event in self.tape.of(Exit) if not event.target}
        ended = [exited.process for exited in self.exits
                 if exited.status == 0 and exited.target in self.plan.trainer.writers]
        return [node for node in ended if node not in said | self._killed | self.tape.torn.keys()]

    @cached_property
    def zero(self) -> float | None:
        """Time zero: the steady state."""
        steady = self.tape.of(Steady, node=self.recorder)
        return steady[0].t if steady else None

    @property
    def origin(self) -> float:
        """Return the time in seconds that reports count seconds from: time zero, or the beginning where there never was
        a steady state."""
        return self.zero or 0.0

    @cached_property
    def lanes(self) -> Lanes:
        """Return what every node was doing at every moment."""
        return Lanes.of(self.plan, self.tape)

    @cached_property
    def end(self) -> float:
        """Up to where the run is judged: the end of training, or the first cut."""
        limits = [self.tape.ends.get(node, 0.0) for node in self.tape.torn
                  if node not in self._killed or node in self.tape.unread]
        limits += [self.tape.ends.get(node, 0.0) for node in self._cut
                   if node in self.tape.ends or node[0] == self.recorder]
        finished = [event.t for event in self.tape.of(Finished, node=self.recorder)]
        last = self.tape.end
        return min([*limits, *(finished[:1] or [last])])

    @cached_property
    def final(self) -> LossPoint:
        """The curve's last point.

        Raises:
            ValueError: there is no curve.
        """
        return max(self.curve, key=lambda point: point.number)

    @cached_property
    def clocks(self) -> ClockAgreement:
        """Return how well times of different nodes can be compared."""
        return clocks(self.tape)

    @cached_property
    def merges(self) -> list[Merge]:
        """Merges up to the end."""
        return [event for event in self.tape.of(Merge, node=self.recorder) if event.t <= self.end]

    @cached_property
    def parts(self) -> PartColumns:
        """Return what went into these merges, in columns."""
        return parts_of(self.merges)

    @cached_property
    def rolled_back(self) -> list[Merge]:
        """Merges that a group of data-parallel peers went back behind: void."""
        backs = [(event.t, event.step) for event in self.tape.of(RolledBack, node=self.recorder)]
        return [merge for merge in self.merges if any(merge.t <= t and merge.version > step for t, step in backs)]

    @cached_property
    def recovered_merges(self) -> list[RecoveredMerge]:
        """Merges that were committed, and whose syncer was killed before it wrote of them: its successor tells what
        went into them, and nothing else."""
        known = {(merge.fragment, merge.version) for merge in self.tape.of(Merge, node=self.recorder)}
        recovered = []
        for resumed in self.tape.of(Resumed, node=self.recorder):
            versions = resumed.versions
            made = zip(versions, resumed.contributions or (),
                        resumed.outer or [None] * len(versions), resumed.digests,
                        resumed.states or [None] * len(versions), strict=False)
            for fragment, (version, parts, outer, digest, state) in enumerate(made):
                if version > 0 and (fragment, version) not in known and resumed.t <= self.end:
                    known.add((fragment, version))
                    recovered.append(RecoveredMerge(resumed.t, resumed.inc, fragment, version, digest, state, outer,
                                                    [RecoveredPart(*part) for part in parts]))
        return recovered

    def coordinator_down(self, start: float, end: float) -> bool:
        """Return whether a fault had ended the coordinator, and for a time between `start` and `end` its successor was
        not at work yet."""
        back = [event.t for event in self.tape.of(Resumed, node=self.recorder)]
        return any(gone.t < end and not any(gone.t < t <= start for t in back)
                   for gone in self.exits if gone.target == self.coordinator and gone.killed)

    def step_time(self, learner: str) -> float:
        """Nominal time of a learner's inner steps, or of a member's, seconds; where there is none, and rounds are
        reported, that of its own before the first fault; 0: not known."""
        return self.plan.cluster.step_time_of(learner) or self._own_pace.get(learner, 0.0)

    @cached_property
    def _own_pace(self) -> dict[str, float]:
        """Learner -> median time from round to round before the first fault, where its trainer knows no nominal one."""
        if self.zero is None:
            return {}
        names = dict.fromkeys([*(name for name, _ in self.steps), *chain.from_iterable(self.members.values())])
        moments = {name: [t for t in self.moments(name) if self.zero <= t < self.first_fault] for name in names}
        return {name: median(later - earlier for earlier, later in pairwise(sorted(own)))
                for name, own in moments.items() if len(own) >= self.plan.trainer.counting.steps_for_pace}

    def first_start(self, worker: str) -> float | None:
        """Return the seconds from the start of a worker's first process that reported a round until it did; None: no
        process of it did."""
        started = self.tape.of(Spawn, node="harness")
        spawned = {event.incarnation: event.t for event in started if event.target == worker}
        first = min((inc for node, inc in self.steps if node == worker and inc in spawned), default=None)
        return None if first is None else self.steps[worker, first][0].t - spawned[first]

    @cached_property
    def steps(self) -> Mapping[Node, Series[Step]]:
        """Step events of every learner's incarnation, in order."""
        return self.tape.series(Step)

    @cached_property
    def members(self) -> Members:
        """Return the members of rounds that every worker has: its ranks where they are told apart, or itself."""
        return {worker: list(self._ranks.get(worker, ())) or [worker] for worker in self.plan.cluster.names}

    @cached_property
    def awaited(self) -> Mapping[str, int]:
        """Return how many members of rounds every worker has: as many as were seen, or as the scenario says."""
        return {worker: max(len(seen), self.plan.trainer.ranks_of(worker)) for worker, seen in self.members.items()}

    @cached_property
    def _ranks(self) -> Mapping[str, Mapping[str, Sequence[float]]]:
        return moments_of_ranks(self.steps) if self.plan.trainer.tells_losses else {}

    def moments(self, member: str) -> list[float]:
        """Return when a worker, or a rank of one, told a step or a round, in seconds."""
        ranks = self._ranks.get(member.partition("/")[0], {})
        if member in ranks:
            return list(ranks[member])
        return [t for (name, _), events in self.steps.items() if name == member for t in times(events)]

    @cached_property
    def told_rounds(self) -> list[ToldRound]:
        """Return what workers told of their rounds up to the end, where they number them."""
        steps = (step for step in self.tape.of(Step) if step.t <= self.end)
        return told_rounds(steps, together=self.plan.cluster.blocking)

    @cached_property
    def counted(self) -> Mapping[Node, tuple[Integers, Integers]]:
        """Return for every process its steps in order, each once, and the tokens before each of them and at last."""
        return {node: counted(events) for node, events in self.steps.items()}

    @cached_property
    def truncated(self) -> Mapping[Node, Truncated]:
        """Processes whose machines were lost, with the last moments of their tapes."""
        return truncated(self.tape, self.steps, self.clocks.tolerance)

    @cached_property
    def accounting(self) -> TokenAccounting:
        """The fate of every processed token."""
        parts = parts_of([*self.merges, *self.recovered_merges]) if self.recovered_merges else self.parts
        return account(self.plan, self.tape, self.steps, parts, self.rolled_back, self.truncated)

    @cached_property
    def spans(self) -> list[Span]:
        """Return every planned fault, with the times when it came and went."""
        injected = {event.fault: event for event in self.tape.of(Injected, node="harness")}
        observed_later: dict[str, dict[str, Any]] = {}
        for event in self.tape.of(Observed, Verified, node="harness"):
            observed_later.setdefault(event.fault, {}).update(event.observed)
        began = {event.fault: event.t for event in self.tape.of(Injecting, node="harness")}
        healed = {event.fault: event for event in self.tape.of(Healed, node="harness")}
        spans = []
        for planned in self.plan.faults:
            start = began.get(planned.id)
            observed = dict(injected[planned.id].observed) if planned.id in injected else {}
            if "why" not in observed:  # else it could not take place, and nothing that was measured tells of it
                observed |= observed_later.get(planned.id, {})
            if planned.id in healed:
                observed |= healed[planned.id].observed
                ended: float | None = healed[planned.id].t
            else:
                ended = self._over(planned, start) if not planned.fault.reversible and start is not None else None
            spans.append(Span(planned, start, ended, observed, planned.id in injected))
        return spans

    def _over(self, planned: PlannedFault, start: float) -> float | None:
        """Return when a fault that is not undone was over, in seconds: its targets were started again; at once where it
        stops none."""
        if not planned.fault.stops_target:
            return start
        if planned.fault.expected_duration() is None:
            return None  # a process that is started all the same ends nothing
        starts = [next((event.t for event in self.tape.of(Spawn, node="harness")
                        if event.target == target and event.t > start), None) for target in planned.fault.targets]
        known = [t for t in starts if t is not None]
        return max(known) if len(known) == len(starts) else None

    @cached_property
    def first_fault(self) -> float:
        """Return the time in seconds when the first fault came; the end where none did."""
        return min((span.injected for span in self.spans if span.injected is not None), default=self.end)

    @cached_property
    def dead_for_good(self) -> set[str]:
        """Nodes that were killed and were not to be started again."""
        return {target for span in self.spans if span.planned.fault.stops_target and span.injected is not None
                and span.planned.fault.expected_duration() is None for target in span.planned.fault.targets}

    def until(self, span: Span) -> float:
        """Return the time in seconds when a fault was over, as far as the run is judged; the run's end where it never
        was."""
        return self.end if span.ended is None else min(span.ended, self.end)

    @cached_property
    def outages(self) -> list[tuple[float, float]]:
        """Return when the whole run was down, (start, end) in seconds; an outage that did not end lasts to the end of
        the run."""
        outages = Outages(self.coordinator)
        if self.tape.of(Continued):  # hardly ever, and merges are many
            for event in self.tape.of(CheckpointBegun, Continued, Spawn, Ready, Merge):
                if event.t <= self.end:
                    outages.on_event(event)
        return [*outages.over, *([(outages.since, self.end)] if outages.since is not None else [])]

    def awake(self, start: float, end: float) -> list[tuple[float, float]]:
        """Return what is left of [start, end) without the outages."""
        parts = []
        for down, up in self.outages:
            if down < end and start < up:
                parts += [(start, down)] if start < down else []
                start = min(up, end)
        return [*parts, (start, end)] if start < end or not parts else parts

    def seconds(self, start: float, end: float) -> float:
        """Return how many seconds of [start, end) are left without the outages."""
        return sum(right - left for left, right in self.awake(start, end))

    def was_up(self, start: float, end: float) -> bool:
        """Return whether no outage is in [start, end)."""
        return not any(down < end and start < up for down, up in self.outages)

    def still(self, start: float, end: float, merges: Sequence[Merge] | None = None) -> list[tuple[float, float]]:
        """Return the stretches from merge to merge between `start` and `end` (`merges` None: of all of them); these
        two, and the borders of outages, count as merges."""
        moments = [merge.t for merge in (self.merges if merges is None else merges)]
        return [between for left, right in self.awake(start, end)
                for between in pairwise([left, *(t for t in moments if left < t < right), right])]

    def gaps(self, start: float, end: float) -> list[float]:
        """Return how many seconds each of the stretches of `still` lasted."""
        return [later - earlier for earlier, later in self.still(start, end)]

    def merges_between(self, start: float, end: float) -> list[Merge]:
        """Merges in [start, end)."""
        moments = self._merge_times
        return self.merges[bisect_left(moments, start):bisect_left(moments, end)]

    def counts_between(self, start: float, end: float) -> tuple[int, int]:
        """Return how many merges there are in [start, end), and how many contributions they have."""
        first, last = (bisect_left(self._merge_times, t) for t in (start, end))
        return last - first, self._contributions[last] - self._contributions[first]

    @cached_property
    def _merge_times(self) -> list[float]:
        return [merge.t for merge in self.merges]

    @cached_property
    def _contributions(self) -> list[int]:
        """Return the contributions before each merge, and at last."""
        return list(accumulate((len(merge.contributions) for merge in self.merges), initial=0))

    def pace(self, learner: str, start: float, end: float) -> float:
        """Return a learner's, or a member's, steps in [start, end) as a share of the nominal ones, all incarnations. A
        step is made in the nominal time before it is recorded, so that one at the border counts in part: in two seconds
        there are few."""
        nominal = self.step_time(learner)
        inside = (min(t, end) - max(t - nominal, start) for t in self.moments(learner) if start < t < end + nominal)
        return sum(inside) / (end - start)
