"""What became of every processed token: for each fragment each inner step ends in exactly one fate.

merged into a version, discarded (with the reason), or outstanding at the end. Rebuilt from the learners' own tapes
(`step`, `snapshot`, `received`) and from which intervals the syncer says it merged.
"""

from __future__ import annotations

import math
import signal
from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from types import MappingProxyType
from typing import Any

from diloco_chaos.chaos.evidence.step_fates import Fates
from diloco_chaos.chaos.evidence.truncated import Untold
from diloco_chaos.chaos.scenario.model import SYNCER
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.record.tape.event import Event
from diloco_chaos.harness.record.tape.packed import times, values
from diloco_chaos.harness.record.tape.reading import Tape

Node = tuple[str, int]
"""Name and incarnation."""

MERGED, OUTSTANDING, OVERLAP, ROLLED_BACK = "merged", "outstanding", "overlap", "rolled back"
CRASH, LEFT = "crash", "left"
RESET = "memory"
"""A learner dropped all that it had, because it could not be right."""
INTERRUPTED = "interrupted"
"""Data parallelism: the group broke before the step was made."""
_UNTOLD = object()
_ASKED = (0, -signal.SIGTERM)
"""Exit statuses of a process that was asked to end, and did."""


@dataclass
class TokenAccounting:
    """Fates of all steps, and whatever contradicts itself."""

    fates: dict[tuple[int, Node], Fates] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    processed: int = 0
    """Tokens of completed inner steps, lost or not."""
    by_fate: Counter[str] = field(default_factory=Counter)
    """Tokens by fate, mean over fragments weighted by size."""

    sizes: list[int] = field(default_factory=list)
    """Of the fragments, in values."""

    def useful(self, node: Node) -> dict[int, float]:
        """Step -> the share of the model (by size) for which it was merged, or lost only to the overlap."""
        own = [(size, self.fates[index, node]) for index, size in enumerate(self.sizes) if (index, node) in self.fates]
        steps = own[0][1].steps if own else ()
        good = [0.0] * len(steps)
        for size, fates in own:
            share = size / sum(self.sizes)
            for begin, end, fate in fates.runs():
                if fate in (MERGED, OVERLAP):
                    good[begin:end] = [before + share for before in good[begin:end]]
        return dict(zip(steps, good, strict=True))


def killed(tape: Tape) -> dict[Node, str]:
    """Incarnations that a fault ended: whether they crashed, or left in good order, because they were asked to."""
    return {(event["target"], event["incarnation"]): LEFT if event.fields.get("status") in _ASKED else CRASH
            for event in tape.of("exit", node="harness") if event.fields.get("killed")}


def account(plan: Plan, tape: Tape, steps: Mapping[Node, Sequence[Event]], merges: Sequence[Event],
            rolled_back: Sequence[Event] = (), untold: Mapping[Node, Untold] = MappingProxyType({})) -> TokenAccounting:
    """Give every step of every fragment its fate.

    `steps` holds the step events of each learner's incarnation, `merges` the merges to take into account, of which
    those that are `rolled_back` came to nothing. `untold` is what nobody can know of processes whose machines were
    lost.
    """
    accounting = TokenAccounting(sizes=[fragment.size for fragment in plan.cluster.fragment_table()])
    done = {node: counted(events) for node, events in steps.items()}
    accounting.fates = {(index, node): Fates(taken) for node, (taken, _) in done.items()
                        for index in range(len(accounting.sizes))}
    _give_merged(merges, accounting, untold)
    told, refused = tape.by_process("received", "outer_gradient", "reset"), _refusals(tape)
    dead = killed(tape)
    void: dict[Node, list[int]] = defaultdict(list)
    for merge in rolled_back:
        for part in merge["contributions"]:
            void[part["learner"], part["incarnation"]].append(part["last"])
    at_end = OUTSTANDING if plan.cluster.exchanges_fragments else INTERRUPTED
    for node, (taken, before) in done.items():
        _gapless(node, steps[node], accounting)
        accounting.processed += before[-1]
        events = _by_fragment(told.get(node, ()), len(accounting.sizes))
        for index, size in enumerate(accounting.sizes):
            fates = accounting.fates[index, node]
            _close(fates, taken[0], events[index], _refused(fates, refused[index, node]), accounting,
                   f"fragment {index}, {node[0]}.{node[1]}")
            fates.give_all(range(len(taken)), dead.get(node, at_end))
            for step in void[node]:
                for place in fates.places(step, step):
                    fates.change(place, ROLLED_BACK)
            for begin, end, fate in fates.runs():
                accounting.by_fate[fate] += (before[end] - before[begin]) * size
    _used_once(steps, {node: taken for node, (taken, _) in done.items()}, accounting)
    if plan.cluster.exchanges_fragments:  # there a step that came to nothing is taken again
        _leased_once(steps, _overtaken(tape, merges, plan.cluster.heartbeat_timeout), accounting)
    accounting.by_fate = Counter({fate: round(count / sum(accounting.sizes)) for fate,
                                  count in accounting.by_fate.items()})
    return accounting


def counted(events: Sequence[Event]) -> tuple[Sequence[int], Sequence[int]]:
    """A process' steps in order, each once, and how many tokens it had trained on before each of them and at last."""
    tokens = dict(zip(values(events, "step"), map(int, values(events, "tokens")), strict=True))
    taken = sorted(tokens)
    return _packed(taken), _packed(list(accumulate((tokens[step] for step in taken), initial=0)))


def _packed(numbers: list[int]) -> Sequence[int]:
    try:
        return array("q", numbers)
    except (TypeError, OverflowError):  # no node of ours writes such numbers
        return numbers


def _gapless(node: Node, events: Sequence[Event], accounting: TokenAccounting) -> None:
    """A process counts its steps without a gap, and each of them once."""
    counts = values(events, "step")
    if len(set(counts)) != len(counts):
        accounting.violations.append(f"{node[0]}.{node[1]} took a step twice: two processes under one number")
    elif max(counts) - min(counts) + 1 != len(counts):
        accounting.violations.append(f"{node[0]}.{node[1]} took {len(counts)} steps from {min(counts)} to "
                                     f"{max(counts)}: there is a hole")


def _used_once(steps: Mapping[Node, Sequence[Event]], taken: Mapping[Node, Sequence[int]],
               accounting: TokenAccounting) -> None:
    """No batch of a learner's shard is merged twice into a fragment, whichever process trained on it."""
    for learner in dict.fromkeys(name for name, _ in steps):
        positions = {node: _positions(events, taken[node]) for node, events in steps.items() if node[0] == learner}
        for index in range(len(accounting.sizes)):
            used: set[int] = set()
            for node, of in positions.items():
                for begin, end, fate in accounting.fates[index, node].runs():
                    for position in _again(of[begin:end], used) if fate == MERGED else ():
                        accounting.violations.append(
                            f"fragment {index}: batch {position} of {learner} was merged twice")


def _positions(events: Sequence[Event], taken: Sequence[int]) -> list[Any]:
    """Of the batch that each of these steps was made on; None where that is not told."""
    told = {step: position for step, position in zip(values(events, "step"), values(events, "position", _UNTOLD),
                                                     strict=True) if position is not _UNTOLD}
    return [told.get(step) for step in taken]


def _again(positions: list[Any], used: set[int]) -> list[int]:
    """Those of them that had been used before, or come again; all are used then."""
    new = set(positions)
    if len(new) == len(positions) and None not in new and used.isdisjoint(new):  # nearly always, and quick
        used |= new
        return []
    found = []
    for position in positions:
        if position in used:
            found.append(position)
        elif position is not None:
            used.add(position)
    return found


def _overtaken(tape: Tape, merges: Sequence[Event], timeout: float) -> Mapping[Node, float]:
    """Of each process, when it must have seen that a newer one has its place: so long after the syncer had first heard
    of that. One that goes on, because it is cut off, makes steps that count for nothing; unless one was merged."""
    heard: dict[Node, float] = {}
    for hello in tape.of("hello", node=SYNCER):
        heard.setdefault((hello["learner"], hello["incarnation"]), hello.t)
    found: dict[Node, float] = {}
    for (learner, newer), t in heard.items():
        for older in range(newer):
            found[learner, older] = min(t + timeout, found.get((learner, older), t + timeout))
    for merge in merges if found else ():
        for part in merge["contributions"]:
            if merge.t > found.get((part["learner"], part["incarnation"]), math.inf):
                del found[part["learner"], part["incarnation"]]
    return found


def _leased_once(steps: Mapping[Node, Sequence[Event]], overtaken: Mapping[Node, float],
                 accounting: TokenAccounting) -> None:
    """No two processes of a learner train on the same batch of its shard, as long as their steps may count."""
    first: dict[str, dict[int, int]] = defaultdict(dict)
    for (learner, incarnation), events in steps.items():
        until = overtaken.get((learner, incarnation), math.inf)
        count = len(events) if until == math.inf else bisect_right(times(events), until)
        again = [position for position in values(events, "position", _UNTOLD)[:count] if position is not _UNTOLD
                 and first[learner].setdefault(position, incarnation) != incarnation]
        if again:
            accounting.violations.append(f"{learner}.{incarnation} trained on {len(again)} batches that another "
                                         f"process of it had trained on; the first is {min(again)}")


def _give_merged(merges: Sequence[Event], accounting: TokenAccounting, untold: Mapping[Node, Untold]) -> None:
    """To what was merged its fate, checked against overlap and against what the learner did."""
    nothing = Fates(())
    found: dict[tuple[int, Node], list[tuple[int, int]]] = defaultdict(list)
    furthest: dict[tuple[int, Node], int] = {}
    for merge in merges:
        for part in merge["contributions"]:
            node = (part["learner"], part["incarnation"])
            of, first, last = (merge["fragment"], node), part["first"], part["last"]
            if first <= furthest.get(of, first - 1):  # hardly ever: intervals come one after the other
                again = next(((a, b) for a, b in reversed(found[of]) if first <= b and a <= last), None)
                if again:
                    accounting.violations.append(f"{_where(merge, part)} merged again (steps {again[0]}-{again[1]} "
                                                 f"were merged before)")
            found[of].append((first, last))
            furthest[of] = max(last, furthest.get(of, last))
            places = accounting.fates.get((0, node), nothing).places(first, last)
            real = places.stop - places.start
            lost = untold.get(node)
            told = last if lost is None or not lost.may_have_made(last, merge.t) else min(last, lost.last)
            if real != max(told - first + 1, 0) or not (real or told < last):
                accounting.violations.append(
                    f"{_where(merge, part)}: only {real} of these steps are on the learner's tape")
            if of in accounting.fates:
                accounting.fates[of].give_all(places, MERGED)


def _where(merge: Event, part: Mapping[str, Any]) -> str:
    return (f"fragment {merge['fragment']} version {merge['version']}: {part['learner']}.{part['incarnation']} steps "
            f"{part['first']}-{part['last']}")


def _refusals(tape: Tape) -> Mapping[tuple[int, Node], list[Event]]:
    """Answers of each fragment and learner that the syncer refused, in the order of time."""
    found: dict[tuple[int, Node], list[Event]] = defaultdict(list)
    for event in tape.of("refused"):
        if "first" in event.fields:  # else a learner refused a broadcast
            found[event["fragment"], (event["learner"], event["incarnation"])].append(event)
    return found


def _by_fragment(events: Sequence[Event], fragments: int) -> Mapping[int, list[Event]]:
    """One process' receipts, answers and resets of each fragment, in the order of time."""
    found: dict[int, list[Event]] = defaultdict(list)
    for event, of in zip(events, values(events, "fragment"), strict=True):
        for fragment in range(fragments) if event.event == "reset" else (of,):
            found[fragment].append(event)
    return found


def _close(fates: Fates, began: int, events: list[Event], refused: Mapping[int, str], accounting: TokenAccounting,
           where: str) -> None:
    """Walk through the receipts: each closes the steps before it that are not carried on."""
    closed = began - 1
    answers: list[Event] = []
    for event in events:
        if event.event == "outer_gradient":
            answers.append(event)
        if event.event == "reset":
            for place in fates.without(fates.places(closed + 1, event["step"])):
                fates.give(place, refused.get(place) or RESET)
            closed, answers = max(closed, event["step"]), []
        if event.event != "received":
            continue
        step = event["step"]
        until = step - event["carried"]
        expected = max(0, until - closed)
        if event["closed"] != expected and step >= began:
            accounting.violations.append(f"{where}: version {event['version']} closed {event['closed']} steps, "
                                         f"but {expected} had no fate")
        open_ = fates.places(closed + 1, until)
        left = fates.without(open_)
        merged_from = next((place for place in open_ if fates.at(place) == MERGED), None) if left else None
        for place in left:
            # What comes after the merged steps was made during the exchange.
            overlap = merged_from is not None and merged_from < place
            fates.give(place, refused.get(place) or _reason(fates.step(place), answers, overlap))
        closed, answers = max(closed, until), []


def _reason(step: int, answers: list[Event], overlap: bool) -> str:
    """Why a step was not merged."""
    if overlap:
        return OVERLAP
    if not answers:
        return "not requested"
    return "lost on the way" if answers[0]["first"] <= step <= answers[0]["step"] else OVERLAP


def _refused(fates: Fates, refusals: list[Event]) -> dict[int, str]:
    """Place -> why a contribution with this step was refused the last time. A refusal may be written after the receipt
    that closed the step."""
    return {place: str(event["reason"]) for event in refusals for place in fates.places(event["first"], event["last"])}


def closing_intervals(events: list[Event]) -> Iterator[tuple[Event, Event | None, bool]]:
    """(receipt, the answer that was under way, whether the connection broke since) for each receipt, in order."""
    answer: Event | None = None
    broken = False
    for event in events:
        if event.event == "outer_gradient":
            answer, broken = event, False
        elif event.event == "disconnected":
            broken = True
        elif event.event == "reset":
            answer, broken = None, False
        elif event.event == "received":
            yield event, answer, broken
            answer, broken = None, False
