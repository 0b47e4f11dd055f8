"""Is what was counted kept, how much is made, and by how many? For trainers whose workers number their rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from diloco_chaos.chaos.checks.base import (
    QUIET_S,
    Figure,
    Finding,
    Late,
    alive,
    at_least,
    at_most,
    check,
    first_done,
    need,
    need_before,
    unnumbered_epochs,
    violations,
    zero,
)
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.evidence.members import hit_by, members
from diloco_chaos.chaos.scenario.bounds import LostRounds, RoundQuorum, Within
from diloco_chaos.faults.inner import OfProcess
from diloco_chaos.harness.base.lines import Line, line, text
from diloco_chaos.harness.base.units import show_seconds
from diloco_chaos.harness.record.tape.events import Exit, Merge, Spawn, StaleRound, Step, Warning

_MOMENT_S = 0.05
_FEW = 5
"""So many rounds may be made without a worker whatever it does: it may just be waiting for the next one."""
_BEHIND = 2
"""A worker that reports a round which is older than this many takes no part in those of the others."""
UNREPORTED = 2
"""Of so many reports in a row the rounds may be missing: a process may be killed after a round and before its report.
"""
_STRIDES = 3
"""So many reports that follow on one another tell how many rounds lie between two."""
SHORTLY_S = 2.0
"""So long after a fault the last rounds from before it may be reported."""


@check(LostRounds, needs={"rounds"}, unverified="judged")
def rounds_never_go_back(history: History, bound: LostRounds) -> Finding:
    """No worker begins again behind rounds that were reported before, by more than the scenario allows; and after a
    fault none goes on beyond rounds that no worker made.

    A process that was started again is held against the newest round of all where they finish rounds together, and of
    its predecessors where each counts its own; one that goes on, against its own.
    """
    steps = sorted(history.tape.of(Step), key=lambda event: event.t)
    need(steps, "no worker told of a round")
    epochs, change = unnumbered_epochs(history)
    need(not epochs, epochs, change)
    together = history.plan.cluster.blocking
    newest: dict[str, int] = {}
    own: dict[tuple[str, int], int] = {}
    lost: list[tuple[int, Line]] = []
    for event in steps:
        process, number = (event.member, event.inc), event.step
        before = own.get(process)
        if before is None:
            others = together and (event.inc > 0 or number > 1)  # a worker's very first round may be late
            before = max((last for member, last in newest.items() if others or member == event.member),
                         default=number)
            verb = "began with"
        else:
            verb = "told of"
        if number < before:
            lost.append((before - number, line(f"{event.member}.{event.inc} {verb} round {number} at ", event.t,
                                               f", when round {before} had been told")))
        own[process] = number
        newest[event.member] = max(newest.get(event.member, 0), number)
    most = max((rounds for rounds, _ in lost), default=0)
    skipped = list(jumps(history))
    evidence = [words for _, words in sorted(lost, key=lambda entry: (entry[0], text(entry[1])), reverse=True)[:3]]
    if most > bound.rounds and len(history.learners) == 1 and history.plan.checks.resumed is None:
        evidence.append(line("for a job that goes on from a checkpoint write `checks: resumable` (docs/resumable.md)"))
    return Finding(most <= bound.rounds and not skipped,
                   f"{most} rounds back" + (f", {sum(jump.skipped for jump in skipped)} skipped" if skipped else ""),
                   at_most(bound.rounds), [*(jump.words for jump in skipped[:3]), *evidence],
                   figures=[Figure(value=most, limit=bound.rounds, unit="rounds")])


class Jump(NamedTuple):
    """The first round after some that no worker reported."""

    step: Step
    newest: int
    """The newest round that any worker had reported before."""

    @property
    def skipped(self) -> int:
        """Rounds that lie between."""
        return self.step.step - self.newest - 1

    @property
    def words(self) -> Line:
        """Say where it is."""
        return line(f"{self.step.node}.{self.step.inc} told of round {self.step.step} at ", self.step.t,
                    f", when round {self.newest} was the newest of all: {self.skipped} were skipped")


def jumps(history: History) -> Iterator[Jump]:
    """Yield where rounds go on, at a fault or shortly after it, beyond more than a report or two that may be missing,
    by what was usual between two reports. Nothing is known of workers that report none, or of lines in a buffer."""
    if any(map(history.plan.trainer.is_silent, history.plan.cluster.names)) or any(
            event.kind == "buffered" for event in history.tape.of(Warning)):
        return
    own: dict[tuple[str, int], int] = {}
    newest, since, strides, stride = -1, 0.0, 0, 0
    for event in sorted(history.tape.of(Step, StaleRound), key=lambda event: event.t):
        number = event.step if isinstance(event, Step) else event.round
        beyond, before = number - newest, own.get((event.node, event.inc))
        if (beyond > UNREPORTED * stride and strides >= _STRIDES and isinstance(event, Step)
                and _at_a_fault(history, since - SHORTLY_S, event.t, begins=before is None)):
            yield Jump(event, newest)
        elif before is not None and number > before:
            strides, stride = strides + 1, max(stride, number - before)
        own[event.node, event.inc] = number
        if beyond > 0:
            newest, since = number, event.t


def _at_a_fault(history: History, start: float, end: float, *, begins: bool) -> bool:
    """Return whether a fault was on between, of a kind that keeps no process that lives from reporting what it makes,
    as one of its files may. `begins`: it is about the first round of a process."""
    faults = [span.planned.fault for span in history.spans if span.overlaps(start, end)]
    return any(begins or fault.stops_target or fault.on_links or isinstance(fault, OfProcess) or fault.kind == "pause"
               for fault in faults)


@check(RoundQuorum, needs={"sound run", "rounds"}, unverified="judged")
def round_quorum(history: History, bound: RoundQuorum) -> Finding:
    """No round after the steady state has fewer members than were promised: the workers that reported it, or as many as
    one of them says. Workers that say different numbers made it apart from each other: the fewest count. None has as
    many as ever while one of those that said so is gone."""
    need(history.plan.cluster.blocking, "workers finish no round together (`shared: false`): each has one member")
    start = zero(history)
    counted = [(members(merge), merge) for merge in history.merges if start <= merge.t <= history.end]
    need(counted, "no round was made after the steady state")
    few = [(count, merge) for count, merge in counted if count < bound.at_least]
    fewest = min(count for count, _ in counted)
    gone = list(_counted_though_gone(history, [merge for _, merge in counted]))
    return Finding(not few and not gone, f"fewest members {fewest}" + (f", {len(gone)} rounds with one that was gone"
                                                                       if gone else ""), at_least(bound.at_least),
                   [line(f"round {merge.round} at ", merge.t, f" had {members(merge)} by the word of "
                         f"{merge.contributions[0].learner}, though {worker} was gone since ", since)
                    for merge, worker, since in gone[:3]]
                   + [line(f"round {merge.round} at ", merge.t, f" had {count}{_by_whom(merge)}")
                      for count, merge in sorted(few, key=lambda entry: entry[0])[:3]],
                   figures=[Figure(value=fewest, limit=bound.at_least, best=sum(history.awaited.values()),
                                   unit="learners")])


def _counted_though_gone(history: History, merges: Sequence[Merge]) -> Iterator[tuple[Merge, str, float]]:
    """Yield rounds that have as many members as any before the first fault, by the word of those who reported them,
    though a worker that said so then has ended some rounds ago and no other process was started since: with whom that
    is, and since when, in seconds."""
    before = [merge for merge in merges if merge.t < history.first_fault and all(_words(merge))]
    most = max(map(members, before), default=0)
    if not before:
        return
    tellers = {part.learner for merge in before for part in merge.contributions}
    gone: dict[str, float] = {}
    events = sorted([*history.tape.of(Spawn, Exit, node="harness"), *merges], key=lambda event: event.t)
    for event in events:
        if isinstance(event, Spawn):
            gone.clear()
        elif isinstance(event, Exit):
            gone |= {event.target: event.t} if event.target in tellers else {}
        elif gone and all(_words(event)) and members(event) >= most:
            worker, since = min(gone.items(), key=itemgetter(1))
            if len(history.merges_between(since + _MOMENT_S, event.t)) > _FEW:
                yield event, worker, since


def _words(merge: Merge) -> dict[int, list[str]]:
    """Return the numbers of members that workers say a round had, 0 where one says nothing -> who says so."""
    words: dict[int, list[str]] = {}
    for part in merge.contributions:
        words.setdefault(part.members or 0, []).append(part.learner)
    return words


def _by_whom(merge: Merge) -> str:
    said = [f"{count} by the word of {' and '.join(workers)}" for count, workers in sorted(_words(merge).items())
            if count]
    return f" ({', '.join(said)})" if len(said) > 1 else ""


@check(Within, needs={"rounds"}, unverified="judged")
def none_left_out(history: History, bound: Within) -> Finding | None:
    """No worker that lives, or rank of one that is told apart, and that no fault has a hold of, stays without a part in
    any round while the others go on, until the end of training: for longer than the bound, and than twice what it ever
    took before, from round to round or from the start of its process to its first round. Ranks may be numbered anew: of
    a node's as many count as there are fewer than before the first fault, or than the scenario says (`ranks`)."""
    count = sum(history.awaited.values())
    if history.zero is None or count < 2:
        return None
    outside = [entry for worker, since in alive(history, history.end).items()
               for entry in [*_outside(history, worker, since, bound), *_never_seen(history, worker, since, bound)]]
    outside.sort(key=lambda entry: entry[0].start)
    longest = max((window.end - window.start for window, _ in outside), default=0.0)
    whose = "workers" if count == len(history.members) else "members"
    return Finding(not outside, f"{len(outside)} of {count} {whose}",
                   f"0 after {show_seconds(bound.within)}", [words for _, words in outside[:3]],
                   late=[window for window, _ in outside],
                   figures=[Figure(value=longest, limit=bound.within, unit="s")] if outside else violations(outside))


def _outside(history: History, worker: str, since: float, bound: Within) -> list[tuple[Late, Line]]:
    """Return the members of a worker that stay without a part in rounds. `since`: when its process was started."""
    outside: list[tuple[Late, Line]] = []
    members = history.members[worker]
    for member in members:
        moments = _parts(history, member)
        last = max([since, *moments, *(history.until(span) for span in history.spans if span.injected is not None
                                       and member in hit_by(span.planned.fault, history.members))])
        usual = max([later - earlier for earlier, later in pairwise(moments)] + _starts(history, worker, moments),
                    default=0.0)
        window = Late(last, history.end, max(bound.within, 2 * usual))
        missed = len(history.merges_between(last + _MOMENT_S, history.end))
        lived = "it lived and no fault had a hold of it" if member == worker else f"{worker} lived"
        if moments and window.end - last > window.allowed and missed > _FEW and not _done(history, member):
            outside.append((window, line(f"{member} had no part in {missed} rounds from ", last,
                                         f" to the end of training, though {lived}")))
    early = sum(min(history.moments(member), default=history.end) < history.first_fault for member in members)
    promised = min(history.plan.trainer.ranks_of(worker) or early, len(members))
    missing = max(0, promised - (len(members) - len(outside)))  # a launcher may have numbered its ranks anew
    return sorted(outside, key=lambda entry: -entry[0].start)[:missing if members != [worker] else 1]


def _never_seen(history: History, worker: str, since: float, bound: Within) -> Iterator[tuple[Late, Line]]:
    """Yield the ranks of a worker that the scenario speaks of, and that had no part in any round."""
    seen = [member for member in history.members[worker] if member != worker]
    window = Late(max(since, zero(history)), history.end, bound.within)
    missed = len(history.merges_between(window.start, window.end))
    if window.end - window.start > window.allowed and missed > _FEW:
        promised = history.plan.trainer.ranks_of(worker)
        for number in range(len(seen) + 1, promised + 1):
            yield window, line(f"member {number} of {promised} of {worker} (`ranks: {promised}`) had no part in "
                               f"{missed} rounds from ", window.start, " to the end of training: "
                               f"{' and '.join(seen) or 'none'} told of any")


def _starts(history: History, worker: str, moments: list[float]) -> list[float]:
    """Return how long each process of a worker took from its start to its first part in a round, in seconds."""
    spawned = [event.t for event in history.tape.of(Spawn, node="harness") if event.target == worker]
    parts = [next((t for t in moments if start < t < end), None)
             for start, end in zip(spawned, [*spawned[1:], history.end], strict=False)]
    return [part - start for start, part in zip(spawned, parts, strict=True) if part is not None]


def _parts(history: History, member: str) -> list[float]:
    """Return when a member had a part in a round, in seconds: by who told of the round, or it reported one of the
    newest."""
    newest, moments = -1, list[float]()
    reported = ((step.t, step.step) for (node, _), steps in history.steps.items() if node == member.partition("/")[0]
                for step in steps if step.member == member)
    for t, number, mine in sorted([*((merge.t, merge.step, any(part.member == member for part in merge.contributions))
                                     for merge in history.merges), *((t, number, True) for t, number in reported)]):
        if mine and number >= newest - _BEHIND:
            moments.append(t)
        newest = max(newest, number)
    return moments


def _done(history: History, member: str) -> bool:
    """Return whether a member has made all rounds that there are to make, or as many as any other."""
    made = [(step.step, step.member) for steps in history.steps.values() for step in steps]
    own = max((last for last, teller in made if teller == member), default=-1)
    return own >= (history.plan.cluster.budget_tokens or max(made)[0])


def goodput_of_rounds(history: History, least: float) -> Finding:
    """New rounds, by their members, held against the pace before the first fault: a round that is made again is no
    progress."""
    start, first, end = zero(history), history.first_fault, first_done(history)
    need_before(first - start, QUIET_S, "the pace")
    own, whole = (_made(history, start, until) / history.seconds(start, until) for until in (first, end))
    need(own > 0, "no round was made before the first fault")
    value = min(1.0, whole / own)
    return Finding(value >= least, f"{value:.1%}", at_least(f"{least:.1%}"),
                   [f"{whole:.2f} members' rounds in a second after the steady state, and {own:.2f} before the first "
                    f"fault"], figures=[Figure(value=value, limit=least, best=1.0, unit="share")])


def _made(history: History, start: float, end: float) -> int:
    """Members of the rounds that were made in [start, end), each round once."""
    newest: dict[str, int] = {}
    made = 0
    for merge in history.merges:
        whose = "" if history.plan.cluster.blocking else merge.contributions[0].learner
        if merge.step > newest.get(whose, -1):
            newest[whose] = merge.step
            made += members(merge) if start <= merge.t < end else 0
    return made
