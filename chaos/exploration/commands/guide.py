"""What earlier runs of commands teach, and the schedules that are drawn with it: a fault more at a line, a file or a
phase that only a fault had brought about.

Which fault comes there, and on whom, is drawn by what has brought something new before: faults that this trainer does
not notice become rare, without ever being left out.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from diloco_chaos.chaos.exploration.commands.ground import STAGES, WAITS, Ground
from diloco_chaos.chaos.exploration.commands.novelty import line_trace, role
from diloco_chaos.chaos.exploration.corpus import TriedSchedule
from diloco_chaos.chaos.exploration.coverage import family
from diloco_chaos.chaos.exploration.generate import ByChance, Document
from diloco_chaos.faults import FAULTS
from diloco_chaos.harness.trainers.core.programs import ends

Aim = tuple[str, str]
"""(what a fault waited for, its family)."""
_NEW_FAMILY, _NEW_KIND, _FURTHER, _ALTERED = 0.5, 0.1, 0.95, 0.15
"""Of the schedules, which share is one fault of a family, or of a kind, that such a node was not hit by yet; up to
which share builds on an earlier schedule, and which share of those changes a fault of it instead of adding one."""
_AT_A_LINE, _AT_A_PHASE = 0.7, 0.95
"""Of faults that are added, which share waits for a line, and up to which share for a phase; others for a file."""
_NEAR, _TAKES_OUT, _TRIES = 3.0, 3.0, 50
"""How many times as likely a fault hits a node that has to do with what it waits for, and takes its target out, as a
recovery that fails anew needs; schedules that are drawn until one makes sense."""


@dataclass
class Entry:
    """A schedule that is the shortest to bring something about."""

    faults: Sequence[Document]
    lines: Sequence[tuple[str, str]]
    """Nodes and kinds of lines that they don't write without faults."""
    built_on: int = 0


@dataclass
class Lessons:
    """What the runs so far have taught."""

    healthy: frozenset[str] = frozenset()
    """What the run without any fault brought about."""
    seen: Counter[str] = field(default_factory=Counter)
    shortest: dict[str, Entry] = field(default_factory=dict)
    """What only faults bring about -> the shortest schedule that did, the first of these."""
    aimed: Counter[Aim] = field(default_factory=Counter)
    drawn: Counter[str] = field(default_factory=Counter)
    fruitful: Counter[str] = field(default_factory=Counter)
    """Kind of fault -> in how many schedules it was, and in how many of those that brought something new."""
    hit: set[tuple[str, str]] = field(default_factory=set)
    """(kind of fault, kind of node or link) that schedules had."""

    def begin(self, healthy: TriedSchedule) -> None:
        """Take in the run without any fault."""
        self.healthy = frozenset(healthy.traces)
        self.seen.update(healthy.traces)

    def learn(self, tried: TriedSchedule) -> None:
        """Take in a run."""
        new = [trace for trace in tried.traces if trace not in self.seen]
        self.seen.update(tried.traces)
        lines = [(node, kind) for node, kind in tried.lines if line_trace(node, kind) not in self.healthy]
        entry = Entry(tried.faults, lines)
        for trace in tried.traces:
            before = self.shortest.get(trace)
            if trace not in self.healthy and (before is None or len(tried.faults) < len(before.faults)):
                self.shortest[trace] = entry
        self.aimed.update([tried.aim] if tried.aim else ())
        kinds = {kind_of(fault) for fault in tried.faults}
        self.drawn.update(kinds)
        self.hit |= {(kind_of(fault), role(target_of(fault))) for fault in tried.faults}
        if new:
            self.fruitful.update(kinds)

    @property
    def entries(self) -> list[tuple[Entry, float]]:
        """Return the schedules to build on, each with how seldom what it brings about is."""
        seldom: dict[int, float] = {}
        for trace, entry in self.shortest.items():
            seldom[id(entry)] = seldom.get(id(entry), 0.0) + 1 / self.seen[trace]
        return [(entry, seldom[id(entry)]) for entry in {id(each): each for each in self.shortest.values()}.values()]

    def promise(self, kind: str) -> float:
        """Return how likely a fault of this kind brings something new, by what it did."""
        return (self.fruitful[kind] + 1) / (self.drawn[kind] + 2)


def draw(ground: Ground, chance: random.Random, most: int,
         lessons: Lessons | None) -> tuple[Aim | None, list[Document]]:
    """A schedule of up to so many faults, and what its last one aims at. `lessons`: None to leave all to chance."""
    chooser = ByChance(chance)
    for _ in range(_TRIES):
        way = chance.random()
        aim: Aim | None = None
        if lessons is None:
            faults = _by_chance(ground, chooser, chance.randint(1, most))
        elif untried := _untried(ground, lessons, way):
            faults = [ground.fault(chooser, chooser.pick(untried), ground.moment(chooser, ()))]
        elif way < _FURTHER and lessons.shortest:
            aim, faults = _further(ground, chance, most, lessons)
        else:
            faults = _by_chance(ground, chooser, chance.randint(1, most))
        if faults and ground.possible(faults):
            return aim, faults
    return None, []


def _untried(ground: Ground, lessons: Lessons, way: float) -> list[tuple[str, str]]:
    """Return the faults to choose from where one that was not tried is to be; empty where none is."""
    families = {(ground.families.get(kind, ""), where) for kind, where in lessons.hit}
    if (way < _NEW_FAMILY or not lessons.shortest) and (new := [aim for aim in ground.aims
                                      if (ground.families[aim[0]], role(aim[1])) not in families]):
        return new
    return [aim for aim in ground.aims if (aim[0], role(aim[1])) not in lessons.hit] if way < _NEW_KIND else []


def _by_chance(ground: Ground, chooser: ByChance, count: int) -> list[Document]:
    faults: list[Document] = []
    for _ in range(count):
        fault = ground.by_chance(chooser, faults)
        if ground.possible([*faults, fault]):
            faults.append(fault)
    return faults


def _further(ground: Ground, chance: random.Random, most: int,
             lessons: Lessons) -> tuple[Aim | None, list[Document]]:
    """Build on a schedule that brought something which is still seldom; on a short one rather than on a long one."""
    chooser, entries = ByChance(chance), lessons.entries
    [(entry, _)] = chance.choices(entries, [seldom / (1 + each.built_on) / len(each.faults) ** 3
                                            for each, seldom in entries])
    entry.built_on += 1
    if chance.random() < _ALTERED or most == 1:
        return None, _altered(ground, chooser, entry.faults)
    faults = list(entry.faults[:most - 1])
    awaited, moment, near = _spot(ground, chance, entry, faults, lessons)
    targets = {*near, *(node for fault in faults for node in ends(target_of(fault)))}

    def weight(kind: str, target: str) -> float:
        often = 1 + lessons.aimed[awaited, ground.families[kind]]
        out = _TAKES_OUT if FAULTS[kind].stops_target or FAULTS[kind].halts_target or FAULTS[kind].cuts_off else 1.0
        near_it = _NEAR if targets & set(ends(target)) else 1.0
        return lessons.promise(kind) / often * near_it * out / ground.alike[kind]
    [aim] = chance.choices(ground.aims, [weight(*aim) for aim in ground.aims])
    return (awaited, family(aim[0])), [*faults, ground.fault(chooser, aim, moment)]


def _spot(ground: Ground, chance: random.Random, entry: Entry, faults: Sequence[Document],
          lessons: Lessons) -> tuple[str, Document, Sequence[str]]:
    """What was waited for least often of all that this schedule brings about: in words, the moment, and the nodes that
    have to do with it."""
    chooser, way = ByChance(chance), chance.random()
    last, told = len(faults), ground.scenario.trainer.logs_whom_it_misses
    lines: list[tuple[str, Document, Sequence[str]]] = [
        (line_trace(node, kind), ground.line(chooser, node, kind), [node]) for node, kind in entry.lines]
    phases: list[tuple[str, Document, Sequence[str]]] = [
        (f"{stage} of {family(kind_of(faults[-1]))}",
         {"after": {"fault": f"f{last}", "phase": stage, "wait": chooser.pick(WAITS)}}, [])
        for stage in STAGES if stage != "noticed" or told]
    files: list[tuple[str, Document, Sequence[str]]] = [
        (f"file of {role(node)}", ground.file(chooser, node), [node])
        for node in ends(target_of(faults[-1])) if node in ground.scenario.trainer.keepers]
    spots = (lines if way < _AT_A_LINE else phases if way < _AT_A_PHASE else files) or phases
    often = Counter[str]()
    for (awaited, _), count in lessons.aimed.items():
        often[awaited] += count
    least = min(often[awaited] for awaited, _, _ in spots)
    return chooser.pick([spot for spot in spots if often[spot[0]] == least])


def _altered(ground: Ground, chooser: ByChance, faults: Sequence[Document]) -> list[Document]:
    """Return the schedule with one fault at another moment, or with other settings, or on another target."""
    place = chooser.pick(range(len(faults)))
    fault = faults[place]
    kind, target = kind_of(fault), target_of(fault)
    moment = {key: value for key, value in fault.items() if key in ("at", "when", "after")}
    other = chooser.pick([aim for aim in ground.aims if aim[0] == kind] or [(kind, target)])
    changed = chooser.pick((ground.fault(chooser, (kind, target), ground.moment(chooser, faults[:place])),
                            ground.fault(chooser, (kind, target), moment), ground.fault(chooser, other, moment)))
    return [*faults[:place], changed, *faults[place + 1:]]


def kind_of(fault: Document) -> str:
    """Return the kind of a fault as a scenario has it."""
    return next(name for name in fault if name in FAULTS)


def target_of(fault: Document) -> str:
    """Return its target."""
    return str(fault[kind_of(fault)])
