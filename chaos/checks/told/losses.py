"""What workers tell of their rounds' losses and weights: are the losses numbers, and of one kind in one round, and is
what is made again the same again? For trainers whose workers number their rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, pairwise, takewhile
from operator import itemgetter
from statistics import median, median_low
from typing import NamedTuple, TypeVar

from diloco_chaos.chaos.checks.base import Figure, Finding, Unknown, check, need, violations
from diloco_chaos.chaos.evidence.accounting.remade import Said, ToldRound
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.scenario.bounds import LossesAreNumbers, MembersAgree, RoundsRepeat, SameAsUninterrupted
from diloco_chaos.harness.base.lines import Line, line

T = TypeVar("T")
_LASTS = 3
"""Rounds in a row without a number that are more than one that was skipped, though a successor went on with numbers."""
_BLOWN_UP = 1e4
"""A loss that is so many times as large as any before the first fault is no loss any more."""
_STANDS = 10
"""Rounds after the first fault, and before it, that tell whether a loss stands which had been moving."""
_FALL = 0.1
"""A loss that was above this share of what it used to be does not become 0 from one process to the next."""


@check(LossesAreNumbers, needs={"rounds"}, unverified="judged")
def losses_are_numbers(history: History, bound: LossesAreNumbers) -> Finding | None:
    """No process ends with a loss that is no number, is far beyond all that were, or stands; one that recovers may have
    told some."""
    told = [each for each in history.told_rounds if each.losses]
    if not told:
        return None
    wrong: list[Line] = []
    recovered: list[Line] = []
    newest = {each.worker: each.inc for each in told}
    before = max((abs(loss) for each in told if each.t < history.first_fault for loss in _numbers(each)), default=0.0)
    processes = _by(told, lambda each: each.process)
    for name, mine in processes.items():
        last = newest[mine[0].worker] == mine[0].inc
        for numbers, stretch in _stretches(mine):
            if numbers:
                continue
            at_end = stretch[-1] is mine[-1]
            lasts = at_end and (last or len(stretch) >= _LASTS)
            too_many = bound.in_a_row is not None and len(stretch) > bound.in_a_row
            words = _no_number(name, stretch, "to its end" if at_end else "")
            (wrong if lasts or too_many else recovered).append(words)
        wrong += _blown_up(mine, before) if last else []
        wrong += _zero(mine, [each for each in told if each.worker == mine[0].worker and each.t < mine[0].t])
    for worker, mine in _by(told, lambda each: each.worker).items():
        wrong += _standing(worker, mine, history.first_fault)
    return Finding(not wrong, f"{len(wrong)} of {len(processes)} processes end without a number" if wrong
                   else f"{len(told)} losses, {sum(map(_without_number, told))} no numbers", "numbers",
                   [*wrong[:5], *recovered[:3]], figures=violations(wrong))


def _stretches(told: Sequence[ToldRound]) -> list[tuple[bool, list[ToldRound]]]:
    return [(not without, list(each)) for without, each in groupby(told, key=_without_number)]


def _without_number(told: ToldRound) -> bool:
    return any(isinstance(loss, str) for loss in told.losses)


def _no_number(name: str, stretch: Sequence[ToldRound], until: str) -> Line:
    word = next(loss for loss in stretch[0].losses if isinstance(loss, str))
    rounds = f"in {len(stretch)} round{'s' if len(stretch) > 1 else ''}"
    return line(f"{name} told the loss {word} from round {stretch[0].round} at ", stretch[0].t,
                f" on, {rounds}{f' {until}' if until else ', and then numbers again'}")


def _numbers(told: ToldRound) -> list[float]:
    return [loss for loss in told.losses if isinstance(loss, float)]


def _blown_up(mine: Sequence[ToldRound], before: float) -> list[Line]:
    """Say that a process ends with losses that are beyond all that was told before the first fault."""
    beyond = list(takewhile(lambda each: before * _BLOWN_UP < min(map(abs, _numbers(each)), default=0.0),
                            reversed(mine)))
    if not before or len(beyond) < _LASTS:
        return []
    first = beyond[-1]
    return [line(f"{first.process} told losses of {min(_numbers(first)):.4g} and the like from round {first.round} at ",
                 first.t, f" on, in {len(beyond)} rounds to its end, where none was above {before:.4g} before the "
                 f"first fault")]


def _standing(worker: str, mine: Sequence[ToldRound], fault: float) -> list[Line]:
    """Say that a worker tells one loss from the first fault to its end, where no two in a row were the same before: it
    computes nothing any more."""
    before = [each.losses for each in mine if each.t < fault][-_STANDS:]
    after = [each for each in mine if each.t >= fault][1:]  # the first may have been computed before it
    moved = len(before) == _STANDS and all(one != other for one, other in pairwise(before))
    if not moved or len(after) < _STANDS or any(each.losses != after[0].losses for each in after):
        return []
    if _without_number(after[0]):
        return []  # that is told of its process
    return [line(f"{worker} told the loss {_shown(after[0].losses)} from round {after[0].round} at ", after[0].t,
                 f" on, in all {len(after)} rounds to its end, where it had been another one in each round before")]


def _zero(mine: Sequence[ToldRound], before: Sequence[ToldRound]) -> list[Line]:
    """Say that a process tells nothing but 0, where its predecessor was far from it: some frameworks print that for
    NaN."""
    known = [loss for each in before for loss in _numbers(each)]
    if len(mine) < _LASTS or any(loss != 0.0 for each in mine for loss in each.losses):
        return []
    if len(known) < _LASTS or abs(known[-1]) <= _FALL * abs(median(known)):
        return []
    return [line(f"{mine[0].process} told the loss 0 from round {mine[0].round} at ", mine[0].t,
                 f" on, in all its {len(mine)} rounds, where it had been {known[-1]:g}: some frameworks print 0.0 for "
                 f"NaN")]


# -- made again ------------------------------------------------------------------------------------------------------

_NO_ROUND_TWICE = "no round was made twice"


@check(RoundsRepeat, needs={"rounds"}, unverified="judged")
def rounds_repeat(history: History, bound: RoundsRepeat) -> Finding | None:
    """A round that is made again after going back to a checkpoint has the same loss again, and the same digest of
    weights: nothing but the state that was lost decides them. Where there is a run without faults, what a process made
    that was started again is held against that, too."""
    asked, alone = "rounds_repeat" in history.plan.checks.model_fields_set, len(history.learners) == 1
    if not asked and not (alone or history.plan.cluster.blocking):
        return None  # workers that finish no round together may well learn from each other meanwhile
    pairs, why = _made_twice(history, bound.after_rounds)
    differ = [(before, again, unlike) for before, again in pairs
              if (unlike := _unlike(before.said, again.said, bound.tolerance))]
    whole = _as_without_faults(history, bound) if alone and not differ else None
    if whole and not (pairs and whole.holds):
        return whole
    if not pairs:
        if not asked:
            return None
        raise Unknown(why, "a kill that comes later than a checkpoint (`at`)" if why == _NO_ROUND_TWICE else "")
    if differ and bound.control:
        _controlled(history, bound.tolerance)
    evidence = [line(f"round {again.round}: {before.process} told {unlike.one} at ", before.t,
                     f", and {again.process} told {unlike.other} at ", again.t) for before, again, unlike in differ[:3]]
    if differ:
        evidence.append(line("docs/resumable.md says what is often not restored; a trainer that computes the same in "
                             "another order needs a `tolerance`"))
    allowed = f"0 by more than {bound.tolerance:.2%}" if bound.tolerance else "0"
    also = f"; {whole.measured}" if whole else ""
    return Finding(not differ, f"{len(differ)} of {len(pairs)} differ{_which(again for _, again in pairs)}{also}",
                   allowed, evidence, figures=violations(differ))


def _which(told: Iterable[ToldRound]) -> str:
    """Return which rounds these are, in words."""
    numbers = {each.round for each in told}
    first, last = min(numbers), max(numbers)
    if first == last:
        return f" (round {first})"
    return f" (rounds {first} to {last})" if len(numbers) == last - first + 1 else f" (of rounds {first} to {last})"


def _controlled(history: History, tolerance: float) -> None:
    """Hold the rounds of before the first fault against a run without faults.

    Raises:
        Unknown: they differ as well, or there are none.
    """
    early = [each for each in history.told_rounds if each.t < history.first_fault]
    before = _beside_uninterrupted(history, early)
    need(before, "no round before the first fault was told with a loss here and in the run without faults")
    differ = [(each, expected, unlike) for each, expected in before
              if (unlike := _unlike(each.said, expected, tolerance))]
    if differ:
        each, _, unlike = differ[0]
        raise Unknown(f"it is not deterministic: without any fault round {each.round} of {each.worker} had "
                      f"{unlike.one} here and {unlike.other} in another run, and {len(differ)} of {len(before)} rounds "
                      f"differ",
                      f"`rounds_repeat: {{tolerance: ...}}`; the losses of these two runs differ by "
                      f"{_apart_by((each.losses, expected.losses) for each, expected, _ in differ):.2%} at most")


def _as_without_faults(history: History, bound: RoundsRepeat) -> Finding | None:
    """Hold what processes made that were started again against the run without faults, if there was one; None: nothing
    can be said, as the two differ before the first fault, too, or there is too little."""
    reference = history.references.get("fault-free")
    if reference is None or not (reference.rounds or reference.digests):
        return None
    beside = _beside_uninterrupted(history, [each for each in history.told_rounds if not each.void])
    early = [pair for pair in beside if pair[0].t < history.first_fault]
    left_out = {id(each) for mine in _by(history.told_rounds, lambda each: each.process).values()
                for each in mine[:bound.after_rounds]}
    late = [pair for pair in beside if pair[0].inc > 0 and pair[0].t >= history.first_fault
            and id(pair[0]) not in left_out]
    if len(early) < _STANDS or not late or any(_unlike(each.said, expected, bound.tolerance)
                                               for each, expected in early):
        return None
    differ = [(each, unlike) for each, expected in late if (unlike := _unlike(each.said, expected, bound.tolerance))]
    evidence = [line(f"round {each.round}: {each.process} told {unlike.one} at ", each.t,
                     f", and without faults it was {unlike.other}; the {len(early)} rounds before the first fault are "
                     f"the same in both") for each, unlike in differ[:3]]
    return Finding(not differ, f"{len(differ)} of {len(late)} differ from those without faults",
                   f"0 by more than {bound.tolerance:.2%}" if bound.tolerance else "0", evidence,
                   figures=violations(differ))


def _apart_by(pairs: Iterable[tuple[Sequence[float | str], Sequence[float | str]]]) -> float:
    """Return by how much losses differ at most, as a share of the larger."""
    both = [pair for some, others in pairs for pair in zip(some, others, strict=False) if pair[0] != pair[1]]
    return max((abs(one - other) / max(abs(one), abs(other)) for one, other in both
                if isinstance(one, float) and isinstance(other, float)), default=1.0 if both else 0.0)


def _beside_uninterrupted(history: History,
                          told: Iterable[ToldRound]) -> list[tuple[ToldRound, Said]]:
    """Return those of the rounds of which something is known here and without faults, each with what the same nodes
    told then.

    Raises:
        Unknown: there is no such run.
    """
    reference = history.references.get("fault-free")
    if reference is None or not (reference.rounds or reference.digests):
        raise Unknown("the fault-free reference is missing, or told neither losses nor digests")
    losses, digests = _by_round(reference.rounds), _by_round(reference.digests)
    beside = [(each, Said(losses.get(key, ()), digests.get(key, ()))) for each in told
              for key in [(each.worker, each.round)]]
    return [(each, expected) for each, expected in beside if _comparable(each.said, expected)]


def _by_round(rounds: Mapping[str, Sequence[tuple[int, T]]]) -> dict[tuple[str, int], T]:
    return {(worker, number): values for worker, mine in rounds.items() for number, values in mine}


def _made_twice(history: History, after: int) -> tuple[list[tuple[ToldRound, ToldRound]], str]:
    """Return the rounds that can be compared with what was told of them before, and why there are none."""
    told, together = history.told_rounds, history.plan.cluster.blocking
    members: dict[tuple[int, int], set[str]] = {}
    for each in told:
        members.setdefault((each.era, each.round), set()).add(each.worker)
    pairs, why, parted = [], _NO_ROUND_TWICE, _parted(members)
    for mine in _by(told, lambda each: each.worker).values():
        versions: dict[int, ToldRound] = {}
        for attempt in _by(mine, lambda each: str(each.attempt)).values():
            for place, each in enumerate(attempt):
                before = versions.get(each.round)
                versions[each.round] = each
                if before is None or place < after:
                    continue
                if not _comparable(before.said, each.said):
                    why = "rounds were made twice, and not both times with a loss, or a digest"
                elif together and (before.era == each.era or each.round >= parted.get(each.era, math.inf)
                                   or members[before.era, each.round] != members[each.era, each.round]):
                    why = "rounds were made twice, and by other workers the second time"
                else:
                    pairs.append((before, each))
    return sorted(pairs, key=lambda pair: pair[1].t), why


def _parted(members: Mapping[tuple[int, int], set[str]]) -> dict[int, int]:
    """Return by era the first round that other workers made than before: each later round began from another state.

    A kill may come between the reports of an era's last round, so this one says nothing of who made it.
    """
    parted: dict[int, int] = {}
    latest: dict[int, set[str]] = {}
    for era, keys in groupby(sorted(members), key=itemgetter(0)):
        *rounds, last = [number for _, number in keys]
        for number in rounds:
            if latest.get(number, members[era, number]) != members[era, number]:
                parted.setdefault(era, number)
        latest |= {number: members[era, number] for number in rounds}
        latest.pop(last, None)
    return parted


class _Unlike(NamedTuple):
    """What two tellings of one round say that is not the same, in words."""

    one: str
    other: str


def _comparable(one: Said, other: Said) -> bool:
    return bool((one.losses and other.losses) or (one.digests and other.digests))


def _unlike(one: Said, other: Said, tolerance: float) -> _Unlike | None:
    """Return what is not the same; None where all is. Who allows a loss to differ can't have the same weights."""
    if one.losses and other.losses and not _alike(one.losses, other.losses, tolerance):
        return _Unlike(f"the loss {_shown(one.losses)}", _shown(other.losses))
    if one.digests and other.digests and not tolerance:
        fewer, more = sorted((set(one.digests), set(other.digests)), key=len)
        if not fewer <= more:
            return _Unlike(f"the digest {' and '.join(one.digests)}", " and ".join(other.digests))
    return None


def _alike(some: Sequence[float | str], others: Sequence[float | str], tolerance: float) -> bool:
    """Return whether the losses of the fewer ranks are among those of the others: a kill may come between two."""
    fewer, more = sorted((list(some), list(others)), key=len)
    for loss in fewer:
        match = next((other for other in more if _near(loss, other, tolerance)), None)
        if match is None:
            return False
        more.remove(match)
    return True


def _near(one: float | str, other: float | str, tolerance: float) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return abs(one - other) <= tolerance * max(abs(one), abs(other))


def _shown(losses: Iterable[float | str]) -> str:
    return " and ".join(loss if isinstance(loss, str) else f"{loss:.8g}" for loss in losses)


@check(SameAsUninterrupted, needs={"rounds"}, unverified="judged")
def same_as_uninterrupted(history: History, bound: SameAsUninterrupted) -> Finding | None:
    """Every round that counts has the loss, and the digest of weights, that the same nodes told of it without
    faults."""
    told = _beside_uninterrupted(history, [each for each in history.told_rounds if not each.void])
    need(told, "no round was told with a loss, or a digest, in both runs")
    differ = [(each, unlike) for each, expected in told if (unlike := _unlike(each.said, expected, bound.tolerance))]
    evidence = [line(f"round {each.round}: {each.process} told {unlike.one} at ", each.t,
                     f", and without faults it was {unlike.other}") for each, unlike in differ[:3]]
    return Finding(not differ, f"{len(differ)} of {len(told)} differ" + (f", from round {differ[0][0].round} on"
                                                                        if differ else ""),
                   f"0 by more than {bound.tolerance:.2%}" if bound.tolerance else "0", evidence,
                   figures=violations(differ))


# -- members of one round ----------------------------------------------------------------------------------------------

_USUAL, _LEAST, _STRETCH, _STRETCHES, _AROUND = 10, 5, 10, 20, 3
_MOST_OF_IT, _NOTHING = 0.8, 1e-9
"""Share of a stretch in which a worker is as far from the others as it is said to be."""
_BEYOND, _WITHOUT_BEFORE, _OF_THE_FIRST, _ROUNDED = 4.0, 6.0, 0.05, 1e-3
_OF_A_MEDIAN = 1.25
"""Standard error of a median, where that of the mean is one."""
_DEVIATION = 1.4826 / 2 ** 0.5
"""Standard deviation of values, where the median of how much they differ from one to the next is one."""


class _Beside(NamedTuple):
    """A worker's loss in a round, and that of the other members: the lower of the middle ones, so that of two good ones
    and a bad one it is a good one's."""

    round: int
    t: float
    own: float
    others: float
    level: float
    """What the others' losses are around that round."""

    @property
    def gap(self) -> float:
        """Return how much larger its own is, as a share of the level."""
        return (self.own - self.others) / max(self.level, _NOTHING)


@check(MembersAgree, needs={"rounds"}, unverified="judged")
def members_agree(history: History, bound: MembersAgree) -> Finding | None:
    """The losses of the members of a round are of one kind: none is far from the others', by its own spread and by what
    was usual before the first fault, for a stretch of rounds."""
    if not history.plan.cluster.blocking:
        return None
    beside = {worker: mine for worker, mine in _beside(history.told_rounds).items() if len(mine) >= _LEAST}
    if not beside:
        return None
    before = {worker: [each for each in mine if each.t < history.first_fault] for worker, mine in beside.items()}
    spread = max(_spread(before[worker] if len(before[worker]) >= _USUAL else mine) for worker, mine in beside.items())
    if not any(len(mine) >= _USUAL for mine in before.values()):
        spread = min(map(_spread, beside.values()))  # one that is apart may differ more from round to round
    apart: list[tuple[float, bool, Line]] = []
    farthest = 0.0
    for worker, mine in beside.items():
        parts = before[worker], mine[len(before[worker]):]
        judged = [(_distance(stretch, before[worker], mine, spread, bound.within), stretch)
                  for part in parts for stretch in _in_stretches(part)]
        farthest = max([farthest, *(distance for distance, _ in judged)])
        if far := [stretch for distance, stretch in judged if distance > 1]:
            higher = median(each.gap for stretch in far for each in stretch) > 0
            apart.append((max(distance for distance, _ in judged), higher, _apart(worker, far)))
    if any(higher for _, higher, _ in apart):
        apart = [entry for entry in apart if entry[1]]  # beside one that is too high another seems too low
    apart.sort(key=lambda entry: -entry[0])
    return Finding(not apart, f"{len(apart)} of {len(beside)} workers apart", "0", [words for *_, words in apart],
                   figures=[Figure(value=farthest, limit=1.0, unit="share")])


def _beside(told: Iterable[ToldRound]) -> dict[str, list[_Beside]]:
    """Return what each worker told beside others, in the order of time."""
    rounds: dict[int, list[tuple[ToldRound, float]]] = {}
    for each in told:
        numbers = _numbers(each)
        if numbers and not each.void:
            rounds.setdefault(each.round, []).append((each, median(numbers)))
    beside: dict[str, list[tuple[ToldRound, float, float]]] = {}
    for members in rounds.values():
        for each, loss in members if len(members) > 1 else ():
            others = median_low([theirs for other, theirs in members if other is not each])
            beside.setdefault(each.worker, []).append((each, loss, others))
    return {worker: _with_levels(sorted(mine, key=lambda entry: entry[0].t)) for worker, mine in beside.items()}


def _with_levels(mine: Sequence[tuple[ToldRound, float, float]]) -> list[_Beside]:
    levels = [median(abs(others) for *_, others in mine[max(0, place - _AROUND):place + _AROUND + 1])
              for place in range(len(mine))]
    return [_Beside(each.round, each.t, own, others, level)
            for (each, own, others), level in zip(mine, levels, strict=True)]


def _spread(mine: Sequence[_Beside]) -> float:
    """Return how much a worker's gap differs from round to round, which a gap that lasts does not change."""
    return _DEVIATION * median([abs(later.gap - earlier.gap) for earlier, later in pairwise(mine)] or [0.0])


def _in_stretches(mine: Sequence[_Beside]) -> list[Sequence[_Beside]]:
    size = max(_LEAST, min(_STRETCH, len(mine)), len(mine) // _STRETCHES)
    ends = range(size + len(mine) % size, len(mine) + 1, size)
    return [mine[start:end] for start, end in pairwise([0, *ends])]


def _distance(stretch: Sequence[_Beside], before: Sequence[_Beside], mine: Sequence[_Beside], spread: float,
              within: float) -> float:
    """Return how far a worker is from the others in a stretch of rounds, as a share of what it may be."""
    gap, level = _mostly([each.gap for each in stretch]), median(each.level for each in stretch)
    chance = _BEYOND * _OF_A_MEDIAN * spread
    early = _OF_THE_FIRST * mine[0].level / level if level else 0.0
    distance: float = gap / max(_WITHOUT_BEFORE * within, chance / len(stretch) ** 0.5, early, _ROUNDED)
    if len(before) >= _USUAL and stretch[0].t > before[-1].t:
        usual = median(each.gap for each in before)
        chance = math.hypot(chance / len(stretch) ** 0.5, chance / len(before) ** 0.5)
        change = abs(_mostly([each.gap - usual for each in stretch]))
        distance = max(distance, change / max(within, chance, early, _ROUNDED))
        if all(each.gap == 0 for each in before) and all(each.gap != 0 for each in stretch):
            distance = max(distance, abs(gap) / _ROUNDED)  # all told one loss, and do so no more
    return distance


def _mostly(gaps: Sequence[float]) -> float:
    """Return how large most of these gaps are at the least, if they have one sign; else 0."""
    ascending = sorted(gaps)
    few = int((1 - _MOST_OF_IT) * len(gaps))
    return max(0.0, ascending[few]) + min(0.0, ascending[-1 - few])


def _apart(worker: str, far: Sequence[Sequence[_Beside]]) -> Line:
    first, last = far[0], far[-1]
    own, others = (median(values) for values in zip(*((each.own, each.others) for part in far for each in part),
                                                    strict=True))
    return line(f"{worker} told losses of {own:.4g} from round {first[0].round} at ", first[0].t,
                f" to round {last[-1].round}, where the other members told {others:.4g}")


def _by(told: Iterable[ToldRound], key: Callable[[ToldRound], str]) -> Mapping[str, list[ToldRound]]:
    """Return what was told by something that it has, each in the order of time."""
    groups: dict[str, list[ToldRound]] = {}
    for each in told:
        groups.setdefault(key(each), []).append(each)
    return groups
