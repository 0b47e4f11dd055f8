"""What became of every processed token: for each fragment each inner step ends in exactly one fate.

A step is merged into a version, discarded (with the reason), or outstanding at the end. This is rebuilt from the
learners' own tapes (`step`, `outer_gradient`, `received`) and from the intervals that the syncer says it merged.
"""

from __future__ import annotations

import math
import signal
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from diloco_chaos.chaos.evidence.accounting.parts import Integers, PartColumns
from diloco_chaos.chaos.evidence.accounting.step_fates import Fates
from diloco_chaos.chaos.evidence.truncated import Truncated
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.base.tensors import Numbers, np
from diloco_chaos.harness.record.tape.events import (
    Disconnected,
    Event,
    Exit,
    Hello,
    OuterGradient,
    Received,
    Refused,
    Reset,
    Step,
)
from diloco_chaos.harness.record.tape.reading import Process, Tape
from diloco_chaos.harness.record.tape.recovered import Made
from diloco_chaos.harness.record.tape.series import Series, ranks, times, values

if TYPE_CHECKING:  # see harness/base/tensors.py
    from numpy.typing import NDArray

Node = Process
"""Name and incarnation."""

MERGED, OUTSTANDING, OVERLAP, ROLLED_BACK = "merged", "outstanding", "overlap", "rolled back"
CRASH, LEFT = "crash", "left"
RESET = "memory"
"""A learner dropped all that it had, because it could not be right."""
INTERRUPTED = "interrupted"
"""Data parallelism: the group broke before the step was made."""
NOT_REQUESTED, LOST = "not requested", "lost on the way"
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

    def shares(self, node: Node) -> tuple[Integers, Numbers]:
        """The steps of a process in order, and for each the share of the model (by size) for which it was merged, or
        lost only to the overlap."""
        own = [(size, self.fates[index, node]) for index, size in enumerate(self.sizes) if (index, node) in self.fates]
        if not own:
            return np.zeros(0, np.int64), np.zeros(0)
        good = np.zeros(len(own[0][1].steps))
        for size, fates in own:
            good[fates.have(MERGED, OVERLAP)] += size / sum(self.sizes)
        return own[0][1].steps, good

    def useful(self, node: Node, steps: Integers) -> Numbers:
        """The same for some of its steps, in any order."""
        known, shares = self.shares(node)
        return shares[np.searchsorted(known, steps)]


def killed(tape: Tape) -> dict[Node, str]:
    """Incarnations that a fault ended: whether they crashed, or left in good order, because they were asked to."""
    return {exited.process: LEFT if exited.status in _ASKED else CRASH
            for exited in tape.of(Exit, node="harness") if exited.target and exited.killed}


def account(plan: Plan, tape: Tape, steps: Mapping[Node, Series[Step]], parts: PartColumns,
            rolled_back: Sequence[Made] = (), truncated: Mapping[Node, Truncated] = MappingProxyType({}),
            ) -> TokenAccounting:
    """Give every step of every fragment its fate.

    `steps` holds the step events of each learner's incarnation, `parts` what went into the merges to take into account,
    of which those that are `rolled_back` came to nothing. `truncated`: processes whose tapes lack their last moments.
    """
    accounting = TokenAccounting(sizes=[fragment.size for fragment in plan.cluster.fragment_table()])
    done = {node: counted(events) for node, events in steps.items()}
    accounting.fates = {(index, node): Fates(taken) for node, (taken, _) in done.items()
                        for index in range(len(accounting.sizes))}
    _give_merged(parts, accounting, {node: taken for node, (taken, _) in done.items()}, truncated)
    closing, refused, dead = _Closing(tape), _refusals(tape), killed(tape)
    void: dict[Node, list[int]] = defaultdict(list)
    for merge in rolled_back:
        for part in merge.contributions:
            void[part.learner, part.incarnation].append(part.last)
    at_end = OUTSTANDING if plan.cluster.exchanges_fragments else INTERRUPTED
    for node, (taken, before) in done.items():
        _gapless(node, steps[node], accounting)
        accounting.processed += int(before[-1])
        for index, size in enumerate(accounting.sizes):
            fates = accounting.fates[index, node]
            where = f"fragment {index}, {node[0]}.{node[1]}"
            accounting.violations += closing.close(fates, node, index, int(taken[0]), refused[index, node], where)
            fates.give_all(range(len(taken)), dead.get(node, at_end))
            for step in void[node]:
                for place in fates.places(step, step):
                    fates.change(place, ROLLED_BACK)
            for fate, tokens in fates.tokens(before).items():
                accounting.by_fate[fate] += tokens * size
    _used_once(steps, {node: taken for node, (taken, _) in done.items()}, accounting)
    if plan.cluster.exchanges_fragments:  # there a step that came to nothing is taken again
        _leased_once(steps, _overtaken(tape, parts, plan.cluster.heartbeat_timeout), accounting)
    accounting.by_fate = Counter({fate: round(count / sum(accounting.sizes)) for fate,
                                  count in accounting.by_fate.items()})
    return accounting


def counted(events: Series[Step]) -> tuple[Integers, Integers]:
    """A process' steps in order, each once, and how many tokens it had trained on before each of them and at last."""
    steps, tokens = np.asarray(events.column("step")), np.asarray(events.column("tokens"))
    if not (steps[1:] > steps[:-1]).all():  # two processes under one number: the later of two counts
        newest = dict(zip(steps.tolist(), tokens.tolist(), strict=True))
        steps = np.asarray(sorted(newest))
        tokens = np.asarray([newest[step] for step in steps.tolist()])
    return steps.astype(np.int64), np.concatenate([[0], np.cumsum(tokens, dtype=np.int64)])


def _gapless(node: Node, events: Series[Step], accounting: TokenAccounting) -> None:
    """A process counts its steps without a gap, and each of them once."""
    counts = np.asarray(events.column("step"))
    least, most = int(counts.min()), int(counts.max())
    if len(np.unique(counts)) != len(counts):
        accounting.violations.append(f"{node[0]}.{node[1]} took a step twice: two processes under one number")
    elif most - least + 1 != len(counts):
        accounting.violations.append(f"{node[0]}.{node[1]} took {len(counts)} steps from {least} to {most}: "
                                     f"there is a hole")


# -- what was merged ---------------------------------------------------------------------------------------------------

def _give_merged(parts: PartColumns, accounting: TokenAccounting, taken: Mapping[Node, Integers],
                 truncated: Mapping[Node, Truncated]) -> None:
    """Give what was merged its fate, checked against overlap and against what the learner did."""
    if not len(parts.merge):
        return
    processes, of = parts.processes
    fragments, first, last = (np.asarray(parts.of_merge("fragment"), np.int64), parts.integers("first"),
                              parts.integers("last"))
    moments = np.asarray(parts.of_merge("t"), float)
    wrong: list[tuple[int, int, str]] = []  # row, which check, in words
    for number, node in enumerate(processes):
        mine = np.flatnonzero(of == number)
        own = taken.get(node, np.zeros(0, np.int64))
        begin, end = np.searchsorted(own, first[mine], "left"), np.searchsorted(own, last[mine], "right")
        end = np.maximum(begin, end)
        known = last[mine] if (lost := truncated.get(node)) is None else lost.known(last[mine], moments[mine])
        missing = (end - begin != np.maximum(known - first[mine] + 1, 0)) | ((end == begin) & (known >= last[mine]))
        wrong += [(row, 1, f"{_where(parts, row)}: only {count} of these steps are on the learner's tape")
                  for row, count in zip(mine[missing].tolist(), (end - begin)[missing].tolist(), strict=True)]
        for fragment in np.unique(fragments[mine]).tolist():
            here = fragments[mine] == fragment
            wrong += [(row, 0, f"{_where(parts, row)} merged again (steps {a}-{b} were merged before)")
                      for row, (a, b) in _again_merged(mine[here], first, last)]
            if (fragment, node) in accounting.fates:
                accounting.fates[fragment, node].give_all(_covered(begin[here], end[here], len(own)), MERGED)
    accounting.violations += [words for _, _, words in sorted(wrong)]


def _again_merged(rows: Integers, first: Integers, last: Integers) -> Iterator[tuple[int, tuple[int, int]]]:
    """Rows of one process and fragment whose steps overlap with those of an earlier row, and which those were."""
    furthest = np.maximum.accumulate(last[rows])
    for place in np.flatnonzero(first[rows][1:] <= furthest[:-1]) + 1:  # hardly ever: intervals follow each other
        before = [(int(first[row]), int(last[row])) for row in rows[:place]]
        again = next(((a, b) for a, b in reversed(before) if first[rows[place]] <= b and a <= last[rows[place]]), None)
        if again is not None:
            yield int(rows[place]), again


def _covered(begin: Integers, end: Integers, count: int) -> Integers:
    """Places that lie in any of these intervals [begin, end)."""
    edges = np.zeros(count + 1, np.int64)
    np.add.at(edges, begin, 1)
    np.add.at(edges, end, -1)
    return np.flatnonzero(np.cumsum(edges)[:count] > 0)


def _where(parts: PartColumns, row: int) -> str:
    merge, part = parts.merges[int(parts.merge[row])], parts.part(row)
    return (f"fragment {merge.fragment} version {merge.version}: {part.learner}.{part.incarnation} steps "
            f"{part.first}-{part.last}")


# -- what was not ------------------------------------------------------------------------------------------------------

class _Stream:
    """The records of one process about its fragments: answers, and what closed steps, each with its rank in time."""

    def __init__(self, answers: Series[OuterGradient] | None, receipts: Series[Received] | None,
                 resets: Series[Reset] | None) -> None:
        given = [series for series in (answers, receipts, resets) if series is not None]
        rank = iter(ranks(*given)) if given else iter(())
        nothing = np.zeros(0, np.int64)
        self.answered, self.received, self.reset = (nothing if series is None else next(rank)
                                                    for series in (answers, receipts, resets))
        self.answers = {name: nothing if answers is None else answers.integers(name)
                        for name in ("fragment", "first", "step")}
        self.receipts = {name: nothing if receipts is None else receipts.integers(name)
                         for name in ("fragment", "version", "step", "carried", "closed")}
        self.resets = nothing if resets is None else resets.integers("step")


class _Closing:
    """Closes steps: each receipt closes those before it that are not carried on, and so does a reset."""

    def __init__(self, tape: Tape) -> None:
        answers, receipts, resets = tape.series(OuterGradient), tape.series(Received), tape.series(Reset)
        self._streams = {node: _Stream(answers.get(node), receipts.get(node), resets.get(node))
                         for node in answers.keys() | receipts.keys() | resets.keys()}

    def close(self, fates: Fates, node: Node, fragment: int, began: int, refused: Sequence[Refused],
              where: str) -> list[str]:
        """Give each step that was closed without being merged the reason why; what contradicts itself, in words.
        `began`: the first step of the process."""
        if (stream := self._streams.get(node)) is None:
            return []
        mine = stream.receipts["fragment"] == fragment
        step = np.concatenate([stream.receipts["step"][mine], stream.resets])
        if not len(step):
            return []
        rank = np.concatenate([stream.received[mine], stream.reset])
        until = np.concatenate([(stream.receipts["step"] - stream.receipts["carried"])[mine], stream.resets])
        is_reset = np.arange(len(step)) >= int(mine.sum())
        closed, version = (np.concatenate([stream.receipts[name][mine], np.zeros(len(stream.resets), np.int64)])
                           for name in ("closed", "version"))
        order = np.argsort(rank)
        step, rank, until, closed, version = (column[order] for column in (step, rank, until, closed, version))
        is_reset = is_reset[order]
        before = np.concatenate([[began - 1], np.maximum(np.maximum.accumulate(until), began - 1)[:-1]])
        self._give_reasons(fates, stream, fragment, rank, before, until, is_reset, refused)
        expected = np.maximum(until - before, 0)
        wrong = np.flatnonzero(~is_reset & (closed != expected) & (step >= began))
        return [f"{where}: version {version[place]} closed {closed[place]} steps, but {expected[place]} had no fate"
                for place in wrong.tolist()]

    @staticmethod
    def _give_reasons(fates: Fates, stream: _Stream, fragment: int, rank: Integers, before: Integers, until: Integers,
                      is_reset: NDArray[np.bool_], refused: Sequence[Refused]) -> None:
        """`rank`, `before`, `until`, `is_reset`: of each event that closes steps in (before, until], in order."""
        places = np.flatnonzero(fates.codes == 0)
        closer = np.searchsorted(np.maximum.accumulate(until), fates.steps[places], "left")
        inside = closer < len(until)
        places, closer = places[inside], closer[inside]
        inside = fates.steps[places] > before[closer]
        places, closer = places[inside], closer[inside]
        mine = stream.answers["fragment"] == fragment
        answered = stream.answered[mine]
        earliest = np.searchsorted(answered, np.concatenate([[-1], rank[:-1]]), "right")  # the first since the last one
        has_answer = earliest < np.searchsorted(answered, rank, "left")
        first, last = (np.append(stream.answers[name][mine], 0)[earliest] for name in ("first", "step"))
        steps = fates.steps[places]
        begin = np.searchsorted(fates.steps, before, "right")
        merged = np.append(np.flatnonzero(fates.have(MERGED)), len(fates.steps))
        merged_from = merged[np.searchsorted(merged, begin, "left")]  # the first merged step that it may have closed
        answered_for = has_answer[closer] & (first[closer] <= steps) & (steps <= last[closer])
        reasons = np.select(
            [is_reset[closer], merged_from[closer] < places, ~has_answer[closer], answered_for],
            [fates.code(RESET), fates.code(OVERLAP), fates.code(NOT_REQUESTED), fates.code(LOST)],
            default=fates.code(OVERLAP)).astype(np.uint8)
        if refused:
            said = _refused(fates, refused)
            reasons = np.where(said[places] > 0, said[places], reasons)
        fates.codes[places] = reasons


def _refusals(tape: Tape) -> Mapping[tuple[int, Node], list[Refused]]:
    """Answers of each fragment and learner that the syncer refused, in the order of time."""
    refused: dict[tuple[int, Node], list[Refused]] = defaultdict(list)
    for event in tape.of(Refused):
        if event.first is not None and event.fragment is not None:  # else a learner refused a broadcast
            refused[event.fragment, (event.learner or "", event.incarnation or 0)].append(event)
    return refused


def _refused(fates: Fates, refusals: Iterable[Refused]) -> NDArray[np.uint8]:
    """Return for each step the code of the reason why a contribution with it was refused the last time; 0 where none
    was. A refusal may be written after the receipt that closed the step."""
    reasons = np.zeros(len(fates.steps), np.uint8)
    for event in refusals:
        places = fates.places(event.first or 0, event.last or 0)
        reasons[places.start:places.stop] = fates.code(event.reason)
    return reasons


# -- what was used -----------------------------------------------------------------------------------------------------

def _used_once(steps: Mapping[Node, Series[Step]], taken: Mapping[Node, Integers],
               accounting: TokenAccounting) -> None:
    """No batch of a learner's shard is merged twice into a fragment, whichever process trained on it."""
    for learner in dict.fromkeys(name for name, _ in steps):
        positions = {node: _positions(events, taken[node]) for node, events in steps.items() if node[0] == learner}
        for index in range(len(accounting.sizes)):
            used: set[Any] = set()
            for node, of in positions.items():
                merged = accounting.fates[index, node].have(MERGED)
                for position in _again(of[merged].tolist(), used):
                    accounting.violations.append(f"fragment {index}: batch {position} of {learner} was merged twice")


def _positions(events: Series[Step], taken: Integers) -> NDArray[Any]:
    """Return the position of the batch that each of these steps was made on; None where that is not recorded."""
    column = events.column("position")
    if not isinstance(column, list) and len(column) == len(taken):
        return column  # each step once, in order
    said = {step: position for step, position in zip(values(events, "step"), values(events, "position"), strict=True)
            if position is not None}
    return np.asarray([said.get(step) for step in taken.tolist()], object)


def _again(positions: list[Any], used: set[Any]) -> list[Any]:
    """Return the positions that had been used before, or come again; all are used then."""
    new = set(positions)
    if len(new) == len(positions) and None not in new and used.isdisjoint(new):  # nearly always, and quick
        used |= new
        return []
    again = []
    for position in positions:
        if position in used:
            again.append(position)
        elif position is not None:
            used.add(position)
    return again


def _overtaken(tape: Tape, parts: PartColumns, timeout: float) -> Mapping[Node, float]:
    """Return for each process the time in seconds when it must have seen that a newer one has its place: `timeout`
    after the syncer had first heard of that. One that goes on, because it is cut off, makes steps that count for
    nothing; unless one was merged."""
    heard: dict[Node, float] = {}
    for hello in tape.of(Hello):
        heard.setdefault(hello.process, hello.t)
    overtaken: dict[Node, float] = {}
    for (learner, newer), t in heard.items():
        for older in range(newer):
            overtaken[learner, older] = min(t + timeout, overtaken.get((learner, older), t + timeout))
    processes, of = parts.processes if overtaken and len(parts.merge) else ([], np.zeros(0, np.int64))
    moments = np.asarray(parts.of_merge("t"), float) if processes else np.zeros(0)
    for number, process in enumerate(processes):
        if process in overtaken and (moments[of == number] > overtaken[process]).any():
            del overtaken[process]
    return overtaken


def _leased_once(steps: Mapping[Node, Series[Step]], overtaken: Mapping[Node, float],
                 accounting: TokenAccounting) -> None:
    """No two processes of a learner train on the same batch of its shard, as long as their steps may count."""
    lives = Counter(learner for learner, _ in steps)
    first: dict[str, dict[int, int]] = defaultdict(dict)
    for (learner, incarnation), events in steps.items():
        if lives[learner] == 1:
            continue
        until = overtaken.get((learner, incarnation), math.inf)
        count = len(events) if until == math.inf else bisect_right(times(events), until)
        again = [position for position in values(events, "position")[:count] if position is not None
                 and first[learner].setdefault(position, incarnation) != incarnation]
        if again:
            accounting.violations.append(f"{learner}.{incarnation} trained on {len(again)} batches that another "
                                         f"process of it had trained on; the first is {min(again)}")


def closing_intervals(events: Iterable[Event]) -> Iterator[tuple[Received, OuterGradient | None, bool]]:
    """(receipt, the answer that was under way, whether the connection broke since) for each receipt, in order."""
    answer: OuterGradient | None = None
    broken = False
    for event in events:
        match event:
            case OuterGradient():
                answer, broken = event, False
            case Disconnected():
                broken = True
            case Reset():
                answer, broken = None, False
            case Received():
                yield event, answer, broken
                answer, broken = None, False
            case _:
                pass
