"""Did training go on, did those who were hit come back, was nobody else hit?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import mean, median

from chaos.checks.base import Finding, Unknown, need, zero
from chaos.history import History, Span
from chaos.scenario import SYNCER
from chaos.tokens import MERGED
from faults import Latency, Zombie
from harness.tape import Event
from harness.units import show_seconds

WINDOW_S = 2.0
"""Merge rate and contributors are measured over windows of this length."""
_LEAST_BASELINE_S = 1.0
_LEAST_MERGES = 8


def no_global_stall(history: History) -> Finding:
    """Longest gap between merges <= max(1 s, 5 x the fault-free p99 gap)."""
    start = zero(history)
    gaps = history.still(start, history.end)
    need(len(gaps) > 2, "there are no merges after the steady state")
    bound = history.plan.checks.no_global_stall
    left, right = max(gaps, key=lambda gap: gap[1] - gap[0])
    limit, longest = bound.at_least, right - left
    if longest > limit:
        limit = max(limit, bound.times_fault_free * _fault_free_p99(history, start))
    return Finding(longest <= limit, f"longest gap {show_seconds(longest)}", f"≤ {show_seconds(limit)}",
                   [f"no merge from {left:.2f} s to {right:.2f} s"])


def _fault_free_p99(history: History, start: float) -> float:
    twin = history.references.get("twin")
    if twin and twin.merge_gap_p99 is not None:
        return twin.merge_gap_p99
    gaps = sorted(history.gaps(start, history.first_fault)[1:-1])
    need(len(gaps) >= _LEAST_MERGES, "too few merges before the first fault to know a fault-free gap")
    p99 = gaps[int(0.99 * (len(gaps) - 1))]
    need(p99 <= history.plan.checks.no_global_stall.at_least, "merges stalled before the first fault, too")
    return p99


def uptime(history: History) -> Finding:
    """Share of 1 s bins with a step that was later merged."""
    start = zero(history)
    ledger = history.ledger
    merged = {(node, step) for (_, node), fates in ledger.fates.items()
              for step, fate in fates.items() if fate == MERGED}
    up = {int(event.t - start) for node, events in history.steps.items() for event in events
          if event.t >= start and (node, event["step"]) in merged}
    awake = {second for left, right in history.awake(start, history.end)
             for second in range(math.ceil(left - start), int(right - start))}
    need(awake, "less than a second after the steady state")
    idle = sorted(awake - up)
    bound = history.plan.checks.uptime.at_least
    value = 1 - len(idle) / len(awake)
    return Finding(value >= bound, f"{value:.1%} of {len(awake)} s", f"≥ {bound:.0%}",
                   [f"no merged step in second {second} after the steady state" for second in idle[:3]])


def self_healing(history: History) -> Finding | None:
    """Merge rate and number of contributors back within 10% of before, within the scenario's bound."""
    if not history.plan.faults:
        return None
    start, within = zero(history), history.plan.checks.self_healing.within
    need(history.seconds(start, history.first_fault) >= _LEAST_BASELINE_S,
         "the first fault came too soon to know what was before it")
    rate, contributors = _pulse(history, start, history.first_fault)
    need(rate, "no merges before the first fault")
    contributors *= 1 - len(history.dead_for_good - {SYNCER}) / history.plan.cluster.learners
    ends = [end for span in history.spans if (end := span.injected if span.ended is None else span.ended) is not None]
    need(ends, "no fault was injected")
    last = max(ends)
    before = f"{rate:.1f} merges/s from {contributors:.1f} learners"
    for at in _moments(history, last):
        now_rate, now_contributors = _pulse(history, at, at + WINDOW_S)
        if now_rate >= 0.9 * rate and now_contributors >= 0.9 * contributors:
            if not _lasts(history, at, rate, contributors):
                return Finding(False, "healed, but not to the end", f"≤ {show_seconds(within)}", [f"before: {before}"])
            seconds = history.seconds(last, at)
            took = f"{show_seconds(seconds)} after the last fault" if seconds else "at once"
            return Finding(seconds <= within, took, f"≤ {show_seconds(within)}", [
                f"before: {before}; from {at:.2f} s on: {now_rate:.1f} merges/s from {now_contributors:.1f} learners"])
    need(history.seconds(last, history.end) >= within + WINDOW_S, "the run ended before the time to heal was over")
    now_rate, now_contributors = _pulse(history, history.end - WINDOW_S, history.end)
    return Finding(False, "never", f"≤ {show_seconds(within)}", [
        f"before: {before}; at the end: {now_rate:.1f} merges/s from {now_contributors:.1f} learners"])


def _lasts(history: History, healed: float, rate: float, contributors: float) -> bool:
    """Whether the end of the run is as good as the moment at which the cluster had healed, to a whole merge: the two
    may overlap, and part of one decides nothing."""
    start = max(healed, history.end - 2 * WINDOW_S)
    now_rate, now_contributors = _pulse(history, start, history.end)
    seconds = history.end - start
    return round(now_rate * seconds) >= math.floor(0.9 * rate * seconds) and now_contributors >= 0.9 * contributors


def _moments(history: History, start: float) -> Iterator[float]:
    """The fault's end, and every merge after it, as far as a whole window follows in which everything was up."""
    yield from (at for at in [start, *(merge.t for merge in history.merges if merge.t > start)]
                if at + WINDOW_S <= history.end and history.was_up(at, at + WINDOW_S))


def _pulse(history: History, start: float, end: float) -> tuple[float, float]:
    """Merges per second, and mean contributors per merge."""
    merges = [merge for left, right in history.awake(start, end) for merge in history.merges_between(left, right)]
    if not merges:
        return 0.0, 0.0
    return len(merges) / history.seconds(start, end), mean(len(merge["contributions"]) for merge in merges)


def reintegration(history: History) -> Finding | None:
    """Start of the new process to its first merged contribution on a base not older than at its hello."""
    kills = [span for span in history.spans if getattr(span.planned.fault, "restart_after", None) is not None]
    if not kills:
        return None
    within = history.plan.checks.reintegration.within
    took: list[tuple[float, str]] = []
    for span in kills:
        need(span.injected is not None, f"{span.planned.fault.words()} was never injected")
        for target in span.planned.fault.targets:
            took += _returned(history, span, target, within)
    need(took, "every process that was started again was killed before it could be back")
    worst = max(took)
    return Finding(worst[0] <= within, "never" if worst[0] == float("inf") else show_seconds(worst[0]),
                   f"≤ {show_seconds(within)}", [words for _, words in sorted(took, reverse=True)])


def _returned(history: History, span: Span, target: str, within: float) -> list[tuple[float, str]]:
    """(seconds from start to the first merged contribution, in words); infinite where the bound passed without one,
    none where the new process was hit by the next fault before it could be back."""
    spawn = next((event for event in history.tape.of("spawn", node="harness")
                  if event["target"] == target and event.t >= (span.injected or 0)
                  and not _ended_with_all(history, event)), None)
    if spawn is None:
        raise Unknown(f"{target} was not started again")
    incarnation = spawn["incarnation"]
    after = [merge for merge in history.merges if merge.t > spawn.t]
    if target == SYNCER:
        first = next((merge for merge in after if merge.incarnation == incarnation), None)
    else:
        hello = next((event for event in history.tape.of("hello", node=SYNCER) if event.t > spawn.t
                      and event["learner"] == target and event["incarnation"] == incarnation), None)
        first = next((merge for merge in after if hello and merge.t > hello.t and any(
            part["learner"] == target and part["incarnation"] == incarnation
            and part["base"] >= hello["versions"][merge["fragment"]] for part in merge["contributions"])), None)
    if first is not None:
        return [(history.seconds(spawn.t, first.t),
                 f"{target}.{incarnation} started at {spawn.t:.2f} s, merged from at {first.t:.2f} s")]
    again = next((event.t for event in history.tape.of("exit", node="harness") if event["target"] == target
                  and event["incarnation"] == incarnation and event.fields.get("killed")), float("inf"))
    if history.seconds(spawn.t, again) <= within:
        return []
    need(history.seconds(spawn.t, history.end) >= within,
         f"{target}.{incarnation} was not merged from before the run ended")
    return [(float("inf"), f"{target}.{incarnation} started at {spawn.t:.2f} s and was never merged from")]


def _ended_with_all(history: History, spawn: Event) -> bool:
    """Whether a process had not been merged from when the whole run was ended: its successor has to come back."""
    merged = next((merge.t for merge in history.merges if merge.t > spawn.t and any(
        (part["learner"], part["incarnation"]) == (spawn["target"], spawn["incarnation"])
        for part in merge["contributions"])), math.inf)
    return any(spawn.t < down < merged and spawn["target"] != SYNCER for down, _ in history.outages)


def blast_radius(history: History) -> Finding | None:
    """Learners that were not hit keep 90% of their nominal pace while others are hit."""
    if not history.plan.faults:
        return None
    need(history.plan.cluster.step_time > 0, "without pace there is no nominal speed")
    bound = history.plan.checks.blast_radius.at_least
    found: list[tuple[float, str]] = []
    busy: list[str] = []
    windows = _windows(history)
    for start, end, words_of in windows:
        hit = _hit(history, start, end)
        for learner in history.plan.cluster.names:
            if learner not in hit and end - start >= _LEAST_BASELINE_S and _there(history, learner, start):
                nominal = history.step_time(learner)
                pace = history.steps_between(learner, start, end) * nominal / (end - start)
                words = f"{learner} at {pace:.0%} of its pace during: {words_of}"
                if 0 < pace < bound and (took := _computing(history, learner, start, end)) > nominal:
                    busy.append(f"{words}; but this machine was too busy: a step alone took {took * 1e3:.0f} ms")
                else:
                    found.append((pace, words))
    if busy and all(pace >= bound for pace, _ in found):
        raise Unknown(busy[0])
    if not found and windows and all(_hit(history, *window[:2]).issuperset(history.plan.cluster.names)
                                     for window in windows):
        return None  # everybody was hit, always: there is nobody that this could be about
    need(found, "no learner was left alone long enough to tell")
    found.sort()
    return Finding(found[0][0] >= bound, f"{found[0][0]:.0%} of nominal pace", f"≥ {bound:.0%}",
                   [words for _, words in found[:3]])


def _there(history: History, learner: str, at: float) -> bool:
    """Whether a learner had begun to train by then: one that joins later can't be hit before."""
    return learner in history.plan.cluster.starters or any(
        events[0].t <= at - WINDOW_S for (name, _), events in history.steps.items() if name == learner and events)


def _windows(history: History) -> list[tuple[float, float, str]]:
    """(start, end, in words) of every fault, two seconds at least."""
    windows = []
    for span in history.spans:
        if span.injected is not None:
            end = min(max(history.until(span), span.injected + WINDOW_S), history.end)
            if history.was_up(span.injected, end):  # else everybody was down for a while
                windows.append((span.injected, end, span.planned.fault.words()))
    return windows


def _hit(history: History, start: float, end: float) -> set[str]:
    """Learners that any fault was on, or had been on shortly before."""
    learners = history.plan.cluster.names
    hit = {target for span in history.spans for target in span.planned.fault.struck(learners)
           if span.overlaps(start - WINDOW_S, end) or _coming_back(history, span, target, start)}
    return hit & set(learners)


def _coming_back(history: History, span: Span, target: str, at: float) -> bool:
    """Whether a process that was started again had hardly begun to train: `reintegration` judges how long that takes,
    and in a container it takes longer."""
    fault = span.planned.fault
    began = span.injected if isinstance(fault, Zombie) else span.ended if fault.downs else None
    if began is None or began > at or target not in fault.targets:
        return False
    first = min((events[0].t for (name, _), events in history.steps.items()
                 if name == target and events and events[0].t > began), default=float("inf"))
    return first > at - WINDOW_S


def _computing(history: History, learner: str, start: float, end: float) -> float:
    """Median time that a learner's inner steps took to compute, without what it waited for."""
    return median(float(event.t - event["began"]) for (name, _), events in history.steps.items() if name == learner
                  for event in events if start <= event.t < end)


def participation(history: History) -> Finding | None:
    """A learner's share of the rounds while it is far; if it never is, while other faults that last hit it."""
    bounds = history.plan.checks.participation
    if not bounds:
        return None
    measured, allowed, evidence, holds = [], [], [], True
    for bound in bounds:
        mine = [span for span in history.spans if bound.learner in span.planned.fault.targets
                and span.planned.fault.lasts]
        mine = [span for span in mine if isinstance(span.planned.fault, Latency)] or mine
        windows = [(span.injected, span.ended if span.ended is not None else history.end) for span in mine
                   if span.injected is not None]
        rounds = [merge for start, end in windows for merge in history.merges_between(start, end)]
        if not windows and not any(bound.learner in planned.fault.targets for planned in history.plan.faults):
            rounds = history.merges_between(zero(history), history.end)
        need(len(rounds) >= _LEAST_MERGES, f"fewer than {_LEAST_MERGES} rounds while {bound.learner} was far")
        share = mean(any(part["learner"] == bound.learner for part in merge["contributions"]) for merge in rounds)
        holds &= bound.at_least is None or share >= bound.at_least
        holds &= bound.at_most is None or share <= bound.at_most
        measured.append(f"{bound.learner} {share:.0%}")
        allowed += [f"≥ {bound.at_least:.0%}"] if bound.at_least is not None else []
        allowed += [f"≤ {bound.at_most:.0%}"] if bound.at_most is not None else []
        evidence.append(f"{bound.learner} contributed to {share * len(rounds):.0f} of {len(rounds)} rounds")
    return Finding(holds, ", ".join(measured), ", ".join(allowed), evidence)
