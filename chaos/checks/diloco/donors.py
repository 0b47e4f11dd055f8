"""Does a new process begin with what another learner holds, where the plan has it so?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from diloco_chaos.chaos.checks.base import Figure, Finding, Late, check, rules_of, zero
from diloco_chaos.chaos.evidence.availability import SETTLED_S, Availability
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.harness.base.lines import Line, line
from diloco_chaos.harness.base.units import show_seconds
from diloco_chaos.harness.record.tape.events import (
    Donated,
    Hello,
    Lost,
    Received,
    Recovering,
    Renewed,
)

_MOMENT_S = 0.2
"""Seconds by which clocks, and what is on the way, may be apart."""

_Wrong = tuple[Line, Late]


class _Way(NamedTuple):
    """How a learner that has nothing was brought up to date."""

    learner: str
    t: float
    roads: tuple[Recovering, ...]
    """Who was asked, in order."""
    until: float
    """When it began anew, or training ended."""
    syncer: int
    """Which process of the syncer knew of it."""


@check(needs={"fragments"}, unverified="judged")
def recovered_from_peers(history: History) -> Finding | None:
    """With `recovery: peer` a learner that has nothing gets it from another one that no fault has a hold of, which
    hands it over within `heartbeat_timeout`; never from the syncer while there is such a learner (arXiv 2604.21428,
    recovery)."""
    if not rules_of(history).from_peers:
        return None
    found = [each for way in _ways(history) for each in (*_by_the_syncer(history, way), *_by_donors(history, way))]
    if not found:
        return None  # nobody had lost everything while another learner was left alone
    wrong = [each for each in found if each is not None]
    return Finding(not wrong, f"{len(wrong)} of {len(found)}", "0", [words for words, _ in wrong[:3]],
                   [late for _, late in wrong], [Figure(value=len(wrong), limit=0, unit="violations")])


def _by_the_syncer(history: History, way: _Way) -> Iterator[_Wrong | None]:
    """Yield what is wrong where the syncer did it itself at once; nothing where nobody else could."""
    names = history.plan.cluster.names
    if way.roads and way.roads[0].from_ in names:
        return
    donors = [name for name in names if name != way.learner
              and _unhurt(history, name, way.t, way.t) and _held_everything(history, name, way)]
    if donors:
        yield (line(f"{way.learner} was brought up to date by the syncer at ", way.t,
                    f", though {donors[0]} held everything"), Late(way.t, way.until, 0.0))


def _by_donors(history: History, way: _Way) -> Iterator[_Wrong | None]:
    """Yield of each donor what is wrong, None if it gave in time; nothing where a fault, or the end, may be why."""
    within = history.plan.cluster.heartbeat_timeout + SETTLED_S
    for road in way.roads:
        end = road.t + within
        if (road.from_ in history.plan.cluster.names and end <= way.until
                and all(_unhurt(history, name, road.t, end) for name in (road.from_, history.recorder))):
            gave = min((event.t for event in history.tape.of(Donated, node=road.from_)
                        if event.learner == way.learner and event.t >= road.t - _MOMENT_S), default=way.until)
            yield None if gave <= end and gave < way.until else (line(
                f"{road.from_} was asked at ", road.t, f" for what {way.learner} needed, and gave nothing within "
                f"{show_seconds(within)}"), Late(road.t, gave, within))


def _ways(history: History) -> Iterator[_Way]:
    """Yield how each learner was brought up to date that came with nothing, or had lost everything, after the steady
    state."""
    start = zero(history)
    came = [event for event in history.tape.of(Hello, Renewed, node=history.recorder) if start < event.t < history.end
            and (isinstance(event, Renewed) or event.fresh)]
    asked = history.tape.of(Recovering, node=history.recorder)
    for learner in dict.fromkeys(event.learner for event in came):
        own = list[Hello | Renewed]()
        for event in came:  # what it lacks again before it has had it is still the same need
            if event.learner == learner and (
                    not own or event.t > own[-1].t + history.plan.cluster.heartbeat_timeout):
                own.append(event)
        for event, until in zip(own, [*(after.t for after in own[1:]), history.end], strict=True):
            roads = tuple(road for road in asked if road.learner == learner and event.t <= road.t < until)
            yield _Way(learner, event.t, roads, until, event.inc)


def _unhurt(history: History, node: str, start: float, end: float) -> bool:
    """Return whether no fault had a hold of a node, and it had settled."""
    cluster = history.plan.cluster
    return not any(gone < end + _MOMENT_S and start < back + cluster.heartbeat_timeout + SETTLED_S
                   for gone, back in history.once(Availability).out[node])


def _held_everything(history: History, learner: str, way: _Way) -> bool:
    """Return whether a learner that this process of the syncer knew had received every fragment at its newest version
    then."""
    known = [event for event in history.tape.of(Hello, Lost, node=history.recorder)
             if event.learner == learner and event.inc == way.syncer and event.t < way.t]
    if not known or not isinstance(known[-1], Hello):
        return False
    newest = {merge.fragment: merge.version for merge in history.merges if merge.t <= way.t}
    held = {event.fragment: event.version for event in history.tape.of(Received, node=learner)
            if event.inc == known[-1].incarnation and event.t < way.t}
    return all(held.get(fragment, 0) == version for fragment, version in newest.items())
