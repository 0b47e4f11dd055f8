"""Decides when each fault comes and goes. A state machine: events and the time in, actions out.

Time zero is the steady state: the moment at which the syncer has merged from every learner.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from chaos.plan import Plan, PlannedFault
from faults import Fault
from harness.tape import Event


@dataclass(frozen=True)
class Inject:
    """Do this fault now."""

    planned: PlannedFault


@dataclass(frozen=True)
class Heal:
    """Undo this fault now."""

    planned: PlannedFault


@dataclass(frozen=True)
class End:
    """The run is over."""

    outcome: Literal["finished", "deadline"]


Action = Inject | Heal | End


class Orchestrator:
    """Holds the plan's progress; driven by the wall clock or by virtual time."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.zero: float | None = None
        """When the steady state was reached."""
        self.ended = False
        self._waiting = list(plan.faults)
        self._active: dict[str, tuple[PlannedFault, float]] = {}
        self._seen: Counter[tuple[str, str]] = Counter()

    def on_event(self, event: Event) -> list[Action]:
        """An event came up on the tape."""
        if event.event == "steady" and self.zero is None:
            self.zero = event.t
        if event.event == "finished" and event.node == "syncer" and not self.ended:
            self.ended = True
            return [End("finished")]
        if self.zero is None or event.t < self.zero:
            return []
        self._seen[event.node, event.event] += 1
        return [self._inject(planned, event.t) for planned in list(self._waiting) if self._meets(planned.fault, event)]

    def on_time(self, now: float) -> list[Action]:
        """Time went on."""
        if self.ended:
            return []
        if now >= self.plan.deadline:
            self.ended = True
            return [End("deadline")]
        actions: list[Action] = []
        for planned, until in list(self._active.values()):
            if now >= until:
                del self._active[planned.id]
                actions.append(Heal(planned))
        if self.zero is not None:
            actions += [self._inject(planned, now) for planned in list(self._waiting)
                        if planned.fault.at is not None and now >= self.zero + planned.fault.at]
        return actions

    def active(self) -> list[PlannedFault]:
        """Faults that were injected and not healed yet."""
        return [planned for planned, _ in self._active.values()]

    def _inject(self, planned: PlannedFault, now: float) -> Action:
        self._waiting.remove(planned)
        if planned.fault.lasts:
            self._active[planned.id] = (planned, now + (planned.fault.duration or 0))
        return Inject(planned)

    def _meets(self, fault: Fault, event: Event) -> bool:
        when = fault.when
        if when is None or event.node != when.node:
            return False
        if when.hold:
            return event.event == "held" and event.fields.get("point") == when.hold
        return event.event == when.event and self._seen[event.node, event.event] == when.count
