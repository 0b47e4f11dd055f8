"""Schedules that the scenario's own storms draw: failures as they come to its cluster, not evenly over all moments."""

from __future__ import annotations

import random
from collections.abc import Sequence, Set
from typing import Any

from diloco_chaos.chaos.exploration.generate import VIRTUAL, Document, sensible, with_faults
from diloco_chaos.chaos.scenario.model import Scenario
from diloco_chaos.faults.composite import PlannedPart
from diloco_chaos.faults.registry import FAULTS
from diloco_chaos.faults.storm import Storm
from diloco_chaos.harness.places.base import Ability

_TRIES = 50
"""Draws until one has a failure that can be; where failures are rare most have none."""


def storms_of(scenario: Scenario) -> tuple[Storm, ...]:
    """Return the storms among a scenario's faults."""
    return tuple(fault for fault in scenario.faults if isinstance(fault, Storm))


def kinds_of(storms: Sequence[Storm]) -> tuple[str, ...]:
    """Return the kinds of faults that these storms may bring and that can be drawn."""
    kinds = frozenset[str]().union(*(storm.kinds() for storm in storms))
    return tuple(sorted(kind for kind in kinds if FAULTS[kind].drawn is not None))


def said(storms: Sequence[Storm]) -> list[dict[str, Any]]:
    """Return what schedules drawn from these storms depend on, as JSON's types."""
    return [storm.model_dump(mode="json", by_alias=True, exclude_unset=True) | {"targets": list(storm.targets)}
            for storm in storms]


def drawn_from(storms: Sequence[Storm], base: Scenario, chance: str, most: int,
               abilities: Set[Ability] = VIRTUAL) -> list[Document]:
    """Draw a schedule.

    Args:
        storms: of the scenario.
        base: the scenario without faults.
        chance: what it depends on; another text, other failures.
        most: the most faults, of which the first ones count.
        abilities: of the place where it is tried.

    Returns:
        Single faults, by time; none where fifty draws had none that can be.
    """
    for number in range(_TRIES):
        parts = [part for which, storm in enumerate(storms)
                 for part in storm.parts("", random.Random(f"{chance}/{number}/{which}"))]
        parts.sort(key=lambda part: float(part["at"].removesuffix("s")))
        faults = [_document(part) for part in parts[:most]]
        if faults := faults if with_faults(base, faults, abilities) else sensible(base, faults, abilities):
            return faults
    return []


def _document(part: PlannedPart) -> Document:
    targets = part["targets"]
    return {part["kind"]: targets[0] if len(targets) == 1 else list(targets),
            **{name: value for name, value in part.items() if name not in ("kind", "targets")}}
