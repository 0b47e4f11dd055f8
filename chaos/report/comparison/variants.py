"""What is held against each other: several scenarios, or one with other settings; and whether they can be compared."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.chaos.scenario.messages import known_keys
from diloco_chaos.chaos.scenario.model import Scenario
from diloco_chaos.chaos.scenario.plan import Plan, PlannedFault, freeze
from diloco_chaos.chaos.scenario.problems import ScenarioError
from diloco_chaos.harness.base.errors import UserError, first, nearest
from diloco_chaos.harness.base.units import names, shortened
from diloco_chaos.harness.trainers.api.settings import TrainerSettings

_KEY = r"[A-Za-z_][\w-]*(?:\.[\w-]+)*"
_NAMED = re.compile(rf"\s*([^=:.,]+?)\s*:\s+(?={_KEY}\s*=)")
_NEXT = re.compile(rf",\s*(?={_KEY}\s*=)")
_PAIR = re.compile(rf"\s*({_KEY})\s*=\s*(.*?)\s*", re.DOTALL)
_LONGEST_NAME, _LONGEST_FAULT = 40, 120


class VariantError(UserError):
    """Ways that can't be held against each other, or settings that a scenario does not have."""


@dataclass(frozen=True)
class Way:
    """One of the ways: the same faults at the same moments, for each seed."""

    name: str
    plans: tuple[Plan, ...]

    def having(self, change: Callable[[Plan], Plan]) -> Way:
        """Return the way with other plans."""
        return Way(self.name, tuple(map(change, self.plans)))


@dataclass(frozen=True)
class Variant:
    """Settings that a scenario does not have of itself."""

    said: str
    name: str
    settings: tuple[tuple[tuple[str, ...], Any], ...]
    """(path, value)."""


def variant(said: str) -> Variant:
    """Read `KEY=VALUE`, `KEY=VALUE,KEY=VALUE`, or either after `NAME: `.

    Raises:
        VariantError: it is none of these.
    """
    named = _NAMED.match(said)
    pairs = [_PAIR.fullmatch(part) for part in _NEXT.split(said[named.end() if named else 0:])]
    settings: list[tuple[tuple[str, ...], Any]] = []
    for pair in pairs:
        if pair is None:
            raise VariantError(f"--with {said}: write KEY=VALUE, as in --with cluster.quorum=2; several with commas")
        settings.append((tuple(pair[1].split(".")), _value(said, pair[2])))
    text = ", ".join(f"{path[-1]}={shown(value)}" for path, value in settings)
    return Variant(said, shortened(named[1] if named else text, _LONGEST_NAME), tuple(settings))


def ways_of(scenarios: Sequence[str], variants: Sequence[Variant], seeds: Sequence[int]) -> list[Way]:
    """Return the scenarios, or the one scenario as it is and with the settings of each variant, frozen for each seed.

    Raises:
        ScenarioError: one of them can't be read.
        VariantError: a variant has a key that the scenario lacks, or a value that it can't have.
    """
    if not variants:
        if len(set(scenarios)) < len(scenarios):
            raise VariantError(f"{' '.join(scenarios)}: the same scenario twice; name another one, or say what is "
                               f"different with --with KEY=VALUE")
        return [Way(name, _frozen(load(each)[0], seeds))
                for name, each in zip(_names_of(scenarios), scenarios, strict=True)]
    (scenario,), was = scenarios, dict[str, str]()
    own = load(scenario)[0]
    others = [_with(scenario, each, was) for each in variants]
    ways = [Way(_as_written(own, variants, was), _frozen(own, seeds)),
            *(Way(each.name, _frozen(other, seeds)) for each, other in zip(variants, others, strict=True))]
    if twice := [way.name for number, way in enumerate(ways) if way.name in [other.name for other in ways[:number]]]:
        raise VariantError(f"two ways are called {twice[0]!r}: leave one out, or name it, as in "
                           f"--with 'prepared: {variants[-1].said.rpartition(': ')[2]}'")
    return ways


def must_compare(ways: Sequence[Way]) -> None:
    """Go on only where the ways can be held against each other.

    Raises:
        VariantError: they can't; it says why.
    """
    one = ways[0]
    for other in ways[1:]:
        for plan, its in zip(one.plans, other.plans, strict=True):
            if why := hindrance(plan, its):
                raise VariantError(f"{one.name} and {other.name} can't be compared: {why}")


def hindrance(plan: Plan, other: Plan) -> str:
    """Return why runs of two plans of the same seed can't be held against each other; empty: they can."""
    if plan.trainer.name != other.trainer.name:
        return (f"rounds of trainer {plan.trainer.name} and of trainer {other.trainer.name} are not the same work; "
                f"name two scenarios of one trainer")
    units = [each.trainer.counting.unit for each in (plan, other)]
    if units[0] != units[1]:
        return f"one counts {units[0]}, the other {units[1]}"
    return other_faults(faults_of(plan), faults_of(other))


def faults_of(plan: Plan) -> list[str]:
    """Return what the plan breaks, and when, each as one text that is the same only where the faults are."""
    return [json.dumps(_fault(planned), sort_keys=True) for planned in plan.faults]


def other_faults(faults: Sequence[str], others: Sequence[str]) -> str:
    """Return where faults, as `faults_of` tells them, are not the same; empty: nowhere."""
    if len(faults) != len(others):
        return f"they have other faults: one has {len(faults)}, the other {len(others)}"
    for one, other in zip(faults, others, strict=True):
        if one != other:
            here, there = json.loads(one), json.loads(other)
            said = [shortened(f"{each['id']} {each['says']}", _LONGEST_FAULT) for each in (here, there)]
            keys = names([key for key in here | there if here.get(key) != there.get(key) and key != "says"])
            return f"they have other faults: {said[0]}, and {said[1]} ({keys}); give both the same `faults`"
    return ""


def settings_of(plan: Plan) -> dict[str, Any]:
    """Return the settings by which a way may differ from another one, as `cluster.quorum` -> 2."""
    document = plan.document()
    return {key: value for part in ("cluster", "checks", "deadline")
            for key, value in _flat(document.get(part), part).items()}


def differing(settings: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    """Return the settings that differ, as `cluster.quorum 2 → 1`, for people."""
    return [f"{key} {_said(settings.get(key))} → {_said(others.get(key))}" for key in {**settings, **others}
            if settings.get(key) != others.get(key)]


def _said(value: Any) -> str:
    return "not set" if value is None else shown(value)


def shown(value: Any) -> str:
    """A value as people write it."""
    return str(value) if isinstance(value, str) else json.dumps(value)


def _fault(planned: PlannedFault) -> dict[str, Any]:
    document = planned.model_dump(mode="json", by_alias=True)
    says = f"({planned.describe()}, {planned.fault.describe_trigger()})"
    fault: dict[str, Any] = document["fault"]
    return fault | {"id": planned.id, "says": says}


def _flat(part: Any, path: str) -> dict[str, Any]:
    if not isinstance(part, dict):
        return {path: part}
    return {key: value for name, item in part.items() for key, value in _flat(item, f"{path}.{name}").items()}


def _frozen(scenario: Scenario, seeds: Iterable[int]) -> tuple[Plan, ...]:
    return tuple(freeze(scenario, seed) for seed in seeds)


def _names_of(scenarios: Sequence[str]) -> list[str]:
    """By what tells them apart: their file's name, or all of their path."""
    short = [name.rpartition("/")[2].removesuffix(".yaml") for name in scenarios]
    return short if len(set(short)) == len(short) else list(scenarios)


def _with(scenario: str, of: Variant, was: dict[str, str]) -> Scenario:
    """The scenario with a variant's settings; what it had of itself is kept in `was`."""
    def change(document: dict[str, Any]) -> dict[str, Any]:
        for path, value in of.settings:
            document = _set(of, document, _full(path, document), value, was)
        return document

    try:
        changed, _ = load(scenario, change)
    except ScenarioError as error:
        raise VariantError("\n".join(f"--with {of.said}: {problem.message}" for problem in error.problems)) from error
    return changed


def _full(path: tuple[str, ...], document: dict[str, Any]) -> tuple[str, ...]:
    """The path in a document that says `cluster`, where files may say `trainer`, or the key of the cluster alone."""
    if path[0] == "trainer" and len(path) > 1 and path[1] != "kind":
        return "cluster", *path[1:]
    if path[0] not in {*document, *known_keys(document, ("",))} and path[0] in known_keys(document, ("cluster", "")):
        return "cluster", *path
    return path


def _set(of: Variant, document: dict[str, Any], path: tuple[str, ...], value: Any,
         was: dict[str, str]) -> dict[str, Any]:
    """The document with a value at a path; parts of it that change are copied."""
    changed: dict[str, Any] = dict(document)
    here: Any = changed
    for depth, part in enumerate(path):
        key = _key(of, document, path[:depth + 1], here)
        there = here[key] if isinstance(here, list) else here.get(key)
        if depth + 1 == len(path):
            if there is not None:
                was.setdefault(path[-1], shown(there))
            here[key] = shown(value) if _is_text(there, here) and not isinstance(value, dict | list) else value
            return changed
        if there is not None and not isinstance(there, dict | list):
            raise VariantError(f"--with {of.said}: {'.'.join(path[:depth + 1])} is {shown(there)}, and has no keys: "
                               f"there is no {part}.{path[depth + 1]}")
        here[key] = list(there) if isinstance(there, list) else dict(there or {})
        here = here[key]
    return changed


def _key(of: Variant, document: dict[str, Any], path: tuple[str, ...], here: Any) -> Any:
    """The last key of a path in the part of the document that has it.

    Raises:
        VariantError: there can be no such key.
    """
    key, above = path[-1], ".".join(path[:-1])
    if isinstance(here, list):
        if not key.isdigit() or not 1 <= int(key) <= len(here):
            raise VariantError(f"--with {of.said}: {above} is a list of {len(here)}: say which, from 1 on, as in "
                               f"{above}.1")
        return int(key) - 1
    known = _known(document, path)
    if key in here or key in known or (len(path) > 2 and not set(here) & set(known)):  # names of somebody's own
        return key
    listed = sorted({*known, *here} - {"diloco_chaos"})
    if not above:  # one of these, or of the cluster's, whose name alone will do
        near = nearest(key, [*listed, *known_keys(document, ("cluster", ""))])
        own = names(sorted(known_keys(document, ("cluster", ""))))
        raise VariantError(f"--with {of.said}: no key {key!r}{near}; there are {names(listed)}, and in cluster {own}")
    raise VariantError(f"--with {of.said}: no key {'.'.join(path)!r}{nearest(key, listed)}; {above} has "
                       f"{names(listed)}")


def _known(document: dict[str, Any], path: tuple[str, ...]) -> list[str]:
    return [] if path[0] == "faults" else known_keys(document, path)


def _is_text(value: Any, beside: Any) -> bool:
    """Return whether a value is text where it stands: what it replaces is, or all that stands beside it."""
    if value is not None:
        return isinstance(value, str)
    return isinstance(beside, dict) and bool(beside) and all(isinstance(other, str) for other in beside.values())


def _value(said: str, text: str) -> Any:
    try:
        return _plain(YAML(typ="safe", pure=True).load(text)) if text else ""
    except YAMLError as error:
        raise VariantError(f"--with {said}: {text!r} is no value: {first(error)}") from error


def _plain(value: Any) -> Any:
    """JSON's types."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _as_written(own: Scenario, variants: Sequence[Variant], was: dict[str, str]) -> str:
    """What the scenario itself is called beside its variants: by the value that it has, where they change one key."""
    keys = {path for each in variants for path, _ in each.settings}
    if len(keys) != 1:
        return "as written"
    key = next(iter(keys))[-1]
    value = was.get(key)
    if value is None and isinstance(own.cluster, TrainerSettings) and key in type(own.cluster).model_fields:
        value = shown(own.cluster.model_dump(mode="json")[key])
    return "as written" if value is None else shortened(f"{key}={value}", _LONGEST_NAME)
