"""Did merges go on?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from diloco_chaos.chaos.checks.base import Figure, Finding, Late, at_least, at_most, beside, check, need, zero
from diloco_chaos.chaos.evidence.availability import Availability
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.scenario.bounds import AtLeast, Stall
from diloco_chaos.harness.base.lines import line
from diloco_chaos.harness.base.units import show_seconds
from diloco_chaos.harness.record.tape.events import Merge, Spawn

_TELLS_APART = 0.0005
"""Shares that are nearer to each other look the same with one decimal."""
_LEAST_UPTIME_S = 1.0
_LEAST_MERGES = 8
_LEAST_GAPS = 2


class _Gap(NamedTuple):
    """A stretch of the run from one merge to the next."""

    start: float
    end: float
    counted: float
    """Seconds of it that count."""
    allowed: float
    """Seconds that may count."""

    @property
    def late(self) -> Late:
        """Return when the gap was, and the seconds allowed for it, as an excuse needs to know."""
        return Late(self.start, self.end, self.allowed + (self.end - self.start - self.counted))

    @property
    def excess(self) -> float:
        """Seconds by which it is too long."""
        return self.counted - self.allowed


@check(Stall)
def no_global_stall(history: History, bound: Stall) -> Finding:
    """Longest gap between merges <= the allowed gap."""
    gaps = sorted(_gaps(history, bound, history.merges), reverse=True,
                  key=lambda gap: (gap.excess > 0, gap.excess if gap.excess > 0 else gap.counted))
    worst = gaps[0]
    words = line(f"no {history.plan.trainer.counting.made} from ", worst.start, " to ", worst.end)
    if worst.counted < worst.end - worst.start:
        words = line(words, f", of which {show_seconds(worst.counted)} while enough were there to merge")
    longest, allowed = beside(worst.counted, worst.allowed)
    return Finding(worst.excess <= 0, f"longest gap {longest}", at_most(allowed), [words], [gap.late for gap in gaps],
                   [Figure(value=worst.counted, limit=worst.allowed, unit="s")])


@check(AtLeast)
def uptime(history: History, bound: AtLeast) -> Finding:
    """Share of the time in which the newest merge is no older than the allowed gap; a void one is none, but where going
    back is how it heals, and what faults take is excused."""
    by_design = history.plan.checks.excuses_outages and history.plan.cluster.checkpoint_steps
    void = set() if by_design else {id(merge) for merge in history.rolled_back}
    taken_back = [merge.t for merge in history.rolled_back if id(merge) in void]
    gaps = _gaps(history, history.plan.checks.no_global_stall,
                 [merge for merge in history.merges if id(merge) not in void])
    seconds = sum(gap.end - gap.start for gap in gaps)
    need(seconds >= _LEAST_UPTIME_S, "less than a second after the steady state")
    down = sorted(((gap.excess, gap) for gap in gaps if gap.excess > 0), reverse=True)
    value = 1 - sum(late for late, _ in down) / seconds
    digits = 1 if abs(value - bound.at_least) >= _TELLS_APART else 3
    none = f"no {history.plan.trainer.counting.made} "
    return Finding(value >= bound.at_least, f"{value:.{digits}%} of {show_seconds(seconds)}",
                   at_least(f"{bound.at_least:.0%}"),
                   [line(none, "that was not taken back " * any(gap.start < t < gap.end for t in taken_back),
                         "from ", gap.start, " to ", gap.end, f", which is {show_seconds(late)} more than the allowed "
                         f"{show_seconds(gap.allowed)}") for late, gap in down[:3]],
                   [gap.late for _, gap in down], [Figure(value=value, limit=bound.at_least, best=1.0, unit="share")])


def _gaps(history: History, bound: Stall, merges: Sequence[Merge]) -> list[_Gap]:
    """Return the times from one of these merges to the next, between the steady state and the end."""
    gaps = history.still(zero(history), history.end, merges)
    need(len(gaps) > _LEAST_GAPS, f"there are no {history.plan.trainer.counting.made}s after the steady state")
    if history.plan.checks.excuses_outages:
        availability = history.once(Availability)
        return [_excused(history, bound, availability, *gap) for gap in gaps]
    allowed = _allowed_gap(history, bound, max(right - left for left, right in gaps))
    starts = _starts(history, bound)
    return [_Gap(left, right, right - left, max(allowed, next((
        each.t - left + each.patience for each in starts
        if left < each.t < right and each.gone - left <= allowed), 0.0))) for left, right in gaps]


class _Start(NamedTuple):
    """A process of a worker that was started anew."""

    t: float
    gone: float
    """When its predecessor had ended, or a fault had begun to end it: it had stood until then, if no round was made."""
    patience: float
    """For how many seconds from its start on no round need be made."""


def _starts(history: History, bound: Stall) -> list[_Start]:
    """Return the processes of workers that were started anew, in order of time."""
    if not bound.max_gap_vs_start:
        return []
    again = [event for event in history.tape.of(Spawn, node="harness")
             if event.incarnation and event.target in history.plan.cluster.names]
    return sorted(_Start(event.t, _gone(history, event),
                         bound.max_gap_vs_start * (history.first_start(event.target) or 0.0)) for event in again)


def _gone(history: History, spawn: Spawn) -> float:
    ended = max((gone.t for gone in history.exits if gone.target == spawn.target and gone.t <= spawn.t), default=0.0)
    return min([ended, *(span.injected for span in history.spans
                         if span.planned.fault.stops_target and spawn.target in span.planned.fault.targets
                         and span.injected is not None and span.injected <= ended <= (span.ended or math.inf))])


def _excused(history: History, bound: Stall, availability: Availability, left: float, right: float) -> _Gap:
    """Return a gap without the time in which too few learners were present, and how long the rest may be by the pace of
    those that were."""
    if right - left <= bound.max_gap:
        return _Gap(left, right, right - left, bound.max_gap)
    counted = [piece for piece in availability.pieces(left, right) if availability.able(piece)]
    cluster = history.plan.cluster
    seconds = sum(piece.end - piece.start for piece in counted)
    allowed = max((cluster.longest_gap_s(piece.present) for piece in counted), default=0.0)
    return _Gap(left, right, seconds, _allowed_gap(history, bound, seconds) if math.isinf(allowed) else
                max(bound.max_gap, allowed))


def _allowed_gap(history: History, bound: Stall, longest: float) -> float:
    """Seconds between two merges that are no stall: max(1 s, 5 x the fault-free p99 gap). What a fault-free gap is need
    not be known where the longest is within the first of them."""
    if longest <= bound.max_gap:
        return bound.max_gap
    return max(bound.max_gap, bound.max_gap_vs_baseline * _fault_free_p99(history, bound, zero(history)))


def _fault_free_p99(history: History, bound: Stall, start: float) -> float:
    baseline = history.references.get("fault-free")
    if baseline and baseline.merge_gap_p99 is not None:
        return baseline.merge_gap_p99
    unit, gaps = history.plan.trainer.counting.made, sorted(history.gaps(start, history.first_fault)[1:-1])
    longest = max(gaps, default=bound.max_gap)
    later = "let the first fault come later" if history.plan.faults else history.plan.trainer.counting.longer
    remedy = (f"say how long a gap between two {unit}s may be: `no_global_stall: "
              f"{{max_gap: {math.ceil(2 * longest)}s}}`, or {later}")
    need(len(gaps) >= _LEAST_MERGES, f"too few {unit}s before the first fault to know how long a gap between two is: "
                                     f"{len(gaps)} gaps, of {show_seconds(longest)} at most", remedy)
    p99 = gaps[int(0.99 * (len(gaps) - 1))]
    need(p99 <= bound.max_gap, f"{unit}s were {show_seconds(p99)} apart before the first fault, too", remedy)
    return p99
