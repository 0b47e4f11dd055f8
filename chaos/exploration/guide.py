"""Where exploration looks first: at moments of the protocol that no fault has hit yet, at faults that follow each
other, and near schedules that brought something about for the first time."""

from __future__ import annotations

import random
from collections.abc import Sequence, Set
from dataclasses import dataclass

from diloco_chaos.chaos.exploration.coverage import Pair, family, second_of
from diloco_chaos.chaos.exploration.generate import (
    VIRTUAL,
    ByChance,
    Document,
    document,
    drawn_role,
    fits,
    node_of,
    sensible,
    times,
    trigger,
)
from diloco_chaos.chaos.exploration.generate import settings as drawn_settings
from diloco_chaos.chaos.scenario.model import COORDINATOR, Scenario
from diloco_chaos.faults import FAULTS
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.trainers.api.trainer import SELDOM

_ALONE, _IN_A_ROW, _AGAIN = 0.25, 0.35, 0.3
"""Shares of the schedules that aim at one fault in a state, at two faults that follow each other, and that change one
which was the first to hit something; the others are drawn by chance."""
_DOWN = ("kill", "terminate", "power_loss")
_SAVING = ("merge.before_commit", "checkpoint.before_rename", "checkpoint.between")
_BROUGHT_ABOUT = ("starting", "resumed", "greeting")
"""States that only another fault brings about."""
_WHEN = ("at", "when", "after")
_SOON = ("0s", "50ms", "200ms", "500ms", "700ms", "1s", "1500ms", "2s")
_ADDED = 2
"""Faults that chance adds to those that aim, at the most: others get in their way."""


@dataclass(frozen=True)
class Knowledge:
    """The work that earlier schedules leave to be done."""

    never: Sequence[Pair] = ()
    """Pairs of a fault and a state that were not hit yet."""
    rows: Sequence[Pair] = ()
    """Faults that follow each other, those that were aimed at least often."""
    first: Sequence[tuple[Sequence[Document], float]] = ()
    """Schedules that were the first to bring something about, and how seldom that is."""


def draw(scenario: Scenario, chance: random.Random, kinds: Sequence[str], most: int,
         known: Knowledge, abilities: Set[Ability] = VIRTUAL) -> tuple[Pair | None, list[Document]]:
    """A schedule of up to so many faults for a place with these abilities, and what of `rows` it aims at."""
    chooser = ByChance(chance)
    faults: list[Document] = []
    aim: Pair | None = None
    way = chance.random()
    if way < _ALONE and known.never:
        kind, where = chooser.pick(known.never)
        faults = sensible(scenario, _aimed(scenario, chooser, kind, where, kinds), abilities)
    elif _ALONE <= way < _ALONE + _IN_A_ROW and known.rows:
        aim = chooser.pick(known.rows)
        faults = sensible(scenario, _in_a_row(scenario, chooser, aim, kinds), abilities)
    elif way >= 1 - _AGAIN and known.first:
        [(first, _)] = chance.choices(known.first, [seldom for _, seldom in known.first])
        faults = sensible(scenario, _changed(scenario, chooser, first, kinds), abilities)
    more = chance.randint(0, _ADDED) if faults else chance.randint(1, most)
    for _ in range(min(more, most - len(faults))):
        faults = sensible(scenario, [*faults, document(chooser, scenario, kinds, faults)], abilities)
    return aim, faults[:most]


def _in_a_row(scenario: Scenario, chooser: ByChance, sequence: Pair, kinds: Sequence[str]) -> list[Document]:
    """A fault of the first family, and then one of the second that is likely to hit its target in this state."""
    after, where = second_of(sequence)
    first, second = (chooser.pick([kind for kind in kinds if family(kind) == name]) for name in (sequence[0], after))
    state = where.partition(" ")[2]
    if state in _BROUGHT_ABOUT:
        return _aimed(scenario, chooser, second, where, kinds, first)
    before = document(chooser, scenario, [first], ())
    [*_, then] = _aimed(scenario, chooser, second, where, kinds)
    if "at" in then or chooser.pick((True, False)):
        then = _without_moment(then) | {"after": {"fault": "f1", "wait": chooser.pick(_SOON)}}
    return [before, then]


def _changed(scenario: Scenario, chooser: ByChance, faults: Sequence[Document],
             kinds: Sequence[str]) -> list[Document]:
    """Return a schedule that differs in one fault: it has one more, soon after one of its own, or one of its own gets
    other settings or another moment."""
    if chooser.pick(("added", "changed")) == "added":
        return [*faults, _soon(scenario, chooser, faults, kinds)]
    place = chooser.pick(range(len(faults)))
    fault = faults[place]
    kind = _kind(fault)
    moved: Document = {kind: fault[kind], **trigger(chooser, scenario, kind, str(fault[kind]), faults[:place]),
                       **drawn_settings(chooser, scenario, kind)}
    if chooser.pick(("there", "elsewhere")) == "there":
        moved = _without_moment(moved) | {name: value for name, value in fault.items() if name in _WHEN}
    return [*faults[:place], moved, *faults[place + 1:]]


def _soon(scenario: Scenario, chooser: ByChance, faults: Sequence[Document], kinds: Sequence[str]) -> Document:
    """Draw a fault of any family that comes soon after one of these; half of the time it hits the same node."""
    families = sorted({family(kind) for kind in kinds})
    chosen = chooser.pick(families)
    fault = document(chooser, scenario, [kind for kind in kinds if family(kind) == chosen], faults)
    kind, place = _kind(fault), chooser.pick(range(len(faults)))
    target = str(faults[place][_kind(faults[place])])
    if fits(scenario, kind, target) and chooser.pick((True, False)):
        fault = fault | {kind: target}
    near = node_of(scenario, target)
    seldom: list[Document] = [
        {"when": {"node": node, "event": event, "count": count}}
        for node in (COORDINATOR, near) for event, counts in scenario.trainer.drawn_events(
            scenario.trainer.role_of(node)).items() if counts == SELDOM for count in counts]
    then: Document = {"after": {"fault": f"f{place + 1}", "wait": chooser.pick(_SOON)}}
    if seldom and chooser.pick(("seldom", "soon")) == "seldom":
        then = chooser.pick(seldom)
    return _without_moment(fault) | then


def _without_moment(fault: Document) -> Document:
    """Return all of a fault but when it comes."""
    return {name: value for name, value in fault.items() if name not in _WHEN}


def _kind(fault: Document) -> str:
    return next(name for name in fault if name in FAULTS)


def _aimed(scenario: Scenario, chooser: ByChance, kind: str, where: str, kinds: Sequence[str],
           first: str = "") -> list[Document]:
    """Return faults the last of which is likely to hit its target in this state. `first`: the kind of fault that brings
    the state about, where one is needed."""
    role, _, state = where.partition(" ")
    learners = scenario.cluster.starters
    target = COORDINATOR if role == COORDINATOR else chooser.pick(learners)
    count = chooser.pick(range(20, 101, 5))
    settings = drawn_settings(chooser, scenario, kind)
    waits = chooser.pick(("0s", "100ms", "300ms", "700ms", "1s", "1300ms"))
    holds: dict[str, str] = {"uploading": "upload.half", "committed": "commit.before_broadcast",
                             "saving": chooser.pick(_SAVING)}
    first = first or chooser.pick([name for name in _DOWN if name in kinds] or list(_DOWN[:1]))
    if state == "starting":
        return [_begins(scenario, chooser, first, target),
                {kind: target, "after": {"fault": "f1", "wait": waits}, **settings}]
    if state == "resumed":
        return [_begins(scenario, chooser, first, target),
                {kind: target, "when": {"node": COORDINATOR, "event": "resumed", "count": 1}, **settings}
                if chooser.pick((True, False)) else {kind: target, "after": {"fault": "f1", "wait": waits}, **settings}]
    if state == "greeting":
        return [_begins(scenario, chooser, first, chooser.pick(learners)),
                {kind: target, "when": {"node": COORDINATOR, "event": "hello", "count": 1}, **settings}]
    if state == "disconnected":
        at = chooser.pick(range(2000, 4000, 100))
        later = chooser.pick(range(100, 1800, 100))
        return [{"partition": target, "at": f"{at}ms", "for": "2s"},
                {kind: target, "at": f"{at + later}ms", **settings}]
    when: Document
    if state in holds:
        when = {"when": {"node": target, "failpoint": holds[state], "count": count}}
    elif state == "answered":
        when = {"when": {"node": target, "event": chooser.pick(("upload", "outer_gradient")), "count": count}}
    elif state in ("collecting", "grace"):
        event = "outer_gradient" if state == "collecting" else "upload"
        when = {"when": {"node": chooser.pick(learners), "event": event, "count": count}}
    else:
        when = {"at": chooser.pick(times(scenario))}
    return [{kind: target, **when, **settings}]


def _begins(scenario: Scenario, chooser: ByChance, kind: str, target: str) -> Document:
    """A fault that comes first; on its own kind of target, should it have another. One that holds its target comes at a
    moment of the protocol as often as at a time."""
    target = target if fits(scenario, kind, target) else (
        COORDINATOR if drawn_role(kind) == COORDINATOR else chooser.pick(scenario.cluster.starters))
    how = trigger(chooser, scenario, kind, target, ()) if chooser.pick((True, False)) else {
        "at": chooser.pick(times(scenario))}
    return {kind: target, **how, **drawn_settings(chooser, scenario, kind)}
