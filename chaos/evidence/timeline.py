"""What every node was doing at every moment, from the tape: the lanes of the live view and of the report's timeline."""

from __future__ import annotations

from dataclasses import dataclass, field

from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.record.tape.events import (
    Event,
    Exit,
    Failpoint,
    Finished,
    Healed,
    Injected,
    Injecting,
    Merge,
    Reset,
    Spawn,
    Start,
    Step,
)
from diloco_chaos.harness.record.tape.reading import Tape


@dataclass(frozen=True)
class StateLook:
    """The look of a state when it is drawn: a character that tells it without colour, and a colour."""

    mark: str
    colour: str


LOOKS = {
    "starting": StateLook("·", "bright_black"),
    "training": StateLook("━", "green"),
    "merging": StateLook("≡", "cyan"),
    "serving": StateLook("≡", "cyan"),
    "slow": StateLook("╌", "bright_cyan"),
    "far": StateLook("~", "blue"),
    "paused": StateLook("=", "yellow"),
    "partitioned": StateLook("/", "magenta"),
    "killed": StateLook("x", "red"),
    "healing": StateLook("+", "bright_yellow"),
    "done": StateLook(" ", "bright_black"),
}
DRAWN = (Spawn, Start, Exit, Merge, Step, Failpoint, Finished, Injecting, Injected, Reset, Healed)
"""Events that change anything here."""
_PRIORITY = ("paused", "partitioned", "slow", "far")


@dataclass
class Lane:
    """One node's states, each with the time at which it began."""

    changes: list[tuple[float, str]] = field(default_factory=lambda: [(0.0, "starting")])
    base: str = "starting"
    overlays: set[str] = field(default_factory=set)

    def at(self, t: float) -> str:
        """The state at a time."""
        state = self.changes[0][1]
        for began, name in self.changes:
            if began > t:
                break
            state = name
        return state

    @property
    def now(self) -> str:
        """The newest state."""
        return self.changes[-1][1]

    def update(self, t: float) -> None:
        """Write down what follows from base and overlays."""
        state = self.base
        if state in ("training", "merging", "serving", "healing"):
            state = next((name for name in _PRIORITY if name in self.overlays), state)
        if state != self.now:
            self.changes.append((t, state))


class Lanes:
    """All nodes' lanes, and the moments at which faults came and went."""

    def __init__(self, plan: Plan) -> None:
        self.nodes = {name: Lane() for name in plan.cluster.all_nodes}
        self.marks: list[tuple[float, str, str]] = []
        """(time, fault id, what it does)."""
        self._coordinator = plan.trainer.coordinator
        self._newest: dict[str, int] = {}  # node -> its newest incarnation: an older one may end beside it
        self._kinds = {planned.id: planned.fault for planned in plan.faults}
        self._targets: dict[str, tuple[str, ...]] = {planned.id: planned.fault.targets for planned in plan.faults}

    @classmethod
    def of(cls, plan: Plan, tape: Tape) -> Lanes:
        """Return the lanes of a whole run."""
        lanes = cls(plan)
        first = [series[0] for series in tape.series(Step).values()]  # the others change nothing
        others = tape.of(*(kind for kind in DRAWN if kind is not Step))
        for event in sorted([*others, *first], key=lambda event: event.t):
            lanes.on_event(event)
        return lanes

    def on_event(self, event: Event) -> None:
        """Take in one event; they may come from all nodes, roughly in the order of time. What is about no node of the
        plan is passed over."""
        match event:
            case Spawn():
                self._newest[event.target] = event.incarnation
                self._set(event.target, event.t, "healing" if event.incarnation else "starting")
            case Exit() if event.target:
                if self._newest.get(event.target) == event.incarnation:
                    self._set(event.target, event.t, "killed" if event.killed else "done")
            case Start() if event.role == "service":
                self._set(event.node, event.t, "serving")
            case Merge():
                if self._base(event.node) in ("starting", "healing"):
                    self._set(event.node, event.t, "merging")
                if any(lane.base in ("starting", "healing") for lane in self.nodes.values()):
                    self._merged(event)
            case Step() if self._base(event.node) == "starting":
                self._set(event.node, event.t, "training")
            case Failpoint() if event.node in self.nodes:
                self.nodes[event.node].overlays.add("paused")
                self.nodes[event.node].update(event.t)
            case Finished():
                self._set(event.node, event.t, "done")
            case Injecting():
                self.marks.append((event.t, event.fault, event.description))
                self._overlay(event, add=True)
            case Injected():
                self._freed(event)
            case Reset() if self._base(event.node) == "training":
                self._set(event.node, event.t, "healing")  # until it is merged from again
            case Healed():
                self._overlay(event, add=False)
            case _:
                pass

    def _merged(self, merge: Merge) -> None:
        """Who was merged from trains again."""
        for part in merge.contributions:
            if self._base(part.learner) in ("starting", "healing"):
                self._set(part.learner, merge.t, "training")

    def _base(self, node: object) -> str:
        return self.nodes[node].base if isinstance(node, str) and node in self.nodes else ""

    def _set(self, node: object, t: float, base: str) -> None:
        if not isinstance(node, str) or node not in self.nodes:
            return
        if base in ("killed", "healing"):
            self.nodes[node].overlays.discard("paused")
        self.nodes[node].base = base
        self.nodes[node].update(t)

    def _overlay(self, event: Injecting | Healed, add: bool) -> None:
        fault = self._kinds.get(event.fault)
        if fault is None or not fault.shown_as:
            return
        name = fault.shown_as
        learners = [name for name in self.nodes if name != self._coordinator]
        for target in fault.affected_nodes(learners):
            lane = self.nodes[target]
            (lane.overlays.add if add else lane.overlays.discard)(name)
            if not add and name == "partitioned" and lane.base == "training":
                lane.base = "healing"  # until it is merged from again
            lane.update(event.t)

    def _freed(self, event: Injected) -> None:
        """Who held for a fault that neither ends it nor lasts goes on."""
        fault = self._kinds.get(event.fault)
        if fault is not None and fault.frees and not fault.stops_target and not fault.reversible:
            for target in fault.targets:
                self.nodes[target].overlays.discard("paused")
                self.nodes[target].update(event.t)

    def row(self, node: str, start: float, end: float, width: int) -> list[str]:
        """The states of a node in `width` equal slices of [start, end); a short kill is never lost between two."""
        lane, slice_ = self.nodes[node], (end - start) / max(1, width)
        row = []
        for column in range(width):
            left = start + column * slice_
            inside = [name for began, name in lane.changes if left <= began < left + slice_]
            row.append("killed" if "killed" in inside else lane.at(left + slice_ / 2))
        return row
