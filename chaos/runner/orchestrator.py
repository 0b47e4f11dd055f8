"""Decides when each fault comes and goes. A state machine: events and the time in, actions out.

Time zero is the steady state: the moment at which the syncer has merged from every learner.

Theory of operation
-------------------
A fault of the plan is *waiting*, *active* (it lasts until it is healed) or *over*. `on_event` and `on_time` return
what is to be done; the caller does it and records it, and the record comes back as an event. So a fault is
over when the event log says so, not when this module has asked for it, and a run that is resumed is brought to the
same state by its own log (`catch_up`).

- A fault with `at` is due that long after zero; one with `when` when the log shows the event for the n-th time, when
  what it waits for was sighted (`sightings`), or when training meets a condition; one with `after` that long after all
  parts of another fault are over, or the recovery from them has come as far as `phase` says.
- Time in which the whole run was down (it was ended, and resumed) does not count: due times are moved by it, and
  nothing is injected before all train again.
- A reversible fault is healed `duration` after its injection was recorded to its end; one that ends its target is over
  when all its targets have been started again.
- When the scenario's `abort_when` holds, everything active is healed, nothing more comes, and the run goes on for as
  long as healing may take, so that what becomes of it is seen.

`next_at` and `wake_on` say when there is something to do next. They make virtual time quick; with a driver that asks
more often the result is the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from diloco_chaos.chaos.evidence.accounting.token_accounting import Node
from diloco_chaos.chaos.evidence.outages import Outages
from diloco_chaos.chaos.scenario.plan import Plan, PlannedFault
from diloco_chaos.faults import Fault
from diloco_chaos.faults.triggers import Stage
from diloco_chaos.harness.base.units import floor_ms
from diloco_chaos.harness.record.tape.events import (
    Disconnected,
    Event,
    Exit,
    Failpoint,
    Finished,
    Healed,
    Hello,
    Injected,
    Lost,
    Noticed,
    Resumed,
    Sighted,
    Spawn,
    Steady,
    Step,
)

_TELLING = frozenset({"steady", "finished", "injected", "healed", "spawn", "exit", "failpoint", "continued", "hello",
                      "lost", "resumed", "sighted", "noticed", "disconnected", "checkpoint_begun"})
"""Events that may say something to any plan; others only where a trigger waits for them."""
_SHORTEST_S = 0.001
_SMOOTHING = 0.05
"""Weight of a new step in a learner's training loss: about twenty steps count."""


class SmoothedLoss:
    """Training loss from `step` events: an exponential average per learner, and the mean over the learners.

    Args:
        weight: of the newest step.
        always_told: each step has a loss, so that one without has diverged; else its trainer reported none.
    """

    def __init__(self, weight: float, *, always_told: bool = True) -> None:
        self._weight, self._always_told = weight, always_told
        self._losses: dict[str, float] = {}

    def on_step(self, event: Step) -> None:
        """Take in a step."""
        if event.loss is None and event.no_number is None and not self._always_told:
            return
        loss = math.inf if event.loss is None or not math.isfinite(event.loss) else event.loss
        before = self._losses.get(event.node, loss)
        self._losses[event.node] = before + self._weight * (loss - before) if math.isfinite(before) else loss

    @property
    def value(self) -> float | None:
        """Nats per byte; None before the first loss."""
        return sum(self._losses.values()) / len(self._losses) if self._losses else None


@dataclass(frozen=True)
class Inject:
    """Do this fault now."""

    planned: PlannedFault
    due: float
    """When it was to come, in seconds since the run began: its time, or that of the event that brought it about."""


@dataclass(frozen=True)
class Heal:
    """Undo this fault now."""

    planned: PlannedFault


@dataclass(frozen=True)
class Abort:
    """No more faults: the scenario's condition holds."""

    why: str


@dataclass(frozen=True)
class EndRun:
    """The run is over."""

    outcome: Literal["finished", "deadline", "aborted"]


Action = Inject | Heal | Abort | EndRun


class Training:
    """The state of the training that the triggers know: its smoothed loss, and the nodes that are alive."""

    def __init__(self, *, losses_told: bool) -> None:
        self._loss = SmoothedLoss(_SMOOTHING, always_told=losses_told)
        self._alive: set[Node] = set()
        self.connected: set[str] = set()
        """Learners that the syncer knows to be there."""
        self._seen = False

    def on_event(self, event: Event, learners: list[str]) -> None:
        """Take in an event."""
        if isinstance(event, Step):
            self._loss.on_step(event)
        elif isinstance(event, Hello | Lost):
            change = self.connected.add if isinstance(event, Hello) else self.connected.discard
            change(event.learner)
        elif isinstance(event, Resumed):
            self.connected.clear()
        elif isinstance(event, Spawn | Exit) and event.target in learners:
            self._seen = True
            of_lives = self._alive.add if isinstance(event, Spawn) else self._alive.discard
            of_lives((event.target, event.incarnation))

    @property
    def loss(self) -> float | None:
        """Mean over the learners; None before the first step."""
        return self._loss.value

    @property
    def alive(self) -> int:
        """Learners of which a process is there."""
        return len({name for name, _ in self._alive}) if self._seen else 1 << 30


class Orchestrator:
    """Holds the plan's progress; driven by the wall clock or by virtual time."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.zero: float | None = None
        """When the steady state was reached."""
        self.ended = False
        self.aborted = ""
        """Why no more is injected; empty: it is."""
        self._waiting = list(plan.faults)
        self._active: dict[str, tuple[PlannedFault, float]] = {}
        self._endless: list[PlannedFault] = []
        self._seen: Counter[tuple[str, str]] = Counter()
        self._reached: dict[tuple[str, Stage], float] = {}  # how far the recovery from a fault has come, and when
        self._respawning: dict[str, set[str]] = {}  # fault -> targets that are still to be started again
        self._training = Training(losses_told=bool(plan.trainer.writers))
        self._learners = plan.cluster.names
        self._counted: set[tuple[str, str]] = set()
        self._by_training = plan.abort_when is not None
        self._heed(plan.faults)
        self._give_up_at = float("inf")
        self._outages = Outages(plan.trainer.coordinator)

    def _heed(self, faults: Iterable[PlannedFault]) -> None:
        """Know which events these wait for."""
        whens = [planned.fault.when for planned in faults if planned.fault.when is not None]
        self._counted |= {(when.node, when.event) for when in whens}
        self._counted |= {(target, "step") for fault in self._until("first_round", faults) for target in fault.targets}
        self._by_training = self._by_training or any(not when.empty for when in whens)

    def _until(self, stage: Stage, waiting: Iterable[PlannedFault]) -> list[Fault]:
        """Return the faults whose recovery one of these waits for, to come so far."""
        awaited = {planned.fault.after.fault for planned in waiting
                   if planned.fault.after is not None and planned.fault.after.phase == stage}
        return [planned.fault for planned in self.plan.faults
                if awaited & {planned.id, planned.id.partition(".")[0]}]

    def add(self, faults: Sequence[PlannedFault]) -> Plan:
        """The plan with more faults, which come as they say, from now on; none where the run was aborted."""
        self.plan = self.plan.with_more(faults)
        self._heed(faults)
        if not self.aborted:
            self._waiting += faults
        return self.plan

    def cut_short(self, planned: PlannedFault, now: float) -> Plan:
        """End an active fault now, and return the plan, which says how long it lasted; the caller undoes the fault."""
        _, until = self._active.pop(planned.id)
        lasted = max(_SHORTEST_S, floor_ms((planned.fault.duration or 0.0) - max(0.0, until - now)))
        shorter = planned.model_copy(update={"fault": planned.fault.model_copy(update={"duration": lasted})})
        self.plan = self.plan.model_copy(update={
            "faults": tuple(shorter if fault.id == planned.id else fault for fault in self.plan.faults)})
        return self.plan

    def catch_up(self, events: Iterable[Event], over: Collection[str]) -> None:
        """Know what was known of a run that now goes on: its events up to there, and the faults that had come by then;
        all others are still to come. None comes at a time before all train again; those whose moment had passed by then
        come at once, and all others as much later as the run was down."""
        waiting, self._waiting = [planned for planned in self._waiting if planned.id not in over], []
        for event in events:
            self.on_event(event)
        self._waiting = [] if self.aborted else waiting
        for when in (planned.fault.when for planned in waiting):
            if when is not None and when.event and self._seen[when.node, when.event] >= when.count:
                self._seen[when.node, when.event] = when.count - 1  # the next one brings it about

    def on_event(self, event: Event) -> list[Action]:
        """An event came up on the tape."""
        if not (event.event in _TELLING or self._by_training or (event.node, event.event) in self._counted
                or self._outages.since is not None):
            return []  # as nearly all are
        self._training.on_event(event, self._learners)
        self._outages.on_event(event)
        if isinstance(event, Steady) and self.zero is None:
            self.zero = event.t
        if isinstance(event, Finished) and event.node == self.plan.trainer.recorder and not self.ended:
            self.ended = True
            return [EndRun("finished")]
        if self.zero is None or event.t < self.zero or self.ended:
            return []
        self._seen[event.node, event.event] += 1
        self._note_ends(event)
        actions = self._abort(event.t)
        return actions + [self._inject(planned, event.t, event.t) for planned in list(self._waiting)
                          if self._meets(planned, event)]

    def on_time(self, now: float) -> list[Action]:
        """Time went on."""
        if self.ended:
            return []
        if now >= self._deadline:
            self.ended = True
            return [EndRun("deadline")]
        if now >= self._give_up_at:
            self.ended = True
            return [EndRun("aborted")]
        actions: list[Action] = []
        for planned, until in list(self._active.values()):
            if now >= until:
                del self._active[planned.id]
                actions.append(Heal(planned))
        if self._goes_on:
            actions += [self._inject(planned, due, now) for planned in list(self._waiting)
                        if (due := self._due(planned.fault)) is not None and now >= due]
        return actions

    @property
    def next_at(self) -> float:
        """Return when `on_time` has something to do next, if nothing happens until then; infinite for never."""
        if self.ended:
            return float("inf")
        dues = [] if not self._goes_on else [
            due for planned in self._waiting if (due := self._due(planned.fault)) is not None]
        return min([self._deadline, self._give_up_at, *(until for _, until in self._active.values()), *dues])

    @property
    def wake_on(self) -> set[tuple[str, str]] | None:
        """(node, event) of all that `on_event` may act upon at once; None: anything."""
        if self.plan.abort_when is not None or any(
                planned.fault.when is not None and not planned.fault.when.empty for planned in self._waiting):
            return None
        # Whoever stands at a failpoint after the fault that it is for must be let go.
        waits = [when for planned in self.plan.faults if (when := planned.fault.when) is not None
                 and (when.failpoint or planned in self._waiting)]
        recorder = self.plan.trainer.recorder
        again = [(recorder, "merge"), *((name, "ready") for name in self._learners)]
        missed = [(recorder, "lost"), *((name, "disconnected") for name in self._learners)]
        return {(recorder, "steady"), (recorder, "finished"), *(again if self._outages.since is not None else ()),
                *(missed if self._until("noticed", self._waiting) else ()),
                *((target, "step") for fault in self._until("first_round", self._waiting) for target in fault.targets),
                *((when.node, when.event or "failpoint") for when in waits)}

    @property
    def _goes_on(self) -> bool:
        """Return whether it is the time for faults."""
        return self.zero is not None and self._outages.since is None

    @property
    def _deadline(self) -> float:
        """The plan's; a run that was down has as much longer, and to get up as long as a run may take."""
        since = self._outages.since
        return self._outages.after(0.0, self.plan.deadline) if since is None else since + self.plan.deadline

    def active(self) -> list[PlannedFault]:
        """Faults that were injected and not healed yet."""
        return [planned for planned, _ in self._active.values()]

    def awaited(self) -> list[str]:
        """Return the nodes that must end by themselves now that training is over: the coordinator, and the workers
        that were connected; none that a fault is on."""
        if not self.plan.trainer.ends_by_itself:
            return []
        hit = {node for planned in self.active() for node in planned.fault.affected_nodes(self._learners)}
        coordinator = self.plan.trainer.coordinator
        return [node for node in (*filter(None, [coordinator]), *sorted(self._training.connected)) if node not in hit]

    def _due(self, fault: Fault) -> float | None:
        """Return when a fault that waits for a time, or for another fault, is to come, in seconds by the run's clock;
        None: not known yet."""
        if fault.at is not None and self.zero is not None:
            return self._outages.after(self.zero, fault.at)
        if fault.after is None:
            return None
        name = fault.after.fault
        before = [planned.id for planned in self.plan.faults
                  if planned.id == name or planned.id.startswith(f"{name}.")]
        stage = fault.after.phase
        if not all((other, stage) in self._reached for other in before):
            return None
        last = max((self._reached[other, stage] for other in before), default=self.zero or 0.0)
        return self._outages.after(last, fault.after.wait)

    def _inject(self, planned: PlannedFault, due: float, now: float) -> Action:
        self._waiting.remove(planned)
        if planned.fault.reversible:
            self._active[planned.id] = (planned, now + (planned.fault.duration or 0))
        elif planned.fault.endless:
            self._endless.append(planned)
        return Inject(planned, due)

    def _note_ends(self, event: Event) -> None:
        """Note which faults are over: healed, or all their targets started again; and how far the recovery from them
        has come."""
        if isinstance(event, Healed):
            self._reached[event.fault, "over"] = event.t
        elif isinstance(event, Injected):
            fault = next((planned.fault for planned in self.plan.faults if planned.id == event.fault), None)
            self._reached[event.fault, "begun"] = event.t
            if event.fault in self._active:  # it lasts from when it is done: an injection may take its time
                planned, _ = self._active[event.fault]
                self._active[event.fault] = planned, event.t + (planned.fault.duration or 0)
            elif fault is not None and not fault.reversible:
                if fault.stops_target and fault.expected_duration() is not None:
                    self._respawning[event.fault] = set(fault.targets)
                else:
                    self._reached[event.fault, "over"] = event.t
        elif isinstance(event, Spawn):
            for name, targets in list(self._respawning.items()):
                targets.discard(event.target)
                if not targets:
                    del self._respawning[name]
                    self._reached[name, "over"] = event.t
        for planned in self.plan.faults:
            for stage in self._stages(planned, event):
                self._reached.setdefault((planned.id, stage), event.t)

    def _stages(self, planned: PlannedFault, event: Event) -> Iterator[Stage]:
        """Yield how far the recovery from a fault has come by this event. That a command's process is gone is the
        harness' word: only a line of another node's log tells that it is missed."""
        if (planned.id, "begun") not in self._reached:
            return
        targets, hub = planned.fault.targets, self.plan.trainer.coordinator
        if isinstance(event, Noticed) and event.node not in targets:
            yield "noticed"
        elif isinstance(event, Lost | Disconnected) and hub is not None:
            if (event.learner if isinstance(event, Lost) else hub) in targets:
                yield "noticed"
        elif isinstance(event, Spawn) and event.target in targets:
            yield "restarted"
        elif (isinstance(event, Step) and event.node in targets
              and {(planned.id, "restarted"), (planned.id, "over")} & self._reached.keys()):
            yield "first_round"

    def _abort(self, now: float) -> list[Action]:
        """The scenario's condition: undo everything, and see for as long as healing may take what becomes of it."""
        condition = self.plan.abort_when
        if condition is None or self.aborted:
            return []
        self.aborted = condition.met(self._training.loss, self._training.alive)
        if not self.aborted:
            return []
        healed = [Heal(planned) for planned in (*self.active(), *self._endless)]
        self._waiting.clear()
        self._active.clear()
        self._give_up_at = now + self.plan.checks.self_healing.within
        return [Abort(self.aborted), *healed]

    def _meets(self, planned: PlannedFault, event: Event) -> bool:
        when = planned.fault.when
        if when is None:
            return False
        if when.sights:
            return isinstance(event, Sighted) and event.fault == planned.id
        if not when.empty:
            return bool(when.met(self._training.loss, self._training.alive))
        if event.node != when.node:
            return False
        if when.failpoint:
            return isinstance(event, Failpoint) and (event.point, event.count) == (
                when.failpoint, when.count)
        return event.event == when.event and self._seen[event.node, event.event] == when.count
