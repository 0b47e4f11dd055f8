"""Where a run that was ended resumes: what its tape tells of a global checkpoint, and of what lay after it. Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from diloco_chaos.chaos.evidence.token_accounting import Node
from diloco_chaos.chaos.scenario.model import SYNCER
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.record.tape.event import Event
from diloco_chaos.harness.record.tape.reading import Tape

HARNESS = "harness"


@dataclass(frozen=True)
class Lost:
    """What lay after a global checkpoint, and is done again or not at all."""

    steps: Mapping[Node, tuple[int, int]]
    """First and last inner step of each incarnation of a learner."""
    tokens: int
    versions: Mapping[int, tuple[int, int]]
    """First and last version of each fragment."""
    faults: Sequence[str]
    """Those that came after it, or were on: they come again, whole."""


@dataclass(frozen=True)
class Origin:
    """One global checkpoint of one run."""

    plan: Plan
    tape: Tape
    """Of the run that was ended."""
    run: str
    checkpoint: int

    @cached_property
    def at(self) -> Event:
        """The syncer's part of it."""
        return next(event for event in self.tape.of("checkpoint_begun", node=SYNCER)
                    if event["checkpoint"] == self.checkpoint)

    @cached_property
    def parts(self) -> dict[Node, Event]:
        """The last event of everybody who is part of it."""
        of = [event for event in self.tape.of("checkpoint_part") if event["checkpoint"] == self.checkpoint]
        return {(event.node, event.incarnation): event for event in (self.at, *of)}

    @cached_property
    def over(self) -> set[str]:
        """Faults that had come and gone by then."""
        lasting = {planned.id for planned in self.plan.faults if planned.fault.reversible}
        told = {name: {event["fault"] for event in self.tape.of(name, node=HARNESS) if event.t <= self.at.t}
                for name in ("injected", "healed")}
        return (told["injected"] - lasting) | told["healed"]

    @property
    def events(self) -> list[Event]:
        """Everything up to the checkpoint, in the order of time. Who is no part of it (the harness, and who was gone or
        cut off) is cut at the moment at which the syncer was: what it knew by then was sent before."""
        return self._cut[0]

    @cached_property
    def _cut(self) -> tuple[list[Event], list[Event]]:
        """What is kept of the tape, and what is not."""
        kept, left, done = list[Event](), list[Event](), set[Node]()
        for event in self.tape.events:
            node = (event.node, event.incarnation)
            gone = node in done or (node not in self.parts and event.t > self.at.t)
            again = event.event == "continued" and event["checkpoint"] == self.checkpoint
            mine = event.node != HARNESS or event.fields.get("fault", "") in self.over | {""}  # else it comes again
            (kept if mine and not gone and not again else left).append(event)
            if not gone and (again or event == self.parts.get(node)):
                done.add(node)
        return kept, left

    @cached_property
    def begun(self) -> list[Event]:
        """The same, and that it goes on: the tape as which the run's next part begins."""
        def told(event: str, **fields: object) -> Event:
            return Event(self.time, HARNESS, 0, event, fields)
        crashed = [told("exit", target=name, incarnation=number, status=-signal.SIGKILL, killed=True)
                   for name, number in self.ended]
        return [*self.events, told("continued", run=self.run, checkpoint=self.checkpoint), *crashed]

    @cached_property
    def lost(self) -> Lost:
        """What lay after it."""
        after = self._cut[1]
        steps: dict[Node, tuple[int, int]] = {}
        versions: dict[int, tuple[int, int]] = {}
        for event in after:
            if event.event == "step":
                node = (event.node, event.incarnation)
                steps[node] = (steps.get(node, (event["step"], 0))[0], event["step"])
            elif event.event == "merge":
                versions[event["fragment"]] = (versions.get(event["fragment"], (event["version"], 0))[0],
                                               event["version"])
        return Lost(steps, sum(event["tokens"] for event in after if event.event == "step"), versions,
                    [planned.fault.describe() for planned in self.plan.faults if planned.id not in self.over and any(
                        event["fault"] == planned.id for event in self.tape.of("injecting", node=HARNESS))])

    @cached_property
    def time(self) -> float:
        """What the run's clock says when it goes on, in seconds."""
        return max(event.t for event in self.events)

    @cached_property
    def _newest(self) -> dict[str, int]:
        """Newest incarnation of every node that had been started."""
        return dict(self._told("spawn"))

    def _told(self, what: str) -> list[Node]:
        """Of whom the harness tells this, in the order of time."""
        return [(event["target"], event["incarnation"]) for event in self.events
                if event.event == what and event.node == HARNESS]

    @cached_property
    def ended(self) -> list[Node]:
        """Incarnations that were there and are no part of it: for them it was a crash; the syncer's, too."""
        go_on = {(name, number) for name, number in self.incarnations.items() if name != SYNCER}
        return sorted(set(self._told("spawn")).difference(self._told("exit"), go_on))

    @cached_property
    def incarnations(self) -> dict[str, int]:
        """What is started: who is part of it as the same incarnation, all others as the next one; not who had left, was
        to stay dead, or was still to join."""
        for_good = {target for planned in self.plan.faults if planned.id in self.over and planned.fault.stops_target
                    and planned.fault.expected_duration() is None for target in planned.fault.targets}
        return {name: number if name != SYNCER and (name, number) in self.parts else number + 1
                for name, number in self._newest.items() if name not in for_good}


def checkpoints_of(tape: Tape) -> list[int]:
    """Cuts that everybody has saved, the newest first; that which the run itself went on from is one."""
    return sorted({event["checkpoint"] for event in tape.of("checkpoint_complete", node=SYNCER)
                   + tape.of("continued", node=HARNESS)},
                  reverse=True)
