"""What schedules for a trainer of commands are drawn from: the faults that its capabilities and the place allow, on
each of its nodes and links, and the moments at which they may come."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import get_args

from diloco_chaos.chaos.exploration import generate
from diloco_chaos.chaos.exploration.commands.lines import expression_of
from diloco_chaos.chaos.exploration.coverage import family
from diloco_chaos.chaos.exploration.generate import Chooser, Document, drawable, with_faults
from diloco_chaos.chaos.scenario.model import Scenario
from diloco_chaos.faults import FAULTS
from diloco_chaos.faults.triggers import Stage
from diloco_chaos.harness.places.base import Ability

STAGES: tuple[Stage, ...] = get_args(Stage)
WAITS = ("0s", "50ms", "100ms", "200ms", "400ms", "800ms")
_FIRST, _LAST, _STEPS = 0.15, 0.6, 20
"""Shares of the time without faults between which faults come, and how many moments that makes."""
_COUNTS = (1, 1, 1, 1, 2, 3)


@dataclass(frozen=True)
class Ground:
    """See the module."""

    scenario: Scenario
    """Without faults."""
    abilities: Set[Ability]
    """What the place can do."""
    aims: Sequence[tuple[str, str]]
    """(kind of fault, a target that it may hit)."""
    lasts_s: float = 10.0
    """How long the run without any fault took, from the steady state on."""
    rounds: int = 100
    """And how many rounds a worker told of meanwhile."""
    lines: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """And which kinds of lines its nodes wrote meanwhile."""
    largest_bytes: int = 0
    """And how large the largest file of their state was in the end."""

    @cached_property
    def families(self) -> Mapping[str, str]:
        """Return kind of fault -> its family."""
        return {kind: family(kind) for kind, _ in self.aims}

    @cached_property
    def alike(self) -> Mapping[str, int]:
        """Return kind of fault -> how many kinds its family has here."""
        return {kind: list(self.families.values()).count(name) for kind, name in self.families.items()}

    def fault(self, chooser: Chooser, aim: tuple[str, str], moment: Document) -> Document:
        """A fault of this kind on this target, at this moment."""
        kind, target = aim
        return {kind: target, **moment, **settings(chooser, self.scenario, kind, target)}

    def moment(self, chooser: Chooser, before: Sequence[Document]) -> Document:
        """A moment by chance: a time, a round, a line as without faults, a file, or a phase of an earlier recovery."""
        ways = ["at", "round", *["line"] * any(self.lines.values()), *["file"] * bool(self.scenario.trainer.keepers),
                *["after"] * bool(before)]
        way = chooser.pick(ways)
        if way == "after":
            return self.phase(chooser, chooser.pick(range(1, len(before) + 1)))
        if way == "file":
            return self.file(chooser, chooser.pick(self.scenario.trainer.keepers))
        if way == "line":
            node = chooser.pick([node for node, kinds in self.lines.items() if kinds])
            return self.line(chooser, node, chooser.pick(self.lines[node]))
        if way == "round":
            first, last = (max(1, round(share * self.rounds)) for share in (_FIRST, _LAST))
            return {"when": {"node": chooser.pick(self.scenario.cluster.starters), "event": "step",
                             "count": chooser.pick(range(first, last + 1))}}
        return {"at": chooser.pick(self.times)}

    @property
    def times(self) -> list[str]:
        """Return the times at which a fault may come."""
        first, last = (round(share * self.lasts_s * 1000) for share in (_FIRST, _LAST))
        return [f"{ms}ms" for ms in range(first, last + 1, max(1, (last - first) // _STEPS))]

    def line(self, chooser: Chooser, node: str, kind: str) -> Document:
        """As a node writes a line of this kind."""
        return {"when": {"node": node, "log": expression_of(kind), "count": chooser.pick(_COUNTS)}}

    def file(self, chooser: Chooser, node: str) -> Document:
        """As a file of a node's state appears, or has grown to half of the largest."""
        half_kb = self.largest_bytes // 2000
        grows = chooser.pick(({}, {"grows": f"{half_kb}kB"}) if half_kb else ({},))
        return {"when": {"node": node, "file": "**/*", "count": chooser.pick(_COUNTS), **grows}}

    def phase(self, chooser: Chooser, number: int) -> Document:
        """As the recovery from the fault of this number has come so far."""
        told = self.scenario.trainer.logs_whom_it_misses
        stages = [stage for stage in STAGES if stage != "noticed" or told]
        return {"after": {"fault": f"f{number}", "phase": chooser.pick(stages), "wait": chooser.pick(WAITS)}}

    def by_chance(self, chooser: Chooser, before: Sequence[Document]) -> Document:
        """One more fault after these."""
        return self.fault(chooser, chooser.pick(self.aims), self.moment(chooser, before))

    def possible(self, faults: Sequence[Document]) -> bool:
        """Return whether these faults can be together."""
        return with_faults(self.scenario, faults, self.abilities) is not None


def settings(chooser: Chooser, scenario: Scenario, kind: str, target: str) -> Document:
    """A kind's own settings; of calls on files those in the folder of the target's state."""
    drawn = generate.settings(chooser, scenario, kind)
    programs = scenario.trainer.programs()
    return drawn | ({"path": f"{programs[target].state}/*"} if "path" in drawn and target in programs else {})


class Simplest:
    """Implements `Chooser`: always the first."""

    def pick(self, options: Sequence[generate.T]) -> generate.T:
        """The first."""
        return options[0]


def aims(scenario: Scenario, abilities: Set[Ability], asked: Collection[str] | None) -> list[tuple[str, str]]:
    """Return all (kind of fault, target) that there can be. `asked`: kinds to choose from; None: all that can be drawn
    for this place, and of those that must be asked for (a device's) what the scenario's own faults are."""
    own = {fault.kind for fault in scenario.faults}
    known = drawable(abilities, own if asked is None else asked)
    bare = scenario.model_copy(update={"faults": ()})
    return [(kind, target) for kind in known if asked is None or kind in asked
            for target in _targets(bare, kind)
            if with_faults(bare, [{kind: target, "at": "1s", **settings(Simplest(), bare, kind, target)}],
                           abilities) is not None]


def _targets(scenario: Scenario, kind: str) -> Sequence[str]:
    """Return what a kind may hit: links one by one; of calls on files only nodes whose state is known."""
    if FAULTS[kind].on_links:
        return scenario.cluster.link_names
    if scenario.trainer.refusal(kind):
        return ()
    drawn = FAULTS[kind].drawn
    return scenario.trainer.keepers if drawn is not None and "path" in drawn.settings else scenario.nodes
