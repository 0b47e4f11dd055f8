"""Which nodes a cut of links keeps apart, and what of the run contradicts that it did.

A node whose peers are caught connects through links only. Any other one may have connections that pass none, so it is
kept apart from no other one that is like it, or that it can connect to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import combinations, pairwise

from diloco_chaos.faults.evidence import Evidence, Injection
from diloco_chaos.harness.base.units import names
from diloco_chaos.harness.places.base import NodeSpec
from diloco_chaos.harness.record.tape.events import Injected, Merge
from diloco_chaos.harness.trainers.core.programs import Program

_BETWEEN, _WITHIN = " | ", ", "
_AFTER_S, _ROUNDS = 0.1, 2
"""A round that was made before the cut may be told so long after it; and so many are no chance."""


def apart(specs: Mapping[str, NodeSpec], cut: Collection[str]) -> str:
    """Return the groups of nodes between which no link is left, as `a | b, c`; empty where there is one group, or where
    that is not known."""
    programs = {name: spec.program for name, spec in specs.items() if spec.program is not None}
    group = {name: {name} for name in programs}
    links = [(name, to) for name, spec in specs.items() for link, to in spec.links.items() if link not in cut]
    for one, other in [*links, *_unseen(programs)]:
        if one in group and other in group and group[one] is not group[other]:
            group[one] |= group[other]
            group |= dict.fromkeys(group[other], group[one])
    groups = {_WITHIN.join(sorted(members)) for members in group.values()}
    return _BETWEEN.join(sorted(groups)) if len(groups) > 1 else ""


def contradiction(run: Evidence, on: Injection) -> str:
    """Return why nodes that a cut was to keep apart had a connection all the same, in words; empty: nothing says so."""
    groups = [set(text.split(_WITHIN)) for text in str(on.observed.get("apart", "")).split(_BETWEEN) if text]
    of = {name: number for number, members in enumerate(groups) for name in members}
    for connection in filter(None, str(on.observed.get("beside", "")).split(_BETWEEN)):
        one, other, *_ = connection.split(_WITHIN)
        if of.get(one) != of.get(other):
            program = connection.split(_WITHIN, 2)[2]
            return f"{names([one, other])} had a connection that passes no link (of {program})"
    ended = run.end if on.ended is None else on.ended
    during = [merge for merge in _wholly(run, _known_after(run, on, ended), ended) if _both(merge, groups)]
    if len(during) >= _ROUNDS:
        return (f"rounds {during[0].round} to {during[-1].round} were made meanwhile by members of both sides "
                f"({on.observed['apart']}): they have a connection that passes no link")
    after, end = on.observed.get("bytes_after"), on.observed.get("bytes_end")
    later = [merge for merge in _wholly(run, ended + _AFTER_S, run.end) if _both(merge, groups)]
    if after is not None and end == after and len(later) >= _ROUNDS:
        return (f"nothing passed there ever after, though rounds {later[0].round} to {later[-1].round} were made by "
                f"members of both sides ({on.observed['apart']}): they have a connection that passes no link")
    return ""


def _unseen(programs: Mapping[str, Program]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of nodes that may have a connection which passes no link."""
    for one, other in combinations(programs, 2):
        caught = [_caught(name, programs) for name in (one, other)]
        if not any(caught) or (not all(caught) and programs[one if caught[0] else other].listens):
            yield one, other


def _caught(name: str, programs: Mapping[str, Program]) -> bool:
    """Return whether all that a node connects to are at the ends of links of its own."""
    return {*programs[name].talks_to, *programs[name].meets} >= programs.keys() - {name}


def _known_after(run: Evidence, on: Injection, ended: float) -> float:
    """Return the moment after which a round that is told was made after the cut: what is read from a worker first after
    it may have been written long before, since nothing is read while links are cut."""
    cut = max((event.t for event in run.tape.of(Injected) if event.fault == on.id), default=on.began)
    first: dict[str, float] = {}
    for part in (part for merge in run.merges for part in merge.contributions):
        if cut <= part.arrived <= ended:
            first[part.learner] = min(part.arrived, first.get(part.learner, part.arrived))
    return max([cut + _AFTER_S, *first.values()])


def _wholly(run: Evidence, start: float, end: float) -> Iterator[Merge]:
    """Yield the rounds of which nothing was made outside of these times."""
    for before, merge in pairwise(run.merges):
        times = [part.arrived for part in merge.contributions]
        if before.t > start and times and max(times) <= end:
            yield merge


def _both(merge: Merge, groups: Collection[set[str]]) -> bool:
    """Return whether members of several groups took part in a round: they told of it, or one told of more members than
    its group has workers."""
    told = {part.learner for part in merge.contributions}
    mine = [members & told for members in groups if members & told]
    return len(mine) > 1 or any((part.members or 0) > len(members & set(merge.asked)) for part in merge.contributions
                                for members in groups if part.learner in members)
