"""Did training go on, did the learners that were hit come back, was no other hit?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import mean, median
from typing import NamedTuple

from diloco_chaos.chaos.checks.base import (
    Bound,
    Figure,
    Finding,
    Late,
    Unknown,
    all_made,
    at_least,
    at_most,
    beside,
    check,
    first_done,
    hindered,
    longer,
    need,
    need_before,
    zero,
)
from diloco_chaos.chaos.evidence.availability import Availability
from diloco_chaos.chaos.evidence.history import History, Span
from diloco_chaos.chaos.evidence.members import hit_by, members
from diloco_chaos.chaos.evidence.phases import WINDOW_S, pulse
from diloco_chaos.chaos.scenario.bounds import AtLeast, Participation, Within
from diloco_chaos.faults.base import Fault
from diloco_chaos.faults.inner import OfProcess
from diloco_chaos.harness.base.lines import Line, line, text
from diloco_chaos.harness.base.units import show_seconds
from diloco_chaos.harness.record.tape.events import (
    Corrupted,
    Exit,
    Hello,
    Initial,
    Merge,
    OuterGradient,
    Ready,
    Received,
    Refused,
    Reset,
    Resumed,
    Spawn,
)
from diloco_chaos.harness.record.tape.series import times, values
from diloco_chaos.harness.trainers.api.settings import TrainerSettings

_LEAST_BASELINE_S = 1.0
_LEAST_MERGES = 8
_DEVIATIONS = 4
_GAPS_OF_A_WINDOW = 2
_TOO_MUCH = 0.4
"""Such a share is taken to be lacking of the others, where one has a part in too many rounds."""


@check(Within)
def self_healing(history: History, bound: Within) -> Finding | None:
    """Merge rate and number of contributors back within 10% of what the living can do, going by what was before, within
    the scenario's bound."""
    if not history.plan.faults or (history.plan.checks.excuses_outages and history.plan.cluster.blocking):
        return None  # where all wait for all, and that is excused, no_global_stall tells all that there is
    start, within = zero(history), bound.within
    window = window_s(history.plan.cluster) if history.plan.checks.excuses_outages else WINDOW_S
    need_before(history.seconds(start, history.first_fault),
                window if history.plan.checks.excuses_outages else _LEAST_BASELINE_S,
                f"how often {history.plan.trainer.counting.made}s came")
    rate, contributors = pulse(history, start, history.first_fault)
    need(rate, f"no {history.plan.trainer.counting.made}s before the first fault")
    if history.plan.checks.excuses_outages:
        rate -= 1 / history.seconds(start, history.first_fault)  # it is known to one merge
        contributors = contributors if history.plan.cluster.merges_from_all else history.plan.cluster.learners_needed
    ends = [end for span in history.spans if (end := span.injected if span.ended is None else span.ended) is not None]
    need(ends, "no fault was injected", longer(history))
    last = max(ends)
    before = _pulse_in_words(history, rate, contributors)
    paced = history.plan.cluster.merges_per_s(history.plan.cluster.starters)
    if rate > paced:  # steps that are late now and then: the global clock follows who is ahead, and outruns them all
        before += f", where their pace makes {paced:.1f}"
        rate = paced
    if history.dead_for_good - {history.coordinator}:
        rate, contributors = _of_the_living(history, rate, contributors)
        before += _expected(history, rate, contributors)
    end = first_done(history)
    for at in _moments(history, _all_back(history, last), end, window):
        now_rate, now_contributors = pulse(history, at, at + window)
        if _as_good(history, now_rate, rate, window) and now_contributors >= 0.9 * contributors:
            if not _lasts(history, at, end, rate, contributors, window):
                return Finding(False, "healed, but not to the end", at_most(show_seconds(within)),
                               [f"before: {before}"],
                               [_below(history, max(at, end - 2 * window), end, rate, contributors)],
                               [Figure(value=None, limit=within, unit="s")])
            seconds = _healing_s(history, last, at)
            words, limit = beside(seconds, within)
            took = f"{words} after the last fault" if seconds else "0 s (no interruption)"
            return Finding(seconds <= within, took, at_most(limit), [
                line(f"before: {before}; from ", at,
                     f" on: {_pulse_in_words(history, now_rate, now_contributors)}")],
                [Late(last, at, within)], [Figure(value=seconds, limit=within, unit="s")])
    need(_healing_s(history, last, end) >= within + window, "the run ended before the time to heal was over" if
         end == history.end else "a worker had made all its rounds before the time to heal was over", longer(history))
    now_rate, now_contributors = pulse(history, end - window, end)
    return Finding(False, "never", at_most(show_seconds(within)), [
        f"before: {before}; at the end: {_pulse_in_words(history, now_rate, now_contributors)}"],
        [Late(last, end, within + window) if history.plan.checks.excuses_outages else
         _below(history, last + within, end, rate, contributors)], [Figure(value=None, limit=within, unit="s")])


def _all_back(history: History, last: float) -> float:
    """Return from when on a rate can be what it was, in seconds: where outages are excused, no node may be out any
    more, or what piles up in an outage counts as healed."""
    if not history.plan.checks.excuses_outages:
        return last
    all_workers = set(history.plan.cluster.names) - history.dead_for_good
    away = [piece.end for piece in history.once(Availability).pieces(last, history.end)
            if not piece.coordinator or len(piece.present) < len(all_workers)]
    return max(away, default=last)


def _pulse_in_words(history: History, rate: float, contributors: float) -> str:
    counting = history.plan.trainer.counting
    return f"{rate:.1f} {counting.made}s/s from {contributors:.1f} {counting.worker}s"


def window_s(cluster: TrainerSettings) -> float:
    """Return over how many seconds merge rate and contributors are measured where merges may be anywhere: over so many
    that there are several in any case."""
    longest = cluster.longest_gap_s(cluster.names)
    return max(WINDOW_S, _GAPS_OF_A_WINDOW * longest) if math.isfinite(longest) else WINDOW_S


def _healing_s(history: History, start: float, end: float) -> float:
    """Return the seconds that count as healing: where outages are excused, none in which a node still was out by a
    fault."""
    if not history.plan.checks.excuses_outages:
        return history.seconds(start, end)
    availability, needed = history.once(Availability), len(set(history.plan.cluster.names) - history.dead_for_good)
    return sum(history.seconds(piece.start, piece.end) for piece in availability.pieces(start, end)
               if piece.coordinator and len(piece.present) >= needed)


def _returning_s(history: History, span: Span, target: str, start: float, end: float) -> float:
    """Seconds that count as coming back: where outages are excused, none that other faults took."""
    if not history.plan.checks.excuses_outages:
        return history.seconds(start, end)
    others = Availability(history, span.id)
    out_s = others.unable_s(start, end) if target == history.coordinator else others.out_s(target, start, end)
    return history.seconds(start, end) - out_s


def _below(history: History, start: float, end: float, rate: float, contributors: float) -> Late:
    """Return the time in which merges are too few, or too few take part in them, against what is given."""
    now_rate, now_contributors = pulse(history, start, end)
    asked = ((now_rate, 0.9 * rate), (now_contributors, 0.9 * contributors))
    return hindered(start, end, 1 - min(now / least if least > 0 else 1.0 for now, least in asked))


def _of_the_living(history: History, rate: float, contributors: float) -> tuple[float, float]:
    """Return the rate of merges and the contributors to expect of the learners that are left, where some are dead for
    good: as many merges as the K-th quickest of them makes, from as many as there are. Where they are no quorum, return
    what was before: that is a run that can't heal."""
    cluster = history.plan.cluster
    left = set(cluster.names) - history.dead_for_good
    before = cluster.merging_speed(cluster.starters)
    slower = min(1.0, cluster.merging_speed(left) / before) if before else 1.0
    return rate * (slower or 1.0), contributors * min(1.0, len(left) / len(cluster.starters))


def _expected(history: History, rate: float, contributors: float) -> str:
    """Return what `_of_the_living` says, in words."""
    left = len(set(history.plan.cluster.names) - history.dead_for_good)
    if left < history.plan.cluster.learners_needed:
        return f"; {left} are left, fewer than the quorum of {history.plan.cluster.learners_needed}"
    return f", {rate:.1f} from {contributors:.1f} to be expected of those who are left"


def _as_good(history: History, now: float, before: float, seconds: float) -> bool:
    """Return whether a rate is within 10% of what it was; where merges may be anywhere, it may also lack one merge."""
    return now >= 0.9 * before or (history.plan.checks.excuses_outages and now * seconds >= 0.9 * before * seconds - 1)


def _lasts(history: History, healed: float, end: float, rate: float, contributors: float, window: float) -> bool:
    """Return whether the end is as good as the moment at which the cluster had healed, to all merges that come at once:
    the two may overlap, and part of them decides nothing."""
    start = max(healed, end - 2 * window)
    now_rate, now_contributors = pulse(history, start, end)
    seconds = end - start
    merges = round(now_rate * seconds) > math.floor(0.9 * rate * seconds) - history.plan.cluster.merges_at_once
    return (merges or _as_good(history, now_rate, rate, seconds)) and now_contributors >= 0.9 * contributors


def _moments(history: History, start: float, end: float, window: float) -> Iterator[float]:
    """The fault's end, and every merge after it, as far as a whole window follows in which everything was up."""
    yield from (at for at in [start, *(merge.t for merge in history.merges if merge.t > start)]
                if at + window <= end and history.was_up(at, at + window))


@check(Within)
def reintegration(history: History, bound: Within) -> Finding | None:
    """A new process is merged from within the bound after its start, on a base not older than at its hello; a learner
    whose memory failed, within the bound after that, by steps that it made later."""
    kills = [span for span in history.spans if span.planned.fault.starts_process()]
    failed = [span for span in history.spans if span.planned.fault.corrupts_memory]
    if not kills and not failed:
        return None
    within = bound.within
    took: list[_Return] = []
    for span in kills:
        need(span.injected is not None, f"{span.planned.describe()} was never injected", longer(history))
        for target in span.planned.fault.joining() or span.planned.fault.targets:
            took += _returned(history, span, target, within)
    for span in failed:
        for target in span.planned.fault.targets:
            took += _recovered(history, span, target, within)
    need(took, "everybody who was hit was killed before it could be back")
    took.sort(key=lambda returned: (returned.seconds, text(returned.words)), reverse=True)
    worst = took[0]
    longest, limit = beside(worst.seconds, within) if worst.seconds < math.inf else ("never", show_seconds(within))
    return Finding(worst.seconds <= within, longest, at_most(limit), [returned.words for returned in took],
                   [Late(returned.start, returned.end, within) for returned in took],
                   [Figure(value=None if worst.seconds == math.inf else worst.seconds, limit=within, unit="s")])


class _Return(NamedTuple):
    """The time in seconds that a learner took to come back; infinite where the bound passed without it."""

    seconds: float
    words: Line
    start: float
    end: float


def _returned(history: History, span: Span, target: str, within: float) -> list[_Return]:
    """Return the time from a target's start to its first merged contribution; none where the new process was hit by the
    next fault before it could be back."""
    spawn = next((event for event in history.tape.of(Spawn, node="harness")
                  if event.target == target and event.t >= (span.injected or 0)
                  and not _ended_with_all(history, event)), None)
    if spawn is None:
        raise Unknown(f"{target} was not started again")
    incarnation, merges = spawn.incarnation, target in (history.coordinator, *history.plan.cluster.names)
    after, taken = [merge for merge in history.merges if merge.t > spawn.t], history.plan.trainer.counting.taken
    wanted = _members_before(history, span) if history.plan.trainer.is_silent(target) else 0
    first: Merge | Received | None
    if target == history.coordinator:
        first = next((merge for merge in after if merge.inc == incarnation), None)
    elif not merges:
        # it tells of no round: the others' work goes on, with it if it is one of those that train
        first = next((merge for merge in after if members(merge) >= wanted), None)
    else:
        first = _counted(history, target, incarnation, spawn.t)
    if first is not None:
        verb = ("beaten by quicker ones, which its cluster allows," if not isinstance(first, Merge) else
                "first merged again" if target == history.coordinator else
                f"first {taken}" if merges else
                f"and the next round of {wanted} members was" if wanted else "and the next round was")
        words = line(f"{target}.{incarnation} started at ", spawn.t, f", {verb} at ", first.t,
                     _refused(history, target, [(spawn.t, first.t)]))
        return [_Return(_returning_s(history, span, target, spawn.t, first.t), words, spawn.t, first.t)]
    again = next((event.t for event in history.tape.of(Exit, node="harness") if event.target == target
                  and event.incarnation == incarnation and event.killed), float("inf"))
    if _returning_s(history, span, target, spawn.t, min(again, history.end)) <= within and again < history.end:
        return []
    need(_returning_s(history, span, target, spawn.t, history.end) >= within,
         f"{target}.{incarnation} was not {taken} before the run ended", longer(history))
    never = (f"was never {taken}" if merges else f"no round had {wanted} members after that" if wanted else
             "no round was finished after that")
    return [_Return(math.inf, line(f"{target}.{incarnation} started at ", spawn.t, f" and {never}"), spawn.t,
                    history.end)]


def _members_before(history: History, span: Span) -> int:
    """Return how many members rounds had before a fault, by the word of those who tell of rounds.

    Raises:
        Unknown: none of them said so.
    """
    counted = [members(merge) for merge in history.merges if zero(history) <= merge.t < span.began
               and any(part.members for part in merge.contributions)]
    need(counted, "no round before the fault said how many members it had: without that nothing is known of a worker "
                  "that tells of no round", "a group `members` in the others' `progress`")
    return round(median(counted))


def _counted(history: History, learner: str, incarnation: int, since: float) -> Merge | Received | None:
    """Return the first merge of this process's work on a base as new as at its hello.

    Where a cluster waits for no learner: or the first version that it received of a round in which it was asked, since
    by its phase it may be beaten in many of them."""
    hello = next((event for event in history.tape.of(Hello, node=history.recorder) if event.t > since
                  and (event.learner, event.incarnation) == (learner, incarnation)), None)
    if hello is None:
        return None
    merged = next((merge for merge in history.merges if merge.t > hello.t and any(
        (part.learner, part.incarnation) == (learner, incarnation)
        and part.base >= hello.versions[merge.fragment] for part in merge.contributions)), None)
    firsts: tuple[Merge | Received | None, ...] = merged, _beaten(history, learner, incarnation, hello.t)
    return _earliest(firsts)


def _earliest(events: Iterable[Merge | Received | None]) -> Merge | Received | None:
    happened = [event for event in events if event is not None]
    return min(happened, key=lambda event: event.t, default=None)


def _beaten(history: History, learner: str, incarnation: int, since: float) -> Received | None:
    """Return what a process received of the first round in which it was asked since then, where a cluster waits for no
    learner; else None."""
    if not history.plan.cluster.waits_for_nobody:
        return None
    asked = {(merge.fragment, merge.version) for merge in history.merges
             if merge.t > since and learner in merge.asked}
    received = history.tape.series(Received).get((learner, incarnation), ())
    return next((event for event in received if (event.fragment, event.version) in asked), None)


def _recovered(history: History, span: Span, target: str, within: float) -> list[_Return]:
    """The same for a learner whose memory failed: what it made before may be lost, what it makes then must count."""
    hit = next((event for event in history.tape.of(Corrupted, node=target)
                if event.fault == span.planned.id), None)
    if hit is None:
        raise Unknown(f"the memory of {target} never failed")
    merged = next((merge for merge in history.merges if merge.t > hit.t and any(
        (part.learner, part.incarnation) == (target, hit.inc) and part.first > hit.step
        for part in merge.contributions)), None)
    answers = history.tape.series(OuterGradient).get((target, hit.inc), ())
    sent = next((event.t for event in answers if event.t > hit.t and event.first > hit.step), math.inf)
    firsts: tuple[Merge | Received | None, ...] = merged, _beaten(history, target, hit.inc, sent)
    first = _earliest(firsts)
    if first is not None:
        verb = "merged" if isinstance(first, Merge) else "beaten by quicker ones, which its cluster allows,"
        words = line(f"the memory of {target} failed at ", hit.t, f", what it learned later was {verb} at ", first.t)
        return [_Return(_returning_s(history, span, target, hit.t, first.t), words, hit.t, first.t)]
    gone = next((event.t for event in history.tape.of(Exit, node="harness") if event.target == target
                 and event.incarnation == hit.inc and event.t > hit.t), float("inf"))
    if history.seconds(hit.t, gone) <= within:
        return []
    need(_returning_s(history, span, target, hit.t, history.end) >= within,
         f"the run ended before {target} could recover", longer(history))
    return [_Return(math.inf, line(f"the memory of {target} failed at ", hit.t,
                                   ", and it was never merged from again"), hit.t, history.end)]


def _ended_with_all(history: History, spawn: Spawn) -> bool:
    """Return whether a process had not been merged from when the whole run was ended: its successor has to come back.
    """
    if spawn.target == history.coordinator or not history.outages:
        return False
    merged = next((merge.t for merge in history.merges if merge.t > spawn.t and any(
        (part.learner, part.incarnation) == (spawn.target, spawn.incarnation)
        for part in merge.contributions)), math.inf)
    return any(spawn.t < down < merged for down, _ in history.outages)


@check(AtLeast)
def blast_radius(history: History, bound: AtLeast) -> Finding | None:
    """Learners, and ranks of one that are told apart, keep 90% of their nominal pace while others are hit."""
    if not history.plan.faults or (history.plan.checks.excuses_outages and history.plan.cluster.blocking):
        return None
    need(history.plan.cluster.step_time > 0 or math.isfinite(history.plan.trainer.counting.steps_for_pace),
         "without pace there is no nominal speed")
    need(all(map(history.step_time, _starters(history))),
         "too few rounds before the first fault to know the pace of every worker")
    least = bound.at_least
    paces: list[tuple[float, float, str, str, Late]] = []  # beyond what is allowed, pace, whose, words
    busy: list[str] = []
    windows = _windows(history)
    for start, end, words_of in windows:
        hit = _hit(history, start, end)
        for learner, worker in _members(history):
            known = history.step_time(learner) > 0  # who came later may have no pace of its own from before
            if (learner not in hit and known and end - start >= _LEAST_BASELINE_S and _training(history, worker, start)
                    and not _without_memory(history, worker, start, end)):
                pace = history.pace(learner, start, end)
                lost = _lost_computing(history, learner, start, end) if history.plan.cluster.step_time else 0.0
                words = f"{learner} at {pace:.0%} of its pace during: {words_of}"
                allowed = least - _by_chance(history, learner, end - start) - _unfinished(history, learner, start, end)
                if pace < allowed <= pace + lost / (end - start) and (starting := _starting(history, start, end)):
                    busy.append(f"{words}; but steps took {show_seconds(lost)} longer to compute than nominal, while "
                                f"{starting} was being started")
                else:
                    paces.append((pace - allowed, pace, learner, words,
                                  hindered(start, end, 1 - pace / allowed if allowed > 0 else 0.0)))
    if busy and all(beyond >= 0 for beyond, *_ in paces):
        raise Unknown(busy[0])
    if not paces and windows and all(_hit(history, *window[:2]).issuperset(member for member, _ in _members(history))
                                     for window in windows):
        return None  # all learners were hit, always: there is none that this could be about
    need(paces, "no learner was left alone long enough to tell", "let the faults come farther apart")
    paces.sort()
    beyond, pace, whose, *_ = paces[0]
    slowest: dict[tuple[float, float], str] = {}  # a line for each fault
    for *_, words, late in paces:
        slowest.setdefault((late.start, late.end), words)
    return Finding(beyond >= 0, f"{whose} at {pace:.0%} of its pace", at_least(f"{pace - beyond:.0%}"),
                   list(slowest.values())[:3], [late for beyond, *_, late in paces if beyond < 0],
                   [Figure(value=pace, limit=pace - beyond, best=1.0, unit="share")])


def _members(history: History) -> list[tuple[str, str]]:
    """Return every member of rounds, with the worker that it is of."""
    return [(member, worker) for worker, members in history.members.items() for member in members]


def _starters(history: History) -> list[str]:
    """Return the members whose pace must be known: those that are there from the beginning."""
    return [member for member, worker in _members(history) if worker in history.plan.cluster.starters
            and (member == worker or history.moments(member)[0] < history.first_fault)]


def _by_chance(history: History, learner: str, seconds: float) -> float:
    """Return how far below nominal the pace of steps that vary may be, as a share: they are even between 1 - v and 1 +
    v times nominal, so the mean of n of them has a deviation of v / sqrt(3 n); four of these are as good as never
    exceeded."""
    steps = seconds / history.step_time(learner)
    return _DEVIATIONS * history.plan.cluster.variance / math.sqrt(3 * max(steps, 1.0))


def _unfinished(history: History, learner: str, start: float, end: float) -> float:
    """Return the share of pace that the step under way when training ends would have added: no node records it. It may
    be the one at the border."""
    nominal = history.step_time(learner)
    return nominal / (end - start) if end + nominal > history.end else 0.0


def _starting(history: History, start: float, end: float) -> str:
    """A process that was being started between: that takes a processor, which a small machine then lacks."""
    for spawn in history.tape.of(Spawn, node="harness"):
        mine = [event.t for event in history.tape.of(Ready, Resumed, Initial, node=spawn.target)
                if event.inc == spawn.incarnation]
        if spawn.t < end and start < min(mine, default=end):
            return f"{spawn.target}.{spawn.incarnation}"
    return ""


def _training(history: History, learner: str, at: float) -> bool:
    """Return whether a learner had begun to train by then: one that joins later can't be hit before."""
    return learner in history.plan.cluster.starters or any(
        events[0].t <= at - WINDOW_S for (name, _), events in history.steps.items() if name == learner and events)


def _without_memory(history: History, learner: str, start: float, end: float) -> bool:
    """Return whether a learner had dropped what it had for a part of this time: only the syncer can give it something
    to train."""
    dropped: float | None = None
    for event in history.tape.of(Reset, Ready, node=learner):
        if isinstance(event, Ready) and dropped is not None and dropped < end and start < event.t:
            return True
        dropped = event.t if isinstance(event, Reset) else None
    return dropped is not None and dropped < end


def _windows(history: History) -> list[tuple[float, float, str]]:
    """(start, end, in words) of every fault, two seconds at least."""
    windows = []
    for span in history.spans:
        if span.injected is not None:
            end = min(max(history.until(span), span.injected + WINDOW_S), history.end)
            if history.was_up(span.injected, end):  # else all nodes were down for a while
                windows.append((span.injected, end, span.planned.describe()))
    return windows


def _hit(history: History, start: float, end: float) -> set[str]:
    """Members that any fault was on, or had been on shortly before; and those that were done."""
    hit = {member for span in history.spans for member in hit_by(span.planned.fault, history.members)
           if span.overlaps(start - WINDOW_S, end) or _coming_back(history, span, member, start)}
    done = [history.members[worker] for worker, moment in all_made(history).items() if moment < end]
    return hit.union(*done)


def _coming_back(history: History, span: Span, member: str, at: float) -> bool:
    """Return whether a process that was started again had hardly begun to train: `reintegration` judges how long that
    takes, and in a container it takes longer."""
    fault, node = span.planned.fault, member.partition("/")[0]
    ends_process = isinstance(fault, OfProcess) and not fault.reversible
    began = span.injected if fault.supersedes or ends_process else span.ended if fault.stops_target else None
    if began is None or began > at or node not in fault.targets or (ends_process and member == node):
        return False
    if member != node:
        firsts = [t for t in history.moments(member) if t > began]
    else:
        firsts = [events[0].t for (name, _), events in history.steps.items()
                  if name == node and events and events[0].t > began]
    return min(firsts, default=float("inf")) > at - WINDOW_S


def _lost_computing(history: History, learner: str, start: float, end: float) -> float:
    """Seconds by which a learner's inner steps took longer to compute than nominal; nothing of what it waited for."""
    nominal = history.step_time(learner)
    return sum(max(0.0, float(t - began) - nominal) for (name, _), events in history.steps.items() if name == learner
               for t, began in zip(times(events), values(events, "began"), strict=True) if start <= t < end)


def _refused(history: History, learner: str, windows: Sequence[tuple[float, float]]) -> str:
    """Say how many answers of a learner the syncer refused in these times, and why; empty where it refused none."""
    reasons = Counter(event.reason for event in history.tape.of(Refused, node=history.recorder)
                      if event.learner == learner and any(start <= event.t < end for start, end in windows))
    refused = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    return f"; of its answers the syncer refused {refused}" if refused else ""


@check(tuple[Participation, ...])
def participation(history: History, bounds: tuple[Participation, ...]) -> Finding | None:
    """A learner, or a rank of one, has its share of the rounds while it is far; if it never is, while other faults that
    last hit it."""
    if not bounds:
        return None
    measured, allowed, evidence, late, holds = list[str](), list[Bound](), list[Line](), list[Late](), True
    figures: list[Figure] = []
    for bound in bounds:
        mine = [span for span in history.spans if _aimed_at(span.planned.fault, bound.learner)
                and span.planned.fault.reversible]
        mine = [span for span in mine if span.planned.fault.delays] or mine
        windows = [(span.injected, span.ended if span.ended is not None else history.end) for span in mine
                   if span.injected is not None]
        rounds = [merge for start, end in windows for merge in history.merges_between(start, end)]
        if not windows and not any(_aimed_at(planned.fault, bound.learner) for planned in history.plan.faults):
            windows = [(zero(history), history.end)]
            rounds = history.merges_between(*windows[0])
        need(len(rounds) >= _LEAST_MERGES, f"fewer than {_LEAST_MERGES} rounds while {bound.learner} was far",
             "let that fault last longer (`for`)")
        share = mean(any(bound.learner in (part.learner, part.member) for part in merge.contributions)
                     for merge in rounds)
        within = share >= (bound.at_least or 0.0) and (bound.at_most is None or share <= bound.at_most)
        holds &= within
        lacking = 1 - share / bound.at_least if bound.at_least and share < bound.at_least else _TOO_MUCH
        late += [] if within else [hindered(*window, lacking) for window in windows]
        said = f"{bound.learner} {share:.0%}"
        measured = [*measured, said] if within else [said, *measured]
        figures += [Figure(of=bound.learner, value=share, limit=limit, best=best, unit="share")
                    for limit, best in ((bound.at_least, 1.0), (bound.at_most, 0.0)) if limit is not None]
        own = [at_least(f"{bound.at_least:.0%}")] if bound.at_least is not None else []
        own += [at_most(f"{bound.at_most:.0%}")] if bound.at_most is not None else []
        allowed += [Bound(f"{bound.learner} {limit}") for limit in own] if len(bounds) > 1 else own
        parts = f", in {len(windows)} parts of that" if len(windows) > 1 else ""
        words = line(f"{bound.learner} contributed to {share * len(rounds):.0f} of {len(rounds)} rounds between ",
                     windows[0][0], " and ", windows[-1][1], parts, _refused(history, bound.learner, windows))
        evidence = [*evidence, words] if within else [words, *evidence]
    return Finding(holds, ", ".join(measured), _together(allowed), evidence, late, figures)


def _aimed_at(fault: Fault, member: str) -> bool:
    """Return whether a fault is on a learner, or on a rank of one: on its node, or its process."""
    node, _, process = member.partition("/")
    return node in fault.targets and (not process or not isinstance(fault, OfProcess) or fault.process == process)


def _together(bounds: Sequence[Bound]) -> Bound:
    """Several in one, of the kind of the first."""
    first, *more = bounds
    return Bound(", ".join([first.words, *map(str, more)]), first.kind)
