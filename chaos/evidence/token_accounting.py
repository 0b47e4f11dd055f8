"""What became of every processed token: for each fragment each inner step ends in exactly one fate.

merged into a version, discarded (with the reason), or outstanding at the end. Rebuilt from the learners' own tapes
(`step`, `snapshot`, `received`) and from which intervals the syncer says it merged.
"""

from __future__ import annotations

import signal
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, product
from typing import Any

from chaos.evidence.step_fates import Fates
from chaos.scenario.plan import Plan
from harness.tape import Event, Tape

Node = tuple[str, int]
"""Name and incarnation."""

MERGED, OUTSTANDING, OVERLAP, ROLLED_BACK = "merged", "outstanding", "overlap", "rolled back"
CRASH, LEFT = "crash", "left"
RESET = "memory"
"""A learner dropped all that it had, because it could not be right."""
INTERRUPTED = "interrupted"
"""Data parallelism: the group broke before the step was made."""
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
        good: dict[int, float] = {}
        for size, fates in own:
            for begin, end, fate in fates.runs():
                share = size / sum(self.sizes) if fate in (MERGED, OVERLAP) else 0.0
                for step in map(fates.step, range(begin, end)):
                    good[step] = good.get(step, 0.0) + share
        return good


def killed(tape: Tape) -> dict[Node, str]:
    """Incarnations that a fault ended: whether they crashed, or left in good order, because they were asked to."""
    return {(event["target"], event["incarnation"]): LEFT if event.fields.get("status") in _ASKED else CRASH
            for event in tape.of("exit", node="harness") if event.fields.get("killed")}


def account(plan: Plan, tape: Tape, steps: dict[Node, list[Event]], merges: list[Event],
            rolled_back: Sequence[Event] = ()) -> TokenAccounting:
    """Give every step of every fragment its fate.

    `steps` holds the step events of each learner's incarnation, `merges` the merges to take into account, of which
    those that are `rolled_back` came to nothing.
    """
    accounting = TokenAccounting(sizes=[fragment.size for fragment in plan.cluster.fragment_table()])
    done = {node: {event["step"]: int(event["tokens"]) for event in events} for node, events in steps.items()}
    taken = {node: sorted(tokens) for node, tokens in done.items()}
    merged = _merged_intervals(taken, merges, accounting)
    events = _by_fragment(tape, len(accounting.sizes))
    dead = killed(tape)
    void: dict[Node, list[int]] = defaultdict(list)
    for merge in rolled_back:
        for part in merge["contributions"]:
            void[part["learner"], part["incarnation"]].append(part["last"])
    at_end = OUTSTANDING if plan.cluster.exchanges_fragments else INTERRUPTED
    for node, tokens in done.items():
        _gapless(node, steps[node], accounting)
        before = list(accumulate((tokens[step] for step in taken[node]), initial=0))
        accounting.processed += before[-1]
        for index, size in enumerate(accounting.sizes):
            fates = _fates(taken[node], merged.get((index, node), []), events.get((index, node), []),
                           dead.get(node, at_end), accounting, f"fragment {index}, {node[0]}.{node[1]}")
            for step in void[node]:
                for place in fates.places(step, step):
                    fates.change(place, ROLLED_BACK)
            accounting.fates[index, node] = fates
            for begin, end, fate in fates.runs():
                accounting.by_fate[fate] += (before[end] - before[begin]) * size
    _used_once(steps, accounting)
    if plan.cluster.exchanges_fragments:  # there a step that came to nothing is taken again
        _leased_once(steps, accounting)
    accounting.by_fate = Counter({fate: round(count / sum(accounting.sizes)) for fate,
                                  count in accounting.by_fate.items()})
    return accounting


def _gapless(node: Node, events: list[Event], accounting: TokenAccounting) -> None:
    """A process counts its steps without a gap, and each of them once."""
    counts = [event["step"] for event in events]
    if len(set(counts)) != len(counts):
        accounting.violations.append(f"{node[0]}.{node[1]} took a step twice: two processes under one number")
    elif max(counts) - min(counts) + 1 != len(counts):
        accounting.violations.append(f"{node[0]}.{node[1]} took {len(counts)} steps from {min(counts)} to "
                                     f"{max(counts)}: there is a hole")


def _used_once(steps: dict[Node, list[Event]], accounting: TokenAccounting) -> None:
    """No batch of a learner's shard is merged twice into a fragment, whichever process trained on it."""
    positions = {node: {event["step"]: event["position"] for event in events if "position" in event.fields}
                 for node, events in steps.items()}
    for learner, index in product(dict.fromkeys(name for name, _ in steps), range(len(accounting.sizes))):
        used: set[int] = set()
        for node in (node for node in steps if node[0] == learner):
            fates = accounting.fates[index, node]
            for begin, end, fate in fates.runs():
                for step in map(fates.step, range(begin, end) if fate == MERGED else ()):
                    position = positions[node].get(step)
                    if position in used:
                        accounting.violations.append(
                            f"fragment {index}: batch {position} of {learner} was merged twice")
                    elif position is not None:
                        used.add(position)


def _leased_once(steps: dict[Node, list[Event]], accounting: TokenAccounting) -> None:
    """No two processes of a learner train on the same batch of its shard."""
    first: dict[str, dict[int, int]] = defaultdict(dict)
    for (learner, incarnation), events in steps.items():
        again = [event["position"] for event in events if "position" in event.fields
                 and first[learner].setdefault(event["position"], incarnation) != incarnation]
        if again:
            accounting.violations.append(f"{learner}.{incarnation} trained on {len(again)} batches that another "
                                         f"process of it had trained on; the first is {min(again)}")


def _merged_intervals(done: dict[Node, list[int]], merges: list[Event],
                      accounting: TokenAccounting) -> dict[tuple[int, Node], list[tuple[int, int]]]:
    """Per fragment and learner the merged intervals, checked against overlap and against what the learner did."""
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
            steps = done.get(node, [])
            real = bisect_right(steps, last) - bisect_left(steps, first)
            if real != last - first + 1 or not real:
                accounting.violations.append(
                    f"{_where(merge, part)}: only {real} of these steps are on the learner's tape")
    return found


def _where(merge: Event, part: Mapping[str, Any]) -> str:
    return (f"fragment {merge['fragment']} version {merge['version']}: {part['learner']}.{part['incarnation']} steps "
            f"{part['first']}-{part['last']}")


def _by_fragment(tape: Tape, fragments: int) -> dict[tuple[int, Node], list[Event]]:
    """Receipts, answers, refusals and resets of each fragment and learner, in the order of time."""
    found: dict[tuple[int, Node], list[Event]] = defaultdict(list)
    for event in tape.of("received", "outer_gradient", "refused", "reset"):
        if event.event == "reset":
            for fragment in range(fragments):
                found[fragment, (event.node, event.incarnation)].append(event)
        elif event.event != "refused":
            found[event["fragment"], (event.node, event.incarnation)].append(event)
        elif "first" in event.fields:  # an answer that the syncer refused, not a learner's refusal of a broadcast
            found[event["fragment"], (event["learner"], event["incarnation"])].append(event)
    return found


def _fates(steps: list[int], merged: list[tuple[int, int]], events: list[Event], at_end: str,
           accounting: TokenAccounting,
           where: str) -> Fates:
    """Walk through the receipts: each closes the steps before it that are not carried on."""
    fates = Fates(steps)
    for first, last in merged:
        fates.give_all(fates.places(first, last), MERGED)
    closed = (steps[0] - 1) if steps else 0
    refused = _refused(fates, events)
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
        until = event["step"] - event["carried"]
        expected = max(0, until - closed)
        if event["closed"] != expected and steps and event["step"] >= steps[0]:
            accounting.violations.append(f"{where}: version {event['version']} closed {event['closed']} steps, "
                                         f"but {expected} had no fate")
        open_ = fates.places(closed + 1, until)
        merged_from = next((place for place in open_ if fates.at(place) == MERGED), None)
        for place in fates.without(open_):
            # What comes after the merged steps was made during the exchange.
            overlap = merged_from is not None and merged_from < place
            fates.give(place, refused.get(place) or _reason(fates.step(place), answers, overlap))
        closed, answers = max(closed, until), []
    fates.give_all(range(len(steps)), at_end)
    return fates


def _reason(step: int, answers: list[Event], overlap: bool) -> str:
    """Why a step was not merged."""
    if overlap:
        return OVERLAP
    if not answers:
        return "not requested"
    return "lost on the way" if answers[0]["first"] <= step <= answers[0]["step"] else OVERLAP


def _refused(fates: Fates, events: list[Event]) -> dict[int, str]:
    """Place -> why a contribution with this step was refused the last time. A refusal may be written after the receipt
    that closed the step."""
    return {place: str(event["reason"]) for event in events if event.event == "refused"
            for place in fates.places(event["first"], event["last"])}


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
