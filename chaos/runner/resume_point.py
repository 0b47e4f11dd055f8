"""Where a run that was ended resumes: what its tape tells of a global checkpoint, and of what lay after it. Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from diloco_chaos.chaos.evidence.accounting.token_accounting import Node
from diloco_chaos.chaos.scenario.model import COORDINATOR
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.record.tape.events import (
    CheckpointBegun,
    CheckpointComplete,
    CheckpointPart,
    Continued,
    Event,
    Exit,
    Healed,
    Injected,
    Injecting,
    Merge,
    Spawn,
    Step,
)
from diloco_chaos.harness.record.tape.reading import Tape

HARNESS = "harness"


@dataclass(frozen=True)
class LostSince:
    """The work that lay after a global checkpoint, and is done again or not at all."""

    steps: Mapping[Node, tuple[int, int]]
    """First and last inner step of each incarnation of a learner."""
    tokens: int
    versions: Mapping[int, tuple[int, int]]
    """First and last version of each fragment."""
    faults: Sequence[str]
    """Those that came after it, or were on: they come again, whole."""


@dataclass(frozen=True)
class ResumePoint:
    """One global checkpoint of one run."""

    plan: Plan
    tape: Tape
    """Of the run that was ended."""
    run: str
    checkpoint: int

    @cached_property
    def at(self) -> CheckpointBegun:
        """The syncer's part of it."""
        return next(event for event in self.tape.of(CheckpointBegun, node=COORDINATOR)
                    if event.checkpoint == self.checkpoint)

    @cached_property
    def parts(self) -> dict[Node, Event]:
        """Return the last event of every process that is part of the checkpoint."""
        of = [event for event in self.tape.of(CheckpointPart) if event.checkpoint == self.checkpoint]
        return {(event.node, event.inc): event for event in (self.at, *of)}

    @cached_property
    def over(self) -> set[str]:
        """Faults that had come and gone by then."""
        lasting = {planned.id for planned in self.plan.faults if planned.fault.reversible}
        injected, healed = ({event.fault for event in self.tape.of(kind, node=HARNESS) if event.t <= self.at.t}
                            for kind in (Injected, Healed))
        return (injected - lasting) | healed

    @property
    def events(self) -> list[Event]:
        """Everything up to the checkpoint, in the order of time. Who is no part of it (the harness, and who was gone or
        cut off) is cut at the moment at which the syncer was: what it knew by then was sent before."""
        return self._cut[0]

    @cached_property
    def _cut(self) -> tuple[list[Event], list[Event]]:
        """Return the events of the tape that are kept, and those that are not."""
        kept, left, done = list[Event](), list[Event](), set[Node]()
        for event in self.tape.events:
            node = (event.node, event.inc)
            gone = node in done or (node not in self.parts and event.t > self.at.t)
            again = isinstance(event, Continued) and event.checkpoint == self.checkpoint
            mine = event.node != HARNESS or getattr(event, "fault", None) in self.over | {None}  # else it comes again
            (kept if mine and not gone and not again else left).append(event)
            if not gone and (again or event == self.parts.get(node)):
                done.add(node)
        return kept, left

    @cached_property
    def begun(self) -> list[Event]:
        """The same, and that it goes on: the tape as which the run's next part begins."""
        crashed = [Exit(target=name, incarnation=number, status=-signal.SIGKILL, killed=True)
                   for name, number in self.ended]
        return [*self.events, *(event.stamped(self.time, HARNESS, 0) for event in (
            Continued(run=self.run, checkpoint=self.checkpoint), *crashed))]

    @cached_property
    def lost(self) -> LostSince:
        """Return what lay after the checkpoint."""
        after = self._cut[1]
        steps: dict[Node, tuple[int, int]] = {}
        versions: dict[int, tuple[int, int]] = {}
        for event in after:
            if isinstance(event, Step):
                node = (event.node, event.inc)
                steps[node] = (steps.get(node, (event.step, 0))[0], event.step)
            elif isinstance(event, Merge):
                versions[event.fragment] = (versions.get(event.fragment, (event.version, 0))[0],
                                            event.version)
        begun = {event.fault for event in self.tape.of(Injecting, node=HARNESS)}
        return LostSince(steps, sum(event.tokens for event in after if isinstance(event, Step)), versions,
                         [planned.describe() for planned in self.plan.faults
                          if planned.id not in self.over and planned.id in begun])

    @cached_property
    def time(self) -> float:
        """Return what the run's clock says when the run goes on, in seconds."""
        return max(event.t for event in self.events)

    @cached_property
    def _newest(self) -> dict[str, int]:
        """Newest incarnation of every node that had been started."""
        return dict(self._processes(Spawn))

    def _processes(self, kind: type[Spawn] | type[Exit]) -> list[Node]:
        """The processes that the harness recorded this of, in the order of time."""
        return [event.process for event in self.events if isinstance(event, kind) and event.node == HARNESS]

    @cached_property
    def ended(self) -> list[Node]:
        """Incarnations that were there and are no part of it: for them it was a crash; the syncer's, too."""
        go_on = {(name, number) for name, number in self.incarnations.items() if name != COORDINATOR}
        return sorted(set(self._processes(Spawn)).difference(self._processes(Exit), go_on))

    @cached_property
    def incarnations(self) -> dict[str, int]:
        """Return the nodes to start, each with its incarnation: a node that is part of the checkpoint as the same one,
        all others as the next one. Nodes that had left, were to stay dead, or were still to join are left out."""
        for_good = {target for planned in self.plan.faults if planned.id in self.over and planned.fault.stops_target
                    and planned.fault.expected_duration() is None for target in planned.fault.targets}
        return {name: number if name != COORDINATOR and (name, number) in self.parts else number + 1
                for name, number in self._newest.items() if name not in for_good}


def checkpoints_of(tape: Tape) -> list[int]:
    """Return the numbers of the cuts that all nodes have saved, the newest first; that which the run itself went on
    from is one."""
    complete, continued = tape.of(CheckpointComplete, node=COORDINATOR), tape.of(Continued, node=HARNESS)
    return sorted({event.checkpoint for event in complete} | {event.checkpoint for event in continued}, reverse=True)
