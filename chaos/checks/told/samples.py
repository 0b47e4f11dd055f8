"""Was every piece of data trained on once? For trainers whose workers name the data of their rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median
from typing import Literal, NamedTuple

from diloco_chaos.chaos.checks.base import Figure, Finding, Unknown, at_most, check
from diloco_chaos.chaos.evidence.accounting.remade import ToldRound
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.scenario.bounds import SamplesOnce
from diloco_chaos.harness.base.lines import Line, line

Kind = Literal["batches", "samples"]
_SOME_FALLS = 5
"""Numbers that are in order fall once in so many rounds at the most: when the data begin again."""
_FOR_EVER = 10
"""Rounds in a row on the same data that are no pass over data that begin again."""
_SHOWN = 3


class _Piece(NamedTuple):
    """Data that follow each other, and who trained on them."""

    first: int
    last: int
    told: ToldRound


@dataclass
class _Lane:
    """What one worker's rounds that count were made on, in their order."""

    rounds: list[list[_Piece]]
    in_order: bool

    @property
    def ends(self) -> list[tuple[int, int]]:
        """Return the first and last number of each round."""
        return [(pieces[0].first, pieces[-1].last) for pieces in self.rounds]


@check(SamplesOnce, needs={"rounds"}, unverified="judged")
def samples_once(history: History, bound: SamplesOnce) -> Finding | None:
    """Over all processes and workers no batch, or sample, is trained on twice and none is left out. What a round was
    made on that was lost with a process, and made again, is no work that was done twice."""
    kind: Kind = "samples" if any(step.samples for each in history.told_rounds for step in each.steps) else "batches"
    told = [each for each in history.told_rounds if not each.void and _pieces(each, kind)]
    if not told:
        if "samples_once" in history.plan.checks.model_fields_set:
            raise Unknown("no worker named the data of its rounds", r"a group `(?P<batch>\d+)` in the log's expression")
        return None
    lanes, told_epochs = _lanes(told, kind), any(step.epoch is not None for each in told for step in each.steps)
    if not told_epochs and (stuck := _stuck(lanes)):
        return _for_ever(stuck, lanes, kind, bound)
    each_own = bound.numbered_by == "worker" or (bound.numbered_by is None and kind == "batches"
                                                 and _numbered_alike(told, history.first_fault))
    passes = _passes(lanes, told_epochs=told_epochs)
    again = list(_again(passes, each_own=each_own))
    skipped, unknown = _skipped(passes, lanes, each_own=bound.numbered_by == "worker")
    more = _amount(skipped) - _untold(lanes, len(history.learners) > 1 and history.plan.cluster.blocking)
    twice = sum(last - first + 1 for first, last, *_ in again)
    left = max(0, more)
    evidence = [*_twice(again, kind), *([_left_out(skipped, kind)] if left else []),
                *(line(words) for words in (unknown, f"every worker numbers its own {kind}" if each_own else "")
                  if words)]
    return Finding(twice <= bound.again and left <= bound.skipped, f"{twice} {kind} trained twice, {left} skipped",
                   at_most(f"{bound.again} twice, {bound.skipped} skipped"), evidence, figures=[
                       Figure(of="again", value=twice, limit=bound.again, unit="violations"),
                       Figure(of="skipped", value=left, limit=bound.skipped, unit="violations")])


def _pieces(told: ToldRound, kind: Kind) -> list[_Piece]:
    """Return the data of a round. Ranks of a node that tell the same batch take it together."""
    runs = [run for step in told.steps for run in (getattr(step, kind) or ())]
    return [_Piece(first, last, told) for first, last in (dict.fromkeys(runs) if kind == "batches" else runs)]


def _lanes(told: Iterable[ToldRound], kind: Kind) -> dict[str, _Lane]:
    rounds: dict[str, list[list[_Piece]]] = {}
    for each in told:
        rounds.setdefault(each.worker, []).append(_pieces(each, kind))
    return {worker: _Lane(mine, _in_order(mine)) for worker, mine in rounds.items()}


def _in_order(rounds: Sequence[list[_Piece]]) -> bool:
    """Return whether numbers grow, but for the few times when the data begin again."""
    pieces = [piece for each in rounds for piece in each]
    return sum(later.first <= earlier.last for earlier, later in pairwise(pieces)) * _SOME_FALLS <= len(rounds) or (
        all(later.first > earlier.last for earlier, later in pairwise(pieces) if earlier.told.inc == later.told.inc))


def _numbered_alike(told: Sequence[ToldRound], first_fault: float) -> bool:
    """Return whether workers told the same numbers before the first fault, so that each of them numbers its own, or
    they share each batch."""
    before = [each for each in told if each.t < first_fault] or told
    tellers = Counter(run for each in before for run in {run for step in each.steps for run in step.batches or ()})
    return len({each.worker for each in before}) > 1 and sum(count > 1 for count in tellers.values()) * 2 > len(tellers)


# -- the same data for ever ------------------------------------------------------------------------------------------

def _stuck(lanes: dict[str, _Lane]) -> list[list[_Piece]]:
    """Return the longest stretch of each worker whose rounds, of one process, were made on the same data for long: the
    first piece of each round."""
    stretches: list[list[_Piece]] = []
    for lane in lanes.values():
        runs = [[pieces[0] for pieces in run] for _, run in groupby(lane.rounds, key=lambda pieces: (
            pieces[0].told.process, [(piece.first, piece.last) for piece in pieces]))]
        stretches += [run for run in [max(runs, key=len)] if len(run) >= _FOR_EVER]
    return stretches


def _for_ever(stuck: Sequence[list[_Piece]], lanes: dict[str, _Lane], kind: Kind, bound: SamplesOnce) -> Finding:
    """Judge workers that trained on the same data in many rounds in a row.

    Raises:
        Unknown: one number is all that was ever told, and it may be how many samples a batch has.
    """
    numbers = {run for lane in lanes.values() for run in lane.ends}
    if kind == "batches" and len(numbers) == 1 and min(numbers) > (0, 0):
        raise Unknown(f"every round names the batch {min(numbers)[0]}: that may be how many samples a batch has",
                      "what names the data of a round, as `batch` or `samples`; and a group `epoch`, if there is no "
                      "more than one batch")
    twice = sum(len(run) - 1 for run in stuck)
    evidence = [line(f"{run[0].told.process} trained on {kind} {_runs([run[0][:2]])} in {len(run)} rounds in a row, "
                     f"from round {run[0].told.round} at ", run[0].told.t, f" to round {run[-1].told.round} at ",
                     run[-1].told.t) for run in stuck[:_SHOWN]]
    return Finding(twice <= bound.again, f"the same {kind} in {max(map(len, stuck))} rounds in a row",
                   at_most(f"{bound.again} twice, {bound.skipped} skipped"), evidence, figures=[
                       Figure(of="again", value=twice, limit=bound.again, unit="violations")])


# -- passes over the data --------------------------------------------------------------------------------------------

def _passes(lanes: dict[str, _Lane], *, told_epochs: bool) -> dict[int, list[_Piece]]:
    """Return what was trained on in each pass over the data: by what workers tell of epochs, or where a process whose
    data are in order begins with the first again."""
    passes: dict[int, list[_Piece]] = {}
    last_of_all = max(last for lane in lanes.values() for _, last in lane.ends)
    for lane in lanes.values():
        number, least = 0, min(piece.first for pieces in lane.rounds for piece in pieces)
        wraps = lane.in_order and any(_begins_again(pair, least) for pair in pairwise(lane.rounds))
        before: list[_Piece] = []
        size = _size_of_a_pass(lane) if len(lanes) == 1 and not lane.in_order and not told_epochs else 0
        done = 0
        for pieces in lane.rounds:
            if told_epochs:
                number = pieces[0].told.steps[0].epoch or 0
            elif size:
                number, done = done // size, done + len(pieces)
            elif before and wraps and pieces[0].first == least and (
                    _begins_again((before, pieces), least) or before[-1].last == last_of_all):
                number += 1
            passes.setdefault(number, []).extend(pieces)
            before = pieces
        if not told_epochs and not lane.in_order and not size and _comes_again(lane):
            raise Unknown(f"{lane.rounds[0][0].told.worker} trained on the same data more than once in one process, in "
                          f"no order: it is not known where a pass over the data ends",
                          "a group `epoch`, so that it is known in which pass the data come again")
    return dict(sorted(passes.items()))


def _begins_again(pair: tuple[list[_Piece], list[_Piece]], least: int) -> bool:
    before, after = pair
    return before[-1].told.process == after[0].told.process and after[0].first == least <= before[-1].last


def _size_of_a_pass(lane: _Lane) -> int:
    """Return how many pieces a pass over shuffled data has: all that there are, where the first process trained on each
    of them once, before any came again. 0: that is not known."""
    pieces = [piece for each in lane.rounds for piece in each]
    size = len({piece.first for piece in pieces})
    own = [piece.first for piece in pieces if piece.told.process == pieces[0].told.process]
    passes = [own[start:start + size] for start in range(0, len(own), size)]
    known = len(own) >= size and all(piece.first == piece.last for piece in pieces)
    return size if known and all(len(set(each)) == len(each) for each in passes) else 0


def _comes_again(lane: _Lane) -> bool:
    """Return whether one process trained on the same data twice."""
    processes: dict[str, list[_Piece]] = {}
    for pieces in lane.rounds:
        processes.setdefault(pieces[0].told.process, []).extend(pieces)
    return any(earlier.last >= later.first for mine in processes.values()
               for earlier, later in pairwise(sorted(mine, key=lambda piece: piece.first)))


# -- twice, and never ------------------------------------------------------------------------------------------------

def _again(passes: dict[int, list[_Piece]], *, each_own: bool) -> Iterator[tuple[int, int, ToldRound, ToldRound]]:
    """Yield the data that were trained on twice in a pass: first, last, by whom first and by whom again."""
    for pieces in passes.values():
        workers = {piece.told.worker for piece in pieces} if each_own else {""}
        for worker in sorted(workers):
            mine = sorted((piece for piece in pieces if worker in ("", piece.told.worker)),
                          key=lambda piece: (piece.first, piece.told.t))
            widest: _Piece | None = None
            for piece in mine:
                if widest is not None and piece.first <= widest.last:
                    earlier, later = sorted((widest.told, piece.told), key=lambda told: told.t)
                    yield piece.first, min(piece.last, widest.last), earlier, later
                if widest is None or piece.last > widest.last:
                    widest = piece


def _skipped(passes: dict[int, list[_Piece]], lanes: dict[str, _Lane], *,
             each_own: bool) -> tuple[list[tuple[int, int]], str]:
    """Return the data that no round was made on, and what can't be known of that."""
    least, most = (of(numbers) for of, numbers in (
        (min, [piece.first for pieces in passes.values() for piece in pieces]),
        (max, [piece.last for pieces in passes.values() for piece in pieces])))
    in_order = all(lane.in_order for lane in lanes.values())
    skipped: list[tuple[int, int]] = []
    for number, pieces in passes.items():
        over, first_pass = number != max(passes), number == min(passes)
        for worker in sorted({piece.told.worker for piece in pieces}) if each_own else [""]:
            mine = [piece for piece in pieces if worker in ("", piece.told.worker)]
            if over or in_order:
                start = min(piece.first for piece in mine) if first_pass and in_order else least
                gaps = _gaps(mine, start, most if over else _reached(mine))
                skipped += gaps if over else [gap for gap in gaps if _crossed(gap, mine)]
    return skipped, "" if in_order else ("numbers come in no order: what was left out is known of whole epochs only")


def _crossed(gap: tuple[int, int], pieces: Sequence[_Piece]) -> bool:
    """Return whether a worker trained on data on both sides of these: between two workers' shards of a data set that
    nobody has finished lies what they have still before them."""
    first, last = gap
    before = {piece.told.worker for piece in pieces if piece.first < first}
    return any(piece.first > last and piece.told.worker in before for piece in pieces)


def _gaps(pieces: Iterable[_Piece], start: int, end: int) -> Iterator[tuple[int, int]]:
    for piece in sorted(pieces, key=lambda piece: piece.first):
        if piece.first > start:
            yield start, min(piece.first - 1, end)
        start = max(start, piece.last + 1)
        if start > end:
            return
    if start <= end:
        yield start, end


def _reached(pieces: Sequence[_Piece]) -> int:
    """Return how far all workers have come that were there to the end: of the last pieces one may be under way."""
    newest: dict[str, _Piece] = {}
    for piece in sorted(pieces, key=lambda piece: piece.told.t):
        newest[piece.told.worker] = piece
    lately = sorted({piece.told.t for piece in pieces})[-2 * len(newest):][0]
    return min(piece.last for piece in newest.values() if piece.told.t >= lately)


def _untold(lanes: dict[str, _Lane], together: bool) -> int:
    """Return how many pieces of data belong to rounds that were not told: a log may have every tenth round only."""
    allowed = []
    for lane in lanes.values():
        holes = [(later[0].told.round - earlier[0].told.round - 1, later[0].first - earlier[-1].last - 1)
                 for earlier, later in pairwise(lane.rounds) if later[0].told.round > earlier[0].told.round + 1]
        size = median(sum(piece.last - piece.first + 1 for piece in pieces) for pieces in lane.rounds)
        explained = sum(missing > 0 for _, missing in holes) * 2 > len(holes)
        allowed.append(int(sum(rounds for rounds, _ in holes) * size) if explained else 0)
    return min(allowed) * len(allowed) if together else sum(allowed)


def _amount(runs: Iterable[tuple[int, int]]) -> int:
    return sum(last - first + 1 for first, last in runs)


def _twice(again: Sequence[tuple[int, int, ToldRound, ToldRound]], kind: Kind) -> list[Line]:
    """Say which data were trained on twice, those together that two processes had in common."""
    pairs: dict[tuple[str, str], list[tuple[int, int, ToldRound, ToldRound]]] = {}
    for entry in again:
        pairs.setdefault((entry[2].process, entry[3].process), []).append(entry)
    return [line(f"{kind} {_runs((first, last) for first, last, *_ in entries)} were trained on by {before}, in round "
                 f"{entries[0][2].round} at ", entries[0][2].t, f" the first of them, and again by {after}, in round "
                 f"{entries[0][3].round} at ", entries[0][3].t)
            for (before, after), entries in list(pairs.items())[:_SHOWN]]


def _left_out(skipped: Iterable[tuple[int, int]], kind: Kind) -> Line:
    return line(f"{kind} {_runs(skipped)} were not trained on")


def _runs(runs: Iterable[tuple[int, int]]) -> str:
    """Return runs of numbers in words: those that follow each other in one, and of many the first."""
    together: list[tuple[int, int]] = []
    for first, last in sorted(runs):
        if together and first <= together[-1][1] + 1:
            together[-1] = together[-1][0], max(last, together[-1][1])
        else:
            together.append((first, last))
    words = [f"{first} to {last}" if last > first else str(first) for first, last in together]
    return ", ".join(words[:_SHOWN]) + (f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else "")
