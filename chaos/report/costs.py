"""What faults cost, as reports show it: numbers with their names, and in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from diloco_chaos.chaos.evidence.recovery.costs import Cost
from diloco_chaos.harness.base.units import show_seconds


class CostTold(BaseModel):
    """What a fault cost, or all faults of a run together. None: it is not told; `not_told` says why, and what would
    bring it."""

    model_config = ConfigDict(frozen=True)

    start: float
    end: float
    """From when to when that is counted."""
    time_to_detect: float | None
    """Seconds until somebody noticed: the mean over targets, MTTD of a run."""
    time_to_recover: float | None
    """Seconds until the pace was what it was before: the mean over targets, MTTR of a run."""
    ettr: float | None
    """Effective training time ratio: the share of the time in which the job made progress."""
    idle_node_seconds: float | None
    """Seconds in which nodes made no steps, beside what is usual."""
    lost_rounds: float | None
    """Rounds of the whole job that came to nothing."""
    lost_samples: float | None
    """Tokens, or samples, of steps that came to nothing with a process."""
    not_told: dict[str, str]
    """Figure -> what nothing tells, and what would bring it; where it has a value, whose part that lacks."""


class _Shown(NamedTuple):
    name: str
    """In a sentence and at the head of a column."""
    words: Callable[[float], str]
    what: str
    """For Prometheus."""


SHOWN = {
    "time_to_detect": _Shown("MTTD", show_seconds, "Mean seconds until somebody noticed that a target was out."),
    "time_to_recover": _Shown("MTTR", show_seconds, "Mean seconds until the pace was what it was before."),
    "ettr": _Shown("ETTR", "{:.1%}".format, "Share of the time in which the job made progress."),
    "idle_node_seconds": _Shown("idle node-seconds", "{:.1f}".format, "Seconds in which nodes made no steps."),
    "lost_rounds": _Shown("lost rounds", "{:,.0f}".format, "Rounds of the whole job that came to nothing."),
    "lost_samples": _Shown("lost samples", "{:,.0f}".format, "Tokens or samples that came to nothing."),
}
"""Figure of a `CostTold` -> how it is shown."""


def cost_told(cost: Cost, zero: float) -> CostTold:
    """Return a cost as reports tell it; `zero`: the run's time zero in seconds."""
    return CostTold(start=cost.start - zero, end=cost.end - zero,
                    **{name: amount.value for name, amount in cost.amounts.items()},
                    not_told={name: amount.missing for name, amount in cost.amounts.items() if amount.missing})


def figures(cost: CostTold) -> dict[str, float | None]:
    """Return all figures of a cost, by name, in the order in which they are shown."""
    return {name: getattr(cost, name) for name in SHOWN}


def cells(cost: CostTold) -> list[str]:
    """Return every figure in words; `-` where it is not told."""
    return ["-" if value is None else SHOWN[name].words(value) for name, value in figures(cost).items()]


def in_words(cost: CostTold) -> str:
    """Return the figures that are told, in a line."""
    return " · ".join(f"{SHOWN[name].name} {SHOWN[name].words(value)}" for name, value in figures(cost).items()
                      if value is not None)


def not_told(cost: CostTold) -> list[str]:
    """Say of each figure that lacks something what that is, and what would bring it."""
    return [f"{SHOWN[name].name} {'not told: ' if figures(cost)[name] is None else 'without '}{why}"
            for name, why in cost.not_told.items()]
