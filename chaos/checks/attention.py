"""Does the coordinator attend to every learner: is each asked, and is one that falls silent missed?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from diloco_chaos.chaos.checks.base import Figure, Finding, Late, at_least, at_most, beside, check, hindered, need
from diloco_chaos.chaos.evidence.accounting.parts import parts_of
from diloco_chaos.chaos.evidence.availability import SETTLED_S, Availability
from diloco_chaos.chaos.evidence.history import History, Span
from diloco_chaos.harness.base.lines import Line, line
from diloco_chaos.harness.base.tensors import np
from diloco_chaos.harness.base.units import show_seconds
from diloco_chaos.harness.record.tape.events import Hello, Lost, Merge

_LEAST_ROUNDS = 20
_MOST = 0.5
_SLACK_S = 1.0
"""What was under way may arrive a little later, and the coordinator looks now and then."""


@check(needs={"sound run", "protocol"}, unverified="judged")
def silence_noticed(history: History) -> Finding | None:
    """A learner that is cut off, or stands still, is taken for gone within `heartbeat_timeout` and a heartbeat."""
    cluster = history.plan.cluster
    within = cluster.heartbeat_timeout + cluster.sign_s + _SLACK_S
    took: list[tuple[float, Line, Late]] = []
    for span, learner in _silences(history, within):
        lost = next((event.t for event in history.tape.of(Lost, node=history.recorder) if event.learner == learner
                     and event.t >= span.began - _SLACK_S), history.end)
        took.append((lost - span.began, line(
            f"{learner}: {span.planned.describe()} from ", span.began,
            f" on; taken for gone after {show_seconds(lost - span.began)}"), Late(span.began, lost, within)))
    if not took:
        return None  # no learner was silent for so long
    took.sort(key=lambda entry: -entry[0])
    longest, limit = beside(took[0][0], within)
    return Finding(took[0][0] <= within, longest, at_most(limit), [words for _, words, _ in took[:3]],
                   [late for _, _, late in took],
                   [Figure(value=took[0][0], limit=within, unit="s")])


@check(needs={"fragments"}, unverified="judged")
def nobody_starves(history: History) -> Finding | None:
    """While no node is hit, every learner is asked in most rounds; where all are alike, it is merged from in most.
    While others are hit, but not the syncer, a learner is asked in most, too."""
    start, availability = _all_connected(history), history.once(Availability)
    rounds = [merge for merge in history.merges
              if merge.opened >= start and availability.untouched(history.recorder, merge.opened, merge.t)]
    quiet, others = list[Merge](), list[Merge]()
    for merge in rounds:
        (quiet if availability.quiet(merge.opened, merge.t) else others).append(merge)
    shares = list[tuple[float, str]]()
    if history.plan.cluster.merges_from_all:
        merged = _merged(quiet)
        for learner in history.plan.cluster.starters:
            shares += _share(quiet, merged[learner], f"{learner} was merged from")
    for learner in history.plan.cluster.starters:
        shares += _share(quiet, sum(learner in merge.asked for merge in quiet), f"{learner} was asked")
        beside_it = [merge for merge in others if availability.untouched(learner, merge.opened, merge.t)]
        shares += _share(beside_it, sum(learner in merge.asked for merge in beside_it),
                         f"while others were hit {learner} was asked")
    if not shares:
        return None  # somebody was hit nearly all the time
    least = min(share for share, _ in shares)
    return Finding(least >= _MOST, f"least {least:.0%}", at_least(f"{_MOST:.0%}"),
                   [words for _, words in sorted(shares)[:3]],
                   [] if least >= _MOST else [hindered(rounds[0].opened, rounds[-1].t, 1 - least / _MOST)],
                   figures=[Figure(value=least, limit=_MOST, best=1.0, unit="share")])


def _share(rounds: Sequence[Merge], number: int, words: str) -> list[tuple[float, str]]:
    """Return the share of these rounds that this number is, and words for it; nothing of too few rounds."""
    if len(rounds) < _LEAST_ROUNDS:
        return []
    share = number / len(rounds)
    return [(share, f"{words} in {share:.0%} of {len(rounds)} rounds")]


def _merged(rounds: Sequence[Merge]) -> Counter[str]:
    """Return in how many of these rounds each learner had a part."""
    parts = parts_of(rounds)
    names, learner = parts.learners
    once = np.unique(parts.merge * len(names) + learner) % max(len(names), 1)
    return Counter(dict(zip(names, np.bincount(once, minlength=len(names)).tolist(), strict=True)))


def _all_connected(history: History) -> float:
    """Return when every learner was connected and settled, in seconds: the steady state, which comes once the syncer
    has merged from all, would assume what is asked here."""
    hello = {event.learner: event.t for event in reversed(history.tape.of(Hello, node=history.recorder))}
    need(hello.keys() >= set(history.plan.cluster.starters), "somebody never came")
    return max(hello[learner] for learner in history.plan.cluster.starters) + SETTLED_S


def _silences(history: History, within: float) -> Iterator[tuple[Span, str]]:
    """Yield the learners that fell silent by a fault for longer than that many seconds, while the coordinator took them
    to be there and was left alone."""
    for span in history.spans:
        if (span.injected is None or history.until(span) - span.injected <= within
                or history.coordinator_down(span.injected, span.injected + within)
                or any(other is not span and history.coordinator in other.planned.fault.targets
                       and other.overlaps(span.injected - within, span.injected + within) for other in history.spans)):
            continue
        yield from ((span, learner) for learner in _silenced(history, span)
                    if _connected(history, learner, span.injected))


def _silenced(history: History, span: Span) -> list[str]:
    """Learners of which nothing is heard while this fault lasts."""
    fault, names = span.planned.fault, history.plan.cluster.names
    if not fault.mutes_target() or not fault.reversible:
        return []
    return [name for name in fault.affected_nodes(names) if name in names]


def _connected(history: History, learner: str, at: float) -> bool:
    """Return whether the coordinator took this learner to be connected at that time."""
    last = None
    for event in history.tape.of(Hello, Lost, node=history.recorder):
        if event.t <= at and event.learner == learner:
            last = event.event
    return last == "hello"
