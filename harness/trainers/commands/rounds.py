"""From what workers report to what happened: a round, its members, and the steady state. A state machine without I/O.

A round that workers finish together (`shared`) is over with the first of them that reports it, and those who report it
before the next are its members. Where no next one comes, it is waited for as long as rounds have taken lately: a worker
that is gone must not keep the others' last round from being told. Where every worker counts its own rounds, each of
them is one of its own.

Where a worker's node has several ranks and tells them apart, each of them is a member. Which there are shows by the
first round: it is over with the next one.

The events are those of docs/evidence.md, so that the checks are the same for every trainer: a worker's round is its
`step`, a round of the run is a `merge` under the name `rounds`, since no node merges.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import TypeVar

from diloco_chaos.harness.record.tape.events import (
    Event,
    Finished,
    Hello,
    Lost,
    Merge,
    MergedPart,
    Steady,
    Step,
    member_name,
)
from diloco_chaos.harness.trainers.commands.losses import told_loss
from diloco_chaos.harness.trainers.core.roles import ROUNDS
from diloco_chaos.harness.trainers.core.round_reports import RoundReport

E = TypeVar("E", bound=Event)
PATIENCE_S = 1.0
"""The least time that a round is waited for by those who have not reported it yet."""
_LATELY = 9
"""So many rounds tell how long one takes."""


@dataclass
class _Worker:
    incarnation: int
    since: float
    last: dict[str | None, tuple[int, float]] = field(default_factory=dict)
    """Rank -> its last round, and when it told that."""
    alive: bool = True


@dataclass
class _Open:
    """A round that some have reported."""

    number: int
    t: float
    parts: list[MergedPart] = field(default_factory=list)


class Rounds:
    """See the module."""

    def __init__(self, workers: Sequence[str], *, shared: bool, target: int) -> None:
        """`target`: the round with which training is over; 0: when every worker has ended."""
        self._expected, self._shared, self._target = set(workers), shared, target
        self._workers: dict[str, _Worker] = {}
        self._open: _Open | None = None
        self._began: deque[float] = deque(maxlen=_LATELY)  # when the last rounds were first reported
        self._newest = 0
        self._merged = 0
        self._seen: set[str] = set()
        self._ranks: dict[str, set[str]] = {}  # worker -> those that have told a round
        self._coming: set[str] = set()  # workers that are going to be started again
        self._steady = self._finished = False

    def on_start(self, worker: str, incarnation: int, t: float) -> Iterator[Event]:
        """A process was started."""
        self._workers[worker] = _Worker(incarnation, t)
        self._coming.discard(worker)
        yield _of_run(t, Hello(learner=worker, incarnation=incarnation, fresh=incarnation == 0, step=self._newest,
                               versions=[self._merged], versions_held=[-1]))

    def on_end(self, worker: str, incarnation: int, t: float, *, again: bool) -> Iterator[Event]:
        """Yield the events that follow from the end of a process; `again`: it is going to be started again."""
        known = self._workers.get(worker)
        if known is None or known.incarnation != incarnation:
            return
        known.alive = False
        yield from self._close(t) if self._complete() else ()
        yield _of_run(t, Lost(learner=worker, incarnation=incarnation, reason="its process ended"))
        if again:
            self._coming.add(worker)
        elif not self._coming and not any(other.alive for other in self._workers.values()):
            yield from self._finish(t, early=self._newest < self._target)

    def on_report(self, worker: str, incarnation: int, report: RoundReport, t: float) -> Iterator[Event]:
        """A worker reported a round."""
        known = self._workers.get(worker)
        if known is None or known.incarnation != incarnation or self._finished:
            return
        _, since = known.last.get(report.rank, (0, known.since))
        yield _step(report, since).stamped(t, worker, incarnation)
        known.last[report.rank] = report.round, t
        part = MergedPart(learner=worker, incarnation=incarnation, base=self._merged, arrived=t, first=report.round,
                          last=report.round, steps=1, tokens=report.samples or 0, weight=1.0, digest="",
                          members=report.members, rank=report.rank)
        if not self._shared:
            yield from self._close(t)
            self._open = _Open(report.round, t, [part])
            yield from self._close(t)
        elif self._open is not None and report.round == self._open.number:
            if all(other.member != part.member for other in self._open.parts):
                self._open.parts.append(part)
            yield from self._close(t) if self._complete() else ()
        elif report.round > self._newest:
            yield from self._close(t)
            self._open, self._newest = _Open(report.round, t, [part]), report.round
            self._began.append(t)
            yield from self._close(t) if self._complete() else ()
        if self._target and report.round >= self._target and (self._shared or self._all_there()):
            yield from self._close(t)
            yield from self._finish(t, early=False)

    def on_time(self, t: float) -> Iterator[Event]:
        """Time went on."""
        if self._open is not None and t >= self._open.t + self._patience:
            yield from self._close(t)

    @property
    def _patience(self) -> float:
        """Return for how many seconds members may still report the open round: the time of a round, which nothing tells
        before there were two."""
        took = [later - earlier for earlier, later in pairwise(self._began)]
        return max(PATIENCE_S, median(took)) if took else math.inf

    def _complete(self) -> bool:
        """Return whether every live worker, with all ranks that it is known to have, has reported the open round."""
        if self._open is None:
            return False
        present = {part.member for part in self._open.parts}
        unknown = {part.learner for part in self._open.parts if part.rank is not None} - self._ranks.keys()
        return not unknown and all(member_name(name, rank) in present for name, worker in self._workers.items()
                                   if worker.alive for rank in self._ranks.get(name) or [None])

    def _all_there(self) -> bool:
        """Return whether every worker that lives has come to the target."""
        return all(worker.last and all(last >= self._target for last, _ in worker.last.values())
                   for worker in self._workers.values() if worker.alive)

    def _close(self, t: float) -> Iterator[Event]:
        """The open round has the members that it has."""
        if self._open is None:
            return
        over, self._open = self._open, None
        self._merged += 1
        self._newest = max(self._newest, over.number)
        yield _of_run(over.t, Merge(
            round=over.number, fragment=0, version=self._merged, digest="", step=over.number, processed=self._newest,
            merged=self._newest, opened=over.t, quorum_at=over.t, closed=t, grace=0.0, step_time=0.0, sync_time=0.0,
            asked=sorted(self._workers), declined=[], contributions=over.parts))
        self._seen |= {part.learner for part in over.parts}
        for part in over.parts:
            if part.rank is not None:
                self._ranks.setdefault(part.learner, set()).add(part.rank)
        if not self._steady and self._seen >= self._expected:
            self._steady = True
            yield _of_run(over.t, Steady(step=over.number, processed=self._newest))

    def _finish(self, t: float, *, early: bool) -> Iterator[Event]:
        if not self._finished:
            self._finished = True
            yield _of_run(t, Finished(step=self._newest, processed=self._newest, early=early))


def _step(report: RoundReport, since: float) -> Step:
    loss, no_number = told_loss(report.loss)
    batches, samples = ([*named] if named else None for named in (report.batches, report.named_samples))
    return Step(step=report.round, tokens=report.samples or 0, began=since, loss=loss, no_number=no_number,
                epoch=int(report.epoch) if report.epoch is not None and math.isfinite(report.epoch) else None,
                batches=batches, samples=samples, digest=report.digest, rank=report.rank)


def _of_run(t: float, event: E) -> E:
    return event.stamped(t, ROUNDS, 0)
