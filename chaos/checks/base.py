"""What a check is: a pure function from a history to a finding, or the admission that it can't tell."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence, Set, Sized
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, computed_field, field_validator

from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.registry import Check, Need
from diloco_chaos.harness.base.lines import Line, line, text
from diloco_chaos.harness.base.units import show_seconds
from diloco_chaos.harness.record.tape.events import Exit, Spawn, Step, Warning
from diloco_chaos.harness.trainers.api.settings import FragmentRules

Word = Literal["passed", "failed", "unknown"]
Reason = Literal["no_evidence", "crashed", "excused", "clocks", "unsound", "early", "unverified_fault", "incomplete"]
"""Why a verdict is unknown. The check can't tell (`no_evidence`), or `crashed`. It would fail, by no more than what
else went on on the machine explains (`excused`), or than clocks of different machines are apart (`clocks`). Or its
answer is known, and the run makes it doubtful: it is `unsound`, it ended `early`, it has an `unverified_fault`, or its
event log is `incomplete`."""
DOUBTS: frozenset[Reason | None] = frozenset({"unsound", "early", "unverified_fault", "incomplete"})
"""Reasons that are the run's, not the check's."""


QUIET_S = 2.0
"""So long before the first fault must be seen what was usual."""


class Doubt(NamedTuple):
    """The reason why nothing is proved, if there is one; a doubt is true where it has a reason."""

    why: str = ""
    change: str = ""
    """The one thing to change for it to be proved the next time; empty where that is not known."""

    def __bool__(self) -> bool:
        return bool(self.why)


class Unknown(Exception):  # noqa: N818 - it is a finding, not a failure
    """The evidence does not tell. `change`: the one thing to change for it to tell the next time."""

    def __init__(self, why: str | Line, change: str = "") -> None:
        super().__init__(text(why))
        self.line = line(why)
        self.change = change


class Late(NamedTuple):
    """Part of a run in which something took longer than it may."""

    start: float
    end: float
    allowed: float
    """Seconds that it may take at the most."""


_GOOD_PART = 0.5
"""Share of what a rate lacks for which others have to be in the way: where nodes work in turn, each of them waits."""


def hindered(start: float, end: float, lacking: float) -> Late:
    """Return the time in which a rate lacks such a share of what it must be; that is excused if others were in the way
    for a good part of that share."""
    return Late(start, end, (1 - _GOOD_PART * max(0.0, lacking)) * (end - start))


class Figure(BaseModel):
    """A number that a check measured, for programs, and to see how far from its limit it is."""

    model_config = ConfigDict(frozen=True)

    of: str = ""
    """What it is of, where a check has several: a learner, a reference."""
    value: float | None
    """None: it never came, or is no number."""
    limit: float
    unit: Literal["s", "share", "learners", "versions", "rounds", "steps", "violations", "restarts"]
    """A share is 1.0 where it is all."""
    best: float = 0.0
    """What nothing can be better than: the limit is a ceiling where this is below it, and a floor where it is above."""

    @field_validator("value")
    @classmethod
    def _finite(cls, value: float | None) -> float | None:
        return value if value is not None and math.isfinite(value) else None

    @property
    def used(self) -> float | None:
        """Return the share of the room between best and limit that is used up: beyond 1 the bound does not hold. None:
        there is no room."""
        if self.best == self.limit:
            return None
        return math.inf if self.value is None else max(0.0, (self.best - self.value) / (self.best - self.limit))


def show_figure(value: float, unit: str) -> str:
    """A figure's value for people."""
    return show_seconds(value) if unit == "s" else f"{value:.1%}" if unit == "share" else f"{value:g}"


def tightest(figures: Iterable[Figure]) -> Figure | None:
    """Return the figure that is nearest to its limit, or farthest beyond it; None where none has room."""
    return max((figure for figure in figures if figure.used is not None), key=lambda figure: figure.used or 0.0,
               default=None)


@dataclass(frozen=True)
class Bound:
    """The bound of a check; its text is `≤ 3.0 s`, `≥ 90%` or `all`."""

    words: str = ""
    kind: Literal["most", "least", "exactly"] = "exactly"

    def __str__(self) -> str:
        return f"{_SIGNS[self.kind]}{self.words}"


_SIGNS = {"most": "≤ ", "least": "≥ ", "exactly": ""}


def at_most(words: object) -> Bound:
    """No more than this: `≤ 3.0 s`."""
    return Bound(str(words), "most")


def at_least(words: object) -> Bound:
    """No less than this: `≥ 90%`."""
    return Bound(str(words), "least")


class Finding(NamedTuple):
    """The result of a check: what it measured, and whether that is within its bound."""

    holds: bool
    measured: str
    bound: Bound | str
    """Text alone stands for itself: the same as `Bound(text)`."""
    evidence: Sequence[str | Line] = ()
    """Events that prove it, worst first; moments of the run are numbers in them, see `line`."""
    late: Sequence[Late] = ()
    """Where it does not hold, the worst first: all of it must be excused by what else went on for it to prove
    nothing."""
    figures: Sequence[Figure] = ()


def check(bound: Any = None, *, needs: Set[Need] = frozenset({"sound run"}),
          unverified: Literal["unknown", "judged"] = "unknown",
          cumulative: bool = False) -> Callable[[Callable[..., Finding | None]], Check]:
    """A decorator that makes a check of a function from a history to a finding; None: nothing in the plan is about it.

    Args:
        bound: type of what a scenario says under the check's name: a pydantic model. The function gets it after the
            history. None: it gets the history alone.
        needs: what must be there for its verdict to mean anything.
        unverified: what becomes of it where a fault had no measurable effect.
        cumulative: whether it counts what was merged later, which an event log that is cut off lacks.
    """
    def of(function: Callable[..., Finding | None]) -> Check:
        return Check(function, bound, frozenset(needs), unverified, cumulative)
    return of


PROMISE: dict[str, Any] = {"needs": frozenset(), "unverified": "judged"}
"""Of checks that mean the same whether or not a fault was observed and the machine kept its pace."""


class Verdict(BaseModel):
    """A check's line in the report."""

    model_config = ConfigDict(frozen=True)

    name: str
    verdict: Word
    reason: Reason | None = None
    """Why it is unknown; None where it is known."""
    measured: str
    allowed: Bound = Bound()
    lines: list[Line] = []
    """What proves it, worst first; where it is unknown, why comes before that."""
    windows: list[tuple[float, float]] = []
    """Parts of the run in which something took longer than it may, the worst first, in seconds since it began."""
    change: str = ""
    """The one thing to change for it to be known the next time; empty where there is no advice, and where it is
    known."""
    figures: list[Figure] = []
    """The numbers behind it; none where it is not about one."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def bound(self) -> str:
        """Return what is allowed, as text."""
        return str(self.allowed)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def evidence(self) -> list[str]:
        """Return the lines as text, with moments in seconds since the run began."""
        return [text(words) for words in self.lines]

    @property
    def doubted(self) -> bool:
        """Return whether the check has an answer that the run makes doubtful."""
        return self.reason in DOUBTS

    def __bool__(self) -> bool:
        """Return whether the check passed: `assert run.verdict("reintegration")`."""
        return self.verdict == "passed"


def nearest_limit(verdicts: Iterable[Verdict]) -> tuple[str, float] | None:
    """Return the name of the verdict that used most of its room, of those that prove something, and the share of the
    room that it used; None where none has any."""
    used = [(figure.used, verdict.name) for verdict in verdicts if verdict.verdict != "unknown"
            and (figure := tightest(verdict.figures)) is not None and figure.used is not None]
    return None if not used else max(used)[::-1]


def violations(wrong: Sized) -> list[Figure]:
    """Return the figure of a check that allows no violations: how many there are."""
    return [Figure(value=len(wrong), limit=0, unit="violations")]


def need(condition: object, why: str, change: str = "") -> None:
    """Raise Unknown where the evidence is missing."""
    if not condition:
        raise Unknown(why, change)


def from_logs(history: History) -> bool:
    """Return whether the event log is made from what nodes print, and not written by themselves."""
    return not history.plan.trainer.writers


def all_made(history: History) -> dict[str, float]:
    """Return when workers had made all their rounds, in seconds, where each counts its own: one may be done long before
    the others, and takes no part then."""
    asked = history.plan.cluster.budget_tokens
    if history.plan.cluster.blocking or not from_logs(history) or not asked:
        return {}
    return {node: steps[-1].t for (node, _), steps in history.steps.items() if steps and steps[-1].step >= asked}


def first_done(history: History) -> float:
    """Return up to when all workers train, in seconds."""
    return min([history.end, *all_made(history).values()])


def no_round_reported(history: History) -> bool:
    """Return whether rounds are read from what workers print and none was found there: they may well have trained."""
    return from_logs(history) and not history.tape.has(Step)


def unnumbered_epochs(history: History) -> tuple[str, str]:
    """Return why the rounds that a worker reported can't be told apart, and what to change: they begin again with each
    epoch, as a warning on the tape says. Empty where none does, or it is of after a fault: then it may have gone back.
    """
    warning = next((event for event in history.tape.of(Warning)
                    if event.kind == "epochs" and event.t < history.first_fault), None)
    if warning is None:
        return "", ""
    return f"{warning.node}.{warning.inc}: {warning.reason}, which may be another epoch", warning.change


def longer(history: History) -> str:
    """Return what to change where a run ended too soon."""
    return f"a longer run: {history.plan.trainer.counting.longer}, or earlier faults"


def beside(seconds: float, limit: float) -> tuple[str, str]:
    """A duration and its limit as people read them; with more digits where they would look alike and are not."""
    words, limit_words = show_seconds(seconds), show_seconds(limit)
    if words == limit_words and seconds > limit:
        return f"{seconds:.3f} s", f"{limit:.3f} s"
    return words, limit_words


def need_before(seconds: float, least: float, known: str) -> None:
    """Raise Unknown where the first fault came too soon to know what was usual before it."""
    need(seconds >= least,
         f"the first fault came too soon to know {known} before it: {show_seconds(seconds)} after the steady state, "
         f"and {show_seconds(least)} are needed", f"let the first fault come {show_seconds(least)} after the steady "
         f"state, or later (`at`)")


def zero(history: History) -> float:
    """Time zero.

    Raises:
        Unknown: the cluster never was steady.
    """
    if history.zero is None:
        raise Unknown(history.plan.trainer.counting.unsteady)
    return history.zero


def alive(history: History, at: float) -> dict[str, float]:
    """Return the workers whose newest process had not ended at a time in seconds, with when it was started."""
    alive: dict[str, float] = {}
    for event in history.tape.of(Spawn, Exit, node="harness"):
        if event.target in history.plan.cluster.names and event.t <= at:
            if isinstance(event, Spawn):
                alive[event.target] = event.t
            else:
                alive.pop(event.target, None)
    return alive


def rules_of(history: History) -> FragmentRules:
    """Return what the trainer promises of fragments. Only checks that need fragments ask for it."""
    rules = history.plan.trainer.fragment_rules()
    assert rules is not None, "asked of trainers that exchange fragments"
    return rules
