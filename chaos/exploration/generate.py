"""Random fault schedules that make sense: each fault finds its target there, and what it breaks comes back.

One description of every kind of fault serves chance (explorations) and Hypothesis (property tests): whoever chooses is
asked for a choice at a time, the simplest first.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence, Set
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from pydantic import ValidationError

from diloco_chaos.chaos.checks.liveness import window_s
from diloco_chaos.chaos.scenario.bounds import LossParity
from diloco_chaos.chaos.scenario.model import COORDINATOR, DOMAIN, Scenario, domains_in, joiners, members_of
from diloco_chaos.chaos.scenario.plan import Plan, freeze
from diloco_chaos.chaos.scenario.problems import Numbers
from diloco_chaos.chaos.scenario.salvage import Rest
from diloco_chaos.chaos.scenario.validation import validate_semantics
from diloco_chaos.faults import FAULTS, Drawn
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.places.simulated.place import Simulated
from diloco_chaos.harness.trainers.api.trainer import OFTEN
from diloco_chaos.harness.trainers.core.programs import ends

T = TypeVar("T")
Document = dict[str, Any]
"""A fault as a scenario has it: `{"kill": "learner-1", "at": "5s", "restart_after": "2s"}`."""
VIRTUAL = Simulated.can
"""What can be drawn, where nothing else is said: what virtual time has."""
_MOMENT_S, _LASTS_S = 0.2, 4.0
"""How long after what `self_healing` looks at first a fault may come, and how long most drawn faults last."""
_MORE_THAN_FAULT_FREE, _MORE_THAN_SYNCHRONOUS = 9.0, 9.0
"""By how much more, as a share, a run of the quadratic model may end above its floor. Over 180 schedules it was 13%
above the fault-free run at the most, and 143% above the synchronous one (docs/simulation.md)."""


class Chooser(Protocol):
    """Chance, or Hypothesis."""

    def pick(self, options: Sequence[T]) -> T:
        """One of them; the simplest stands first."""
        ...


class ByChance:
    """Implements `Chooser`."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def pick(self, options: Sequence[T]) -> T:
        """Each as likely."""
        return options[self._chance.randrange(len(options))]


def drawable(abilities: Set[Ability] = VIRTUAL, asked: Collection[str] = ()) -> dict[str, Drawn]:
    """Return the kinds of faults that can be drawn for a place with these abilities, the simplest first, with how their
    settings are drawn. `asked`: those that are asked for, of the kinds that must be."""
    drawn_kinds = {kind: fault.drawn for kind, fault in FAULTS.items()
                   if fault.drawn is not None and fault.needs <= abilities
                   and (fault.drawn.simulated or abilities != VIRTUAL)
                   and (not fault.drawn.asked or kind in asked)}
    return dict(sorted(drawn_kinds.items(), key=lambda item: (item[1].order, item[0])))


def settings(chooser: Chooser, scenario: Scenario, kind: str) -> Document:
    """A kind's own settings."""
    drawn = _drawn(kind)
    chosen = {name: chooser.pick(values) for name, values in drawn.settings.items()}
    spare = {drawn.spare: scenario.cluster.names[-1]} if drawn.spare else {}
    return chosen | spare | dict(chooser.pick(drawn.ways) if drawn.ways else {})


def _drawn(kind: str) -> Drawn:
    drawn = FAULTS[kind].drawn
    assert drawn is not None, "chosen from those that can be drawn"
    return drawn


def held_for() -> frozenset[str]:
    """Kinds that a node can be held at a point of the protocol for."""
    return frozenset(kind for kind, drawn in drawable().items() if drawn.at_failpoints)


def drawn_role(kind: str) -> str:
    """Return which nodes a kind is drawn for: `any`, `learner` or `syncer`."""
    return _drawn(kind).role or FAULTS[kind].target_role


def fits(scenario: Scenario, kind: str, target: str) -> bool:
    """Return whether a kind is drawn for a target: a node of its role, or a domain all of whose nodes are."""
    if not target.startswith(DOMAIN):
        return drawn_role(kind) in ("any", scenario.trainer.role_of(target))
    members = domains_in(target, members_of(scenario.domains, scenario.cluster), FAULTS[kind].on_links).get(target, ())
    return bool(members) and not _drawn(kind).spare and all(
        drawn_role(kind) in ("any", scenario.trainer.role_of(node)) for member in members for node in ends(member))


def node_of(scenario: Scenario, target: str) -> str:
    """Return a node that a target is, or has: of a domain the first."""
    members = members_of(scenario.domains, scenario.cluster).get(target.removeprefix(DOMAIN), ())
    return ends(members[0])[0] if target.startswith(DOMAIN) and members else target


def document(chooser: Chooser, scenario: Scenario, kinds: Sequence[str], before: Sequence[Document]) -> Document:
    """One more fault, after these."""
    kind = chooser.pick(kinds)
    learners = scenario.cluster.starters
    nodes = {"any": (*learners, COORDINATOR), "learner": learners, "syncer": (COORDINATOR,)}
    whole = [target for target in map(f"{DOMAIN}{{}}".format, scenario.domains) if fits(scenario, kind, target)]
    target = chooser.pick((*nodes[drawn_role(kind)], *whole))
    return {kind: target, **trigger(chooser, scenario, kind, target, before), **settings(chooser, scenario, kind)}


def trigger(chooser: Chooser, scenario: Scenario, kind: str, target: str, before: Sequence[Document]) -> Document:
    """Return when a fault comes: a time, an event, a failpoint, or soon after another fault."""
    points = () if target.startswith(DOMAIN) else scenario.trainer.failpoints(scenario.trainer.role_of(target))
    ways = ["at", "when"] + (["failpoint"] if points and _drawn(kind).at_failpoints else []) + ["after"] * bool(before)
    way = chooser.pick(ways)
    if way == "at":
        return {"at": chooser.pick(times(scenario))}
    if way == "after":
        return {"after": {"fault": f"f{chooser.pick(range(1, len(before) + 1))}",
                          "wait": chooser.pick(("0s", "50ms", "200ms", "500ms", "1s", "1500ms", "2s"))}}
    if way == "failpoint":
        if target != COORDINATOR and scenario.cluster.donates and chooser.pick((True, False)):
            return {"when": {"node": target, "failpoint": "donate.half", "count": chooser.pick((1, 2))}}
        usual = tuple(point for point in points if point != "donate.half")
        return {"when": {"node": target, "failpoint": chooser.pick(usual), "count": chooser.pick(OFTEN)}}
    node = chooser.pick((*scenario.cluster.starters, COORDINATOR))
    events = scenario.trainer.drawn_events(scenario.trainer.role_of(node))
    event = chooser.pick(tuple(events))
    return {"when": {"node": node, "event": event, "count": chooser.pick(events[event])}}


@lru_cache(maxsize=64)
def _times(first: float, last: float) -> tuple[str, ...]:
    return tuple(f"{round(first * 1000) + 100 * number}ms" for number in range(max(5, int((last - first) * 10))))


def times(scenario: Scenario) -> tuple[str, ...]:
    """Return the times at which a fault may come: checks have seen what was before, and there is time left to heal."""
    window, nominal = window_s(scenario.cluster), scenario.cluster.nominal_s
    last = max(0.2 * nominal, min(0.6 * nominal, nominal - _LASTS_S - scenario.checks.self_healing.within - window))
    return _times(min(window + _MOMENT_S, last), last)


def sensible(scenario: Scenario, faults: Sequence[Document], abilities: Set[Ability] = VIRTUAL) -> list[Document]:
    """These faults, without those that make no sense beside the ones before them."""
    kept: list[Document] = []
    for fault in faults:
        if _makes_sense(scenario, [*kept, fault], abilities):
            kept.append(fault)
    return kept


def _makes_sense(scenario: Scenario, faults: Sequence[Document], abilities: Set[Ability]) -> bool:
    """Return whether these faults can be, and none hits a node that another one brings: it may come before that."""
    made = with_faults(scenario, faults, abilities)
    return made is not None and not {*joiners(made.faults)} & {node for fault in made.faults for target in fault.targets
                                                               for node in ends(target)}


def with_faults(scenario: Scenario, faults: Sequence[Document],
                abilities: Set[Ability] = VIRTUAL) -> Scenario | None:
    """The scenario with these faults; None where they can't be, at a place with these abilities."""
    try:
        made = _scenario(scenario, faults)
    except ValidationError:
        return None
    numbers = Numbers(list(range(len(faults))), [f"f{number}" for number in range(1, len(faults) + 1)])
    return None if any(validate_semantics(Rest(made, numbers), sorted(abilities))) else made


def _scenario(scenario: Scenario, faults: Sequence[Document]) -> Scenario:
    whole = scenario.model_dump(mode="json", by_alias=True, exclude={"faults"}, exclude_unset=True)
    return Scenario.model_validate({**whole, "faults": list(faults)})


def choose(chooser: Chooser, scenario: Scenario, kinds: Sequence[str], count: int,
           abilities: Set[Ability] = VIRTUAL) -> list[Document]:
    """Draw up to `count` faults; a drawn fault that makes no sense after the others is dropped."""
    faults: list[Document] = []
    for _ in range(count):
        fault = document(chooser, scenario, kinds, faults)
        if _makes_sense(scenario, [*faults, fault], abilities):
            faults.append(fault)
    return faults


def plan_of(scenario: Scenario, faults: Sequence[Document], seed: int, abilities: Set[Ability] = VIRTUAL) -> Plan:
    """The frozen plan of a scenario with these faults, and with bounds that allow for what they take by design.

    Raises:
        ValueError: they can't be.
    """
    made = with_faults(scenario, faults, abilities)
    if made is None:
        raise ValueError(f"these faults make no sense together: {list(faults)}")
    return freeze(allowing(made), seed)


def allowing(scenario: Scenario) -> Scenario:
    """The scenario as schedules that nobody thought of are judged: what their faults take by design is excused, and
    nothing else. What a learner takes part in is not asked, for that is meant of the scenario's own faults; and where
    the least loss is known, losses are compared by what they have beyond it, with margins of their own."""
    changed: dict[str, Any] = {"outages": "excused", "participation": ()}
    if (parity := scenario.checks.loss_parity) and scenario.trainer.loss_floor:
        changed["loss_parity"] = LossParity(against_baseline=parity.against_baseline and _MORE_THAN_FAULT_FREE,
                                            against_synchronous=parity.against_synchronous and _MORE_THAN_SYNCHRONOUS)
    return scenario.model_copy(update={"checks": scenario.checks.model_copy(update=changed)})


def known(kinds: Sequence[str] | None, abilities: Set[Ability] = VIRTUAL,
          scenario: Scenario | None = None) -> tuple[str, ...]:
    """Return the kinds to choose from; None: all that can be drawn for a place with these abilities. Some must be asked
    for: by name, or by a fault of the scenario's own.

    Raises:
        ValueError: one of them is not known here.
    """
    own = {fault.kind for fault in scenario.faults} if scenario else set()
    kinds_known = drawable(abilities, own if kinds is None else kinds)
    if kinds is None:
        return tuple(kinds_known)
    strange = [kind for kind in kinds if kind not in kinds_known]
    if strange:
        fault = FAULTS.get(strange[0])
        problem = "is no fault" if fault is None else "can't be drawn" + " for this place" * (fault.drawn is not None)
        raise ValueError(f"{strange[0]!r} {problem}; choose from {', '.join(kinds_known)}")
    return tuple(kinds)
