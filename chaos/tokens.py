"""What became of every processed token: for each fragment each inner step ends in exactly one fate.

merged into a version, discarded (with the reason), or outstanding at the end. Rebuilt from the learners' own tapes
(`step`, `snapshot`, `received`) and from which intervals the syncer says it merged.
"""

from __future__ import annotations

import signal
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from chaos.plan import Plan
from harness.tape import Event, Tape
from harness.trainer.config import SYNCHRONOUS

Node = tuple[str, int]
"""Name and incarnation."""

MERGED, OUTSTANDING, OVERLAP, ROLLED_BACK = "merged", "outstanding", "overlap", "rolled back"
CRASH, LEFT = "crash", "left"
INTERRUPTED = "interrupted"
"""Data parallelism: the group broke before the step was made."""
_ASKED = (0, -signal.SIGTERM)
"""Exit statuses of a process that was asked to end, and did."""
Fates = dict[int, str]
"""Step -> fate, of one fragment and one learner's incarnation."""


@dataclass
class TokenLedger:
    """Fates of all steps, and whatever contradicts itself."""

    fates: dict[tuple[int, Node], Fates] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    processed: int = 0
    """Tokens of completed inner steps, lost or not."""
    by_fate: Counter[str] = field(default_factory=Counter)
    """Tokens by fate, mean over fragments weighted by size."""

    def useful(self, node: Node, step: int, sizes: list[int]) -> float:
        """The share of the model (by size) for which this step was merged, or lost only to the overlap."""
        good = sum(size for index, size in enumerate(sizes)
                   if self.fates.get((index, node), {}).get(step) in (MERGED, OVERLAP))
        return good / sum(sizes)


def killed(tape: Tape) -> dict[Node, str]:
    """Incarnations that a fault ended: whether they crashed, or left in good order, because they were asked to."""
    return {(event["target"], event["incarnation"]): LEFT if event.fields.get("status") in _ASKED else CRASH
            for event in tape.of("exit", node="harness") if event.fields.get("killed")}


def account(plan: Plan, tape: Tape, steps: dict[Node, list[Event]], merges: list[Event],
            rolled_back: Sequence[Event] = ()) -> TokenLedger:
    """Give every step of every fragment its fate.

    `steps` holds the step events of each learner's incarnation, `merges` the merges to take into account, of which
    those that are `rolled_back` came to nothing.
    """
    ledger = TokenLedger()
    sizes = [fragment.size for fragment in plan.cluster.fragment_table()]
    done = {node: {event["step"]: int(event["tokens"]) for event in events} for node, events in steps.items()}
    merged = _merged_intervals({node: sorted(tokens) for node, tokens in done.items()}, merges, ledger)
    events = _by_fragment(tape)
    dead = killed(tape)
    void = {(part["learner"], part["incarnation"], part["last"]) for merge in rolled_back
            for part in merge["contributions"]}
    at_end = INTERRUPTED if plan.cluster.mode in SYNCHRONOUS else OUTSTANDING
    for node, tokens in done.items():
        _gapless(node, steps[node], ledger)
        ledger.processed += sum(tokens.values())
        for index, size in enumerate(sizes):
            fates = _fates(sorted(tokens), merged.get((index, node), []), events.get((index, node), []),
                           dead.get(node, at_end), ledger, f"fragment {index}, {node[0]}.{node[1]}")
            fates |= {step: ROLLED_BACK for step in tokens if (*node, step) in void}
            ledger.fates[index, node] = fates
            for step, fate in fates.items():
                ledger.by_fate[fate] += tokens[step] * size
    _used_once(steps, ledger)
    if plan.cluster.mode not in SYNCHRONOUS:  # there a step that came to nothing is taken again
        _leased_once(steps, ledger)
    ledger.by_fate = Counter({fate: round(count / sum(sizes)) for fate, count in ledger.by_fate.items()})
    return ledger


def _gapless(node: Node, events: list[Event], ledger: TokenLedger) -> None:
    """A process counts its steps without a gap, and each of them once."""
    counts = [event["step"] for event in events]
    if len(set(counts)) != len(counts):
        ledger.violations.append(f"{node[0]}.{node[1]} took a step twice: two processes under one number")
    elif max(counts) - min(counts) + 1 != len(counts):
        ledger.violations.append(f"{node[0]}.{node[1]} took {len(counts)} steps from {min(counts)} to {max(counts)}: "
                                 f"there is a hole")


def _used_once(steps: dict[Node, list[Event]], ledger: TokenLedger) -> None:
    """No batch of a learner's shard is merged twice into a fragment, whichever process trained on it."""
    used: set[tuple[int, str, int]] = set()
    for (index, node), fates in ledger.fates.items():
        for event in steps[node]:
            if fates.get(event["step"]) == MERGED and "position" in event.fields:
                place = (index, node[0], event["position"])
                if place in used:
                    ledger.violations.append(
                        f"fragment {index}: batch {event['position']} of {node[0]} was merged twice")
                used.add(place)


def _leased_once(steps: dict[Node, list[Event]], ledger: TokenLedger) -> None:
    """No two processes of a learner train on the same batch of its shard."""
    first: dict[tuple[str, int], int] = {}
    for (learner, incarnation), events in steps.items():
        again = [event["position"] for event in events if "position" in event.fields
                 and first.setdefault((learner, event["position"]), incarnation) != incarnation]
        if again:
            ledger.violations.append(f"{learner}.{incarnation} trained on {len(again)} batches that another process of "
                                     f"it had trained on; the first is {min(again)}")


def _merged_intervals(done: dict[Node, list[int]], merges: list[Event],
                      ledger: TokenLedger) -> dict[tuple[int, Node], list[tuple[int, int]]]:
    """Per fragment and learner the merged intervals, checked against overlap and against what the learner did."""
    found: dict[tuple[int, Node], list[tuple[int, int]]] = defaultdict(list)
    for merge in merges:
        for part in merge["contributions"]:
            node = (part["learner"], part["incarnation"])
            where = f"fragment {merge['fragment']} version {merge['version']}: {node[0]}.{node[1]} steps " \
                    f"{part['first']}-{part['last']}"
            for first, last in found[merge["fragment"], node]:
                if part["first"] <= last and first <= part["last"]:
                    ledger.violations.append(f"{where} merged again (steps {first}-{last} were merged before)")
            found[merge["fragment"], node].append((part["first"], part["last"]))
            real = len(_between(done.get(node, []), part["first"], part["last"]))
            if real != part["last"] - part["first"] + 1 or not real:
                ledger.violations.append(f"{where}: only {real} of these steps are on the learner's tape")
    return found


def _by_fragment(tape: Tape) -> dict[tuple[int, Node], list[Event]]:
    """Receipts, answers and refusals of each fragment and learner, in the order of time."""
    found: dict[tuple[int, Node], list[Event]] = defaultdict(list)
    for event in tape.of("received", "snapshot", "refused"):
        if event.event != "refused":
            found[event["fragment"], (event.node, event.incarnation)].append(event)
        elif "first" in event.fields:  # an answer that the syncer refused, not a learner's refusal of a broadcast
            found[event["fragment"], (event["learner"], event["incarnation"])].append(event)
    return found


def _between(steps: list[int], first: int, last: int) -> list[int]:
    """Those of the sorted steps that lie in [first, last]."""
    return steps[bisect_left(steps, first):bisect_right(steps, last)]


def _fates(steps: list[int], merged: list[tuple[int, int]], events: list[Event], at_end: str, ledger: TokenLedger,
           where: str) -> Fates:
    """Walk through the receipts: each closes the steps before it that are not carried on."""
    fates: Fates = {}
    for first, last in merged:
        fates |= dict.fromkeys(_between(steps, first, last), MERGED)
    closed = (steps[0] - 1) if steps else 0
    refusals = [event for event in events if event.event == "refused"]
    answers: list[Event] = []
    for event in events:
        if event.event == "snapshot":
            answers.append(event)
        if event.event != "received":
            continue
        until = event["step"] - event["carried"]
        expected = max(0, until - closed)
        if event["closed"] != expected and steps and event["step"] >= steps[0]:
            ledger.violations.append(f"{where}: version {event['version']} closed {event['closed']} steps, "
                                     f"but {expected} had no fate")
        overlap = False
        for step in _between(steps, closed + 1, until):
            overlap |= fates.get(step) == MERGED  # what comes after the merged steps was made during the exchange
            fates.setdefault(step, _reason(step, refusals, answers, overlap))
        closed, answers = max(closed, until), []
    for step in steps:
        fates.setdefault(step, at_end)
    return fates


def _reason(step: int, refusals: list[Event], answers: list[Event], overlap: bool) -> str:
    """Why a step was not merged. A refusal may be written after the receipt that closed the step."""
    for refusal in reversed(refusals):
        if refusal["first"] <= step <= refusal["last"]:
            return str(refusal["reason"])
    if overlap:
        return OVERLAP
    if not answers:
        return "not asked for"
    return "lost on the way" if answers[0]["first"] <= step <= answers[0]["step"] else OVERLAP


def closing_intervals(events: list[Event]) -> Iterator[tuple[Event, Event | None, bool]]:
    """(receipt, the answer that was under way, whether the connection broke since) for each receipt, in order."""
    answer: Event | None = None
    broken = False
    for event in events:
        if event.event == "snapshot":
            answer, broken = event, False
        elif event.event == "disconnected":
            broken = True
        elif event.event == "received":
            yield event, answer, broken
            answer, broken = None, False
