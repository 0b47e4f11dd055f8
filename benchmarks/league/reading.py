"""What came of a run: four figures and a verdict, read the same way for every contestant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from pydantic import BaseModel, ConfigDict

from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.evidence.members import members
from diloco_chaos.chaos.evidence.phases import WINDOW_S, pulse, recoveries
from diloco_chaos.chaos.report.model import WORDS, Word
from diloco_chaos.chaos.report.story import because
from diloco_chaos.chaos.runner.run import Result, exit_code
from diloco_chaos.faults.inner import OfProcess
from diloco_chaos.harness.record.tape.events import Noticed, Step

_AS_GOOD = 0.9
_STALL_S, _STALL = 0.5, 5.0
"""A gap is a stall if it is longer than this, and so many times as long as usual."""


class Figures(BaseModel):
    """What a run shows, in seconds after its first fault."""

    model_config = ConfigDict(frozen=True)

    noticed: float | None
    """Until a log said so, or a round had fewer members; None: neither."""
    stall: float | None
    """The longest time without a round; None: the fault never came."""
    recovered: float | None
    """Until the first two seconds with the pace and the members of before begin; None: there were none."""
    watched: float
    """How long the run went on after the fault."""
    lost: float | None
    """The work that was made again, in seconds of training; None: the fault never came."""


class Outcome(Figures):
    """What came of one run."""

    verdict: Word
    failed: list[str]
    """Checks that failed."""
    why: str
    """Why it proves nothing, if that is so."""


def outcome(result: Result, round_s: float) -> Outcome:
    """Return what came of a run; a round of it takes `round_s`."""
    failed = [check.name for check in result.judgement.checks if check.verdict == "failed"]
    return Outcome(**figures(result.history, round_s).model_dump(), verdict=WORDS[exit_code(result)], failed=failed,
                   why=because(result))


def figures(history: History, round_s: float) -> Figures:
    """Read the figures from a run's events."""
    came = [span.began for span in history.spans if span.injected is not None]
    if not came:
        return Figures(noticed=None, stall=None, recovered=None, watched=0.0, lost=None)
    began = min(came)
    moments = [merge.t for merge in history.merges]
    gap = longest_gap(moments, began, history.end)
    return Figures(
        noticed=_noticed(history, began), stall=_tenth(gap[1] - gap[0]),
        recovered=_recovered(history, began, gap if is_stall(moments, began, gap) else None),
        watched=_tenth(history.end - began), lost=_tenth(_rounds_lost(history) * round_s))


def longest_gap(moments: Sequence[float], began: float, end: float) -> tuple[float, float]:
    """Return the longest time without a round that ended after the fault came; the end of the run counts as one."""
    before = max((t for t in moments if t <= began), default=began)
    return max(pairwise([before, *(t for t in moments if began < t < end), end]),
               key=lambda between: between[1] - between[0])


def is_stall(moments: Sequence[float], began: float, gap: tuple[float, float]) -> bool:
    """Return whether a gap is far longer than those before the fault."""
    usual = median([later - earlier for earlier, later in pairwise(t for t in moments if t <= began)] or [0.0])
    return gap[1] - gap[0] > max(_STALL_S, _STALL * usual)


def _recovered(history: History, began: float, stall: tuple[float, float] | None) -> float | None:
    """Look for two seconds as good as those before the fault, behind the stall if there is one."""
    rate, who = pulse(history, history.origin, began)
    since = began if stall is None else stall[1]
    for at in [since, *(merge.t for merge in history.merges_between(since, math.inf))]:
        window = max(WINDOW_S, 3 / rate if rate else 0.0)
        if at + window > history.end:
            break
        now, with_them = pulse(history, at, at + window)
        if now >= _AS_GOOD * rate and with_them >= _AS_GOOD * who:
            return _tenth(at - began)
    return None


def _noticed(history: History, began: float) -> float | None:
    """By a line of a log, by a coordinator or a learner that lost a peer, or by a round with fewer members. What a node
    says that was hit as a whole is no word of the others'."""
    hit = {target for span in history.spans if not isinstance(span.planned.fault, OfProcess)
           for target in span.planned.fault.targets}
    seen = [event.t for event in history.tape.of(Noticed) if event.t >= began and event.node not in hit]
    seen += [recovery.span.began + after for recovery in history.once(recoveries)
             if (after := recovery.to_detect) is not None]
    usual = max((members(merge) for merge in history.merges_between(began - WINDOW_S, began)), default=0)
    seen += [next((merge.t for merge in history.merges_between(began, history.end)
                   if merge.t > began and members(merge) < usual), math.inf)]
    first = min(seen)
    return None if first == math.inf else _tenth(first - began)


def _rounds_lost(history: History) -> int:
    """Return the rounds that were made again: of commands what they report, of the built-in trainer the learners' steps
    that came to nothing."""
    if history.coordinator is not None:
        steps = [recovery.lost_steps for recovery in history.once(recoveries) if recovery.target != history.coordinator]
        return sum(filter(None, steps))
    own: dict[str, int] = {}
    newest, lost = 0, 0
    for event in sorted(history.tape.of(Step), key=lambda event: event.t):
        if event.step <= own.get(event.member, -1):  # members of a round report it one after the other
            lost = max(lost, newest - event.step + 1)
        own[event.member], newest = event.step, max(newest, event.step)
    return lost


def _tenth(seconds: float) -> float:
    return round(seconds, 1)
