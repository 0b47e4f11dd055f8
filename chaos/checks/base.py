"""What a check is: a pure function from a history to a finding, or the admission that it can't tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from chaos.evidence.history import History

Word = Literal["passed", "failed", "unknown"]


class Unknown(Exception):  # noqa: N818 - it is a finding, not a failure
    """The evidence does not tell."""


class Late(NamedTuple):
    """Part of a run in which something took longer than it may."""

    start: float
    end: float
    allowed: float
    """Seconds that it may take at the most."""


class Finding(NamedTuple):
    """What a check measured, and whether it is within its bound."""

    holds: bool
    measured: str
    bound: str
    evidence: list[str] = []  # noqa: RUF012 - never changed
    """Events that prove it, in words, worst first."""
    late: Sequence[Late] = ()
    """Where it does not hold: all that must be excused by what else went on for it to prove nothing."""


Check = Callable[[History], Finding | None]
"""None: there is nothing in the plan that this check is about."""


class Verdict(BaseModel):
    """A check's line in the report."""

    model_config = ConfigDict(frozen=True)

    name: str
    verdict: Word
    measured: str
    bound: str
    evidence: list[str] = []


def need(condition: object, why: str) -> None:
    """Raise Unknown where the evidence is missing."""
    if not condition:
        raise Unknown(why)


def zero(history: History) -> float:
    """Time zero.

    Raises:
        Unknown: the cluster never was steady.
    """
    if history.zero is None:
        raise Unknown("the cluster never merged from every learner")
    return history.zero
