"""Where exploration looks first: at moments of the protocol that no fault has hit yet."""

from __future__ import annotations

import random
from collections.abc import Sequence

from chaos.exploration.coverage import Pair
from chaos.exploration.generate import ByChance, Document, document, sensible, times
from chaos.exploration.generate import settings as drawn_settings
from chaos.scenario.model import SYNCER, Scenario

_SHARE = 0.7
"""Of the schedules that aim at something, as long as there is something to aim at."""
_DOWN = ("kill", "terminate", "power_loss")


def draw(scenario: Scenario, chance: random.Random, kinds: Sequence[str], most: int,
         never: Sequence[Pair]) -> list[Document]:
    """A schedule of up to so many faults. `never`: pairs that were not hit yet; one of them is aimed at."""
    chooser = ByChance(chance)
    faults: list[Document] = []
    if never and chance.random() < _SHARE:
        kind, where = never[chance.randrange(len(never))]
        faults = sensible(scenario, _aimed(scenario, chooser, kind, where, kinds))
    for _ in range(chance.randint(1, most) - len(faults)):
        faults = sensible(scenario, [*faults, document(chooser, scenario, kinds, faults)])
    return faults[:most]


def _aimed(scenario: Scenario, chooser: ByChance, kind: str, where: str, kinds: Sequence[str]) -> list[Document]:
    """Faults the last of which is likely to hit its target in this state."""
    role, _, state = where.partition(" ")
    learners = scenario.cluster.starters
    target = SYNCER if role == SYNCER else chooser.pick(learners)
    count = chooser.pick(range(20, 101, 5))
    settings = drawn_settings(chooser, kind)
    waits = chooser.pick(("0s", "100ms", "300ms", "700ms", "1s", "1300ms"))
    holds: dict[str, str] = {"uploading": "upload.half", "committed": "commit.before_broadcast",
                             "saving": chooser.pick(("merge.before_commit", "checkpoint.before_rename"))}
    if state == "starting":
        first = chooser.pick([one for one in _DOWN if one in kinds] or list(_DOWN[:1]))
        return [{first: target, "at": chooser.pick(times(scenario)), "restart_after": "200ms"},
                {kind: target, "after": {"fault": "f1", "wait": waits}, **settings}]
    if state == "disconnected":
        at = chooser.pick(range(2000, 4000, 100))
        later = chooser.pick(range(100, 1800, 100))
        return [{"partition": target, "at": f"{at}ms", "for": "2s"},
                {kind: target, "at": f"{at + later}ms", **settings}]
    trigger: Document
    if state in holds:
        trigger = {"when": {"node": target, "failpoint": holds[state], "count": count}}
    elif state == "answered":
        trigger = {"when": {"node": target, "event": chooser.pick(("upload", "outer_gradient")), "count": count}}
    elif state in ("collecting", "grace"):
        event = "outer_gradient" if state == "collecting" else "upload"
        trigger = {"when": {"node": chooser.pick(learners), "event": event, "count": count}}
    else:
        trigger = {"at": chooser.pick(times(scenario))}
    return [{kind: target, **trigger, **settings}]
