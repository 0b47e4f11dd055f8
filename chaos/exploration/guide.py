"""Where exploration looks first: at moments of the protocol that no fault has hit yet."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from chaos.exploration.coverage import Pair, family, second_of
from chaos.exploration.generate import ByChance, Document, document, sensible, times, trigger
from chaos.exploration.generate import settings as drawn_settings
from chaos.scenario.model import SYNCER, Scenario
from faults import FAULTS
from harness.trainer_api.trainer import role_of

_ALONE, _IN_A_ROW, _AGAIN = 0.25, 0.45, 0.15
"""Shares of the schedules that aim at one fault in a state, at two faults that follow each other, and that change one
which was the first to hit something; the others are drawn by chance."""
_DOWN = ("kill", "terminate", "power_loss")
_SAVING = ("merge.before_commit", "checkpoint.before_rename", "checkpoint.between")
_BROUGHT_ABOUT = ("starting", "resumed", "greeting")
"""States that only another fault brings about."""
_SOON = ("0s", "50ms", "200ms", "500ms", "700ms", "1s", "1500ms", "2s")
_ADDED = 2
"""Faults that chance adds to those that aim, at the most: others get in their way."""


@dataclass(frozen=True)
class Knowledge:
    """What earlier schedules leave to be done."""

    never: Sequence[Pair] = ()
    """Pairs of a fault and a state that were not hit yet."""
    never_in_a_row: Sequence[Pair] = ()
    """The same of faults that follow each other."""
    first: Sequence[Sequence[Document]] = ()
    """Schedules that were the first to hit something."""


def draw(scenario: Scenario, chance: random.Random, kinds: Sequence[str], most: int,
         known: Knowledge) -> list[Document]:
    """A schedule of up to so many faults."""
    chooser = ByChance(chance)
    faults: list[Document] = []
    way = chance.random()
    if way < _ALONE and known.never:
        kind, where = chooser.pick(known.never)
        faults = sensible(scenario, _aimed(scenario, chooser, kind, where, kinds))
    elif _ALONE <= way < _ALONE + _IN_A_ROW and known.never_in_a_row:
        faults = sensible(scenario, _in_a_row(scenario, chooser, chooser.pick(known.never_in_a_row), kinds))
    elif way >= 1 - _AGAIN and known.first:
        faults = sensible(scenario, _changed(scenario, chooser, chooser.pick(known.first), kinds))
    more = chance.randint(0, _ADDED) if faults else chance.randint(1, most)
    for _ in range(min(more, most - len(faults))):
        faults = sensible(scenario, [*faults, document(chooser, scenario, kinds, faults)])
    return faults[:most]


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
        then = {name: value for name, value in then.items() if name not in ("at", "when")} | {
            "after": {"fault": "f1", "wait": chooser.pick(_SOON)}}
    return [before, then]


def _changed(scenario: Scenario, chooser: ByChance, faults: Sequence[Document],
             kinds: Sequence[str]) -> list[Document]:
    """Another schedule, much like this one: one of its faults comes at another moment, or one more comes after it."""
    place = chooser.pick(range(len(faults) + 1))
    if place == len(faults):
        target = chooser.pick(faults)
        again = document(chooser, scenario, kinds, faults)
        moved = {name: value for name, value in again.items() if name not in ("at", "when", "after")}
        return [*faults, moved | {"after": {"fault": f"f{faults.index(target) + 1}", "wait": chooser.pick(_SOON)}}]
    one = faults[place]
    kind = next(name for name in one if name in FAULTS)
    moved = {name: value for name, value in one.items() if name not in ("at", "when", "after")}
    moved |= trigger(chooser, scenario, kind, str(one[kind]), faults[:place]) | drawn_settings(chooser, kind)
    return [*faults[:place], moved, *faults[place + 1:]]


def _aimed(scenario: Scenario, chooser: ByChance, kind: str, where: str, kinds: Sequence[str],
           first: str = "") -> list[Document]:
    """Faults the last of which is likely to hit its target in this state; `first`: the kind that brings it about, where
    that takes one."""
    role, _, state = where.partition(" ")
    learners = scenario.cluster.starters
    target = SYNCER if role == SYNCER else chooser.pick(learners)
    count = chooser.pick(range(20, 101, 5))
    settings = drawn_settings(chooser, kind)
    waits = chooser.pick(("0s", "100ms", "300ms", "700ms", "1s", "1300ms"))
    holds: dict[str, str] = {"uploading": "upload.half", "committed": "commit.before_broadcast",
                             "saving": chooser.pick(_SAVING)}
    first = first or chooser.pick([one for one in _DOWN if one in kinds] or list(_DOWN[:1]))
    if state == "starting":
        return [_begins(scenario, chooser, first, target),
                {kind: target, "after": {"fault": "f1", "wait": waits}, **settings}]
    if state == "resumed":
        return [_begins(scenario, chooser, first, target),
                {kind: target, "when": {"node": SYNCER, "event": "resumed", "count": 1}, **settings}
                if chooser.pick((True, False)) else {kind: target, "after": {"fault": "f1", "wait": waits}, **settings}]
    if state == "greeting":
        return [_begins(scenario, chooser, first, chooser.pick(learners)),
                {kind: target, "when": {"node": SYNCER, "event": "hello", "count": 1}, **settings}]
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
    target = target if FAULTS[kind].target_role in ("any", role_of(target)) else (
        SYNCER if FAULTS[kind].target_role == SYNCER else chooser.pick(scenario.cluster.starters))
    how = trigger(chooser, scenario, kind, target, ()) if chooser.pick((True, False)) else {
        "at": chooser.pick(times(scenario))}
    return {kind: target, **how, **drawn_settings(chooser, kind)}
