"""Was everything merged with the weight that its tokens give it?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isclose
from typing import TYPE_CHECKING

from diloco_chaos.chaos.checks.base import Finding, Unknown, check, need, rules_of, violations
from diloco_chaos.chaos.checks.diloco.acknowledged import misinformed
from diloco_chaos.chaos.evidence.accounting.parts import Integers, PartColumns
from diloco_chaos.chaos.evidence.accounting.token_accounting import Node, closing_intervals
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.harness.base.tensors import Numbers, np
from diloco_chaos.harness.record.tape.events import Disconnected, Event, Merge, OuterGradient, Received, Reset
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.record.tape.series import Series, ranks, texts
from diloco_chaos.harness.trainers.api.settings import FragmentRules

if TYPE_CHECKING:  # see harness/base/tensors.py
    from numpy.typing import NDArray

_SAME = 1e-6
"""Weights are compared to this, as a share."""


@check(needs={"fragments"}, unverified="judged")
def weights_correct(history: History) -> Finding:
    """Counters rebuilt from the learner's own step and received events give the weight that the syncer used; what was
    merged is what the learner says it sent, with the outer step that the plan has at that count of tokens; and it is
    told of what was merged, and of nothing else."""
    need(history.merges, "there are no merges")
    rules, parts = rules_of(history), history.parts
    wrong = [(int(place), 0, words) for place, merge in enumerate(history.merges)
             if (words := _outer_step(rules, merge))]
    lost: Counter[str] = Counter()
    judged = 0
    if len(parts.merge):
        rows = _Rows(parts)
        answers = _Answers(history.tape, carry=rules.carries)
        for number, node in enumerate(rows.processes):
            mine = np.flatnonzero(rows.process == number)
            judgement = _Judged.of(history, node, rows, mine, answers)
            lost[f"{node[0]}.{node[1]}"] += int(judgement.lost.sum())
            judged += len(mine) - int(judgement.lost.sum())
            wrong += [(int(parts.merge[row]), 1 + int(row), words) for row, words in judgement.wrong(rows)]
    unknown = [f"{number} of {node} can't be judged: its machine was lost before it had told them"
             for node, number in lost.items() if number]
    problems = [*(problem for _, _, problem in sorted(wrong)), *_beyond(history.tape, rules.most_steps),
                *misinformed(history)]
    return Finding(not problems, f"{len(problems)} of {judged} weights differ", "0", (problems or unknown)[:5],
                   figures=violations(problems))


def _outer_step(rules: FragmentRules, merge: Merge) -> str:
    """Return what is wrong with the rate and the momentum of a merge; empty where nothing is, or they are not recorded.
    """
    planned = rules.outer_step(merge.processed)
    return "" if merge.outer is None or all(map(isclose, planned, merge.outer)) else (
        f"fragment {merge.fragment} version {merge.version}: its outer rate and momentum were "
        f"{', '.join(map(str, merge.outer))}; the plan has {', '.join(map(str, planned))} there")


def _beyond(tape: Tape, most: float) -> list[str]:
    """Name the processes that trained on where they must stand still until a fragment is merged."""
    beyond: dict[str, tuple[int, int]] = {}
    for kind, names in ((OuterGradient, ("steps",)), (Received, ("closed", "carried"))):
        for (name, incarnation), series in tape.series(kind).items():
            steps = sum((series.integers(each) for each in names), np.zeros(len(series), np.int64))
            if len(steps) and (longest := int(steps.max())) > most:
                row = int(steps.argmax())
                beyond[f"{name}.{incarnation}"] = max(beyond.get(f"{name}.{incarnation}", (0, 0)),
                                                      (longest, int(series.integers("fragment")[row])))
    return [f"{who} made {steps} steps on one version of fragment {fragment}; it stands still after {most:g}"
            for who, (steps, fragment) in beyond.items()]


class _Rows:
    """The parts of all merges in columns, as the syncer recorded them."""

    def __init__(self, parts: PartColumns) -> None:
        self.parts = parts
        self.processes, self.process = parts.processes
        self.round = np.asarray(parts.of_merge("round"), np.int64)
        self.fragment = np.asarray(parts.of_merge("fragment"), np.int64)
        self.base, self.first, self.last, self.steps, self.tokens = (
            parts.integers(name) for name in ("base", "first", "last", "steps", "tokens"))
        self.weight, self.arrived = parts.numbers("weight"), parts.numbers("arrived")
        self.digest = texts(parts.column("digest"))


@dataclass(frozen=True)
class _Sent:
    """The answers of one process about one fragment, those to each round once, in the order of the rounds."""

    rounds: Integers
    digest: NDArray[np.bytes_]
    base: Integers
    first: Integers
    last: Integers
    closed: Integers
    """The step before the first that each counts in."""


class _Answers:
    """The answers that every process says it sent, from its own tape."""

    def __init__(self, tape: Tape, *, carry: bool) -> None:
        """`carry`: steps since the answer are carried on top of what is received."""
        self._carry = carry
        self._sent, self._received = tape.series(OuterGradient), tape.series(Received)
        self._broken = tape.by_process(Disconnected, Reset)
        self._tape = tape

    def of(self, node: Node) -> Mapping[int, _Sent]:
        """Return what a process sent of each fragment, by the fragment's number."""
        sent, received = self._sent.get(node), self._received.get(node)
        if sent is None or received is None:
            return {}
        closed = self._closed_one_by_one(node) if node in self._broken else self._closed(sent, received)
        rounds, fragments = sent.integers("round"), sent.integers("fragment")
        digests = texts(sent.column("digest"))
        base, first, last = (sent.integers(name) for name in ("base", "first", "step"))
        by_fragment = {}
        for fragment in np.unique(fragments).tolist():
            mine = np.flatnonzero((fragments == fragment) & (closed >= 0))
            order = mine[np.argsort(rounds[mine], kind="stable")]
            newest = order[np.append(rounds[order][1:] != rounds[order][:-1], True)[:len(order)]]
            by_fragment[fragment] = _Sent(rounds[newest], digests[newest], base[newest], first[newest], last[newest],
                                          closed[newest])
        return by_fragment

    def _closed(self, sent: Series[OuterGradient], received: Series[Received]) -> Integers:
        """Return for each answer the step before the first that it counts in; -1 where nothing had been received by
        then."""
        closed = np.full(len(sent), -1, np.int64)
        rank_sent, rank_received = ranks(sent, received)
        fragments, last = sent.integers("fragment"), sent.integers("step")
        for fragment in np.unique(fragments).tolist():
            mine = np.flatnonzero(fragments == fragment)
            receipts = np.flatnonzero(received.integers("fragment") == fragment)
            if not len(receipts):
                continue
            answered, arrived = rank_sent[mine], rank_received[receipts]
            before = np.searchsorted(answered, arrived, "left") - 1  # the answer that was under way
            under_way = (before >= 0) & (answered[np.maximum(before, 0)] > np.concatenate([[-1], arrived[:-1]]))
            step = received.integers("step")[receipts]
            closes = np.where(under_way & self._carry, last[mine][np.maximum(before, 0)], step)
            newest = np.searchsorted(arrived, answered, "left") - 1
            closed[mine] = np.where(newest >= 0, closes[np.maximum(newest, 0)], -1)
        return closed

    def _closed_one_by_one(self, node: Node) -> Integers:
        """The same for a process whose connection broke, or that dropped all that it had."""
        events = list(self._tape.by_process(OuterGradient, Received, Disconnected, Reset)[node])
        closed: dict[int, int] = {}  # the answer's number -> its step
        numbers = {id(event): number for number, event in enumerate(
            event for event in events if isinstance(event, OuterGradient))}
        for fragment in {event.fragment for event in events if isinstance(event, OuterGradient)}:
            stream = [event for event in events if getattr(event, "fragment", fragment) == fragment]
            closed |= {numbers[id(answer)]: step for answer, step in self._walk(stream)}
        return np.asarray([closed.get(number, -1) for number in range(len(numbers))], np.int64)

    def _walk(self, stream: list[Event]) -> list[tuple[OuterGradient, int]]:
        receipts = {id(receipt): (answer, broken) for receipt, answer, broken in closing_intervals(stream)}
        closed: int | None = None
        gradients = []
        for event in stream:
            if isinstance(event, Received):
                answer, broken = receipts[id(event)]
                closed = answer.step if self._carry and answer is not None and not broken else event.step
            elif isinstance(event, Reset):
                closed = None
            elif isinstance(event, OuterGradient) and closed is not None:
                gradients.append((event, closed))
        return gradients


@dataclass(frozen=True)
class _Judged:
    """The contributions of one process, as the syncer recorded them (`rows`) and as the process itself did."""

    node: Node
    rows: Integers
    lost: NDArray[np.bool_]
    """What can't be known: the process' machine was lost with the last moments of its tape."""
    differs: NDArray[np.bool_]
    """What was merged is not what was sent."""
    steps: Integers
    """By the process' own tape."""
    weight: Numbers
    weighs: NDArray[np.bool_]
    """Steps, tokens or weight are not those of the tape."""

    @classmethod
    def of(cls, history: History, node: Node, rows: _Rows, mine: Integers, answers: _Answers) -> _Judged:
        """`mine`: rows of this process.

        Raises:
            Unknown: its tape ends before one of its answers.
        """
        sent = answers.of(node)
        known = np.zeros(len(mine), bool)
        differs, closed, last = np.ones(len(mine), bool), np.zeros(len(mine), np.int64), np.full(len(mine), -1)
        digest = rows.digest[mine]
        for fragment, own in sent.items():
            here = np.flatnonzero(rows.fragment[mine] == fragment)
            at = np.searchsorted(own.rounds, rows.round[mine[here]])
            at = np.minimum(at, max(len(own.rounds) - 1, 0))
            right = own.rounds[at] == rows.round[mine[here]] if len(own.rounds) else np.zeros(len(here), bool)
            here, at = here[right], at[right]
            known[here] = True
            closed[here], last[here] = own.closed[at], own.last[at]
            differs[here] = ((own.digest[at] != digest[here]) | (own.base[at] != rows.base[mine[here]])
                             | (own.first[at] != rows.first[mine[here]]) | (own.last[at] != rows.last[mine[here]]))
        lost = _lost(history, node, rows, mine, known)
        taken, before = history.counted.get(node, (np.zeros(0, np.int64), np.zeros(1, np.int64)))
        begin, end = np.searchsorted(taken, closed, "right"), np.searchsorted(taken, last, "right")
        end = np.where(known, np.maximum(begin, end), begin)
        steps, tokens = end - begin, before[end] - before[begin]
        weight = np.where(steps > 0, tokens * (tokens / np.maximum(steps, 1)), 0.0)
        weighs = ((steps != rows.steps[mine]) | (tokens != rows.tokens[mine])
                  | ~(np.abs(weight - rows.weight[mine]) <= _SAME * weight))
        return cls(node, mine, lost, differs, steps, weight, weighs)

    def wrong(self, rows: _Rows) -> list[tuple[int, str]]:
        """Return the rows that are wrong: each its number and what is wrong with it, in words."""
        problems = []
        for place in np.flatnonzero(~self.lost & (self.differs | self.weighs)).tolist():
            row = int(self.rows[place])
            merge = rows.parts.merges[int(rows.parts.merge[row])]
            where = f"fragment {merge.fragment} version {merge.version}"
            problems.append((row, f"{where}: what was merged from {self.node[0]} is not what it sent in round "
                                  f"{rows.round[row]}" if self.differs[place] else
                             f"{where}: {self.node[0]} weighed {rows.weight[row]:.0f} for {rows.steps[row]} steps; its "
                             f"tape gives {self.weight[place]:.0f} for {self.steps[place]}"))
        return problems


def _lost(history: History, node: Node, rows: _Rows, mine: Integers, known: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Answers that the process' tape lacks because its machine was lost.

    Raises:
        Unknown: the tape lacks an answer that it ought to have.
    """
    arrived = rows.arrived[mine]
    truncated = history.truncated.get(node)
    lost = np.zeros(len(mine), bool) if truncated is None else (
        ~known & (truncated.since <= arrived) & (arrived <= truncated.until))
    silent = np.flatnonzero(~known & ~lost & ~(history.tape.ends.get(node, -inf) >= arrived))
    if len(silent):
        raise Unknown(f"the tape of {node[0]}.{node[1]} lacks its answer to round {rows.round[mine[silent[0]]]}")
    return lost
