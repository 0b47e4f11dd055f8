"""Who has a part in rounds: a worker, or each rank of its node where its log tells them apart. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from diloco_chaos.faults.base import Fault
from diloco_chaos.faults.inner import OfProcess
from diloco_chaos.harness.record.tape.events import Merge, Step, member_name
from diloco_chaos.harness.record.tape.series import Series, times, values

Members = Mapping[str, Sequence[str]]
"""Worker -> the names of its members."""
_NUMBER = re.compile(r"\.\d+$")
"""Of one of several processes that have one name."""


def moments_of_ranks(steps: Mapping[tuple[str, int], Series[Step]]) -> Mapping[str, Mapping[str, Sequence[float]]]:
    """Return worker -> member -> when it told a round, in seconds: of workers whose ranks are told apart."""
    moments: dict[str, dict[str, list[float]]] = {}
    for (worker, _), told in steps.items():
        ranks = values(told, "rank")
        for t, rank in zip(times(told), ranks, strict=True) if any(rank is not None for rank in ranks) else ():
            moments.setdefault(worker, {}).setdefault(member_name(worker, rank), []).append(t)
    return {worker: {member: sorted(mine[member]) for member in sorted(mine)} for worker, mine in moments.items()}


def hit_by(fault: Fault, members: Members) -> set[str]:
    """Return the members that a fault has a hold of: of a fault of one process the rank that it is, and else all of the
    nodes that feel it."""
    hit: set[str] = set()
    for node in fault.affected_nodes(list(members)):
        process = fault.process if isinstance(fault, OfProcess) else ""
        named = {f"{node}/{process}", f"{node}/{_NUMBER.sub('', process)}"}
        hit.update(named.intersection(members.get(node, ())) or members.get(node, ()))
    return hit


def members(merge: Merge) -> int:
    """Return how many members took part in a round: the fewest that all who reported it say, or where some say nothing
    as many as reported it, or as one of them says."""
    said = [part.members or 0 for part in merge.contributions]
    return min(said) if said and all(said) else max([len(said), *said])
