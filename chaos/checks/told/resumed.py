"""Does a job that ended go on from a checkpoint? For trainers whose workers number their rounds.

A node's process may be a launcher, which lives while it starts its ranks again: then rounds go back within one process.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from diloco_chaos.chaos.checks.base import Bound, Figure, Finding, Late, at_most, check, longer, need
from diloco_chaos.chaos.checks.told.rounds import SHORTLY_S, UNREPORTED, jumps
from diloco_chaos.chaos.evidence.accounting.remade import ToldRound
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.scenario.bounds import Resumed
from diloco_chaos.harness.base.lines import Line, line
from diloco_chaos.harness.base.units import show_seconds
from diloco_chaos.harness.record.tape.events import Spawn, StaleRound, Step

_LEAST_S = 10.0
"""What a start takes at most on any machine, if the first one took less."""
_REMAKING = 2.0
"""Rounds that are made again may take so many times as long as they did."""
_SILENCE_S = 1.0
"""Ranks that are started again report nothing for longer than this: an interpreter begins. An epoch follows at once."""
_AS_SOON = 1.1
"""A checkpoint may take so many times as many rounds as the first one that a process went on from."""
_WITHOUT_NOTICE = frozenset({"kill"})
"""Faults at which a process has no time to save its state, and after which all that it saved is there."""


class _Start(NamedTuple):
    """A process of a worker, after others of it."""

    spawn: Spawn
    newest: int
    """Round that its predecessors had come to."""
    steps: list[Step]
    until: float
    """When its successor was started, or the run ended."""
    last: bool
    """Whether it had no successor."""
    first: Step
    """The first round of all of them."""
    took_s: float
    """Seconds from the start of the process that told it until then."""
    reached: int
    """The newest round that any process had told when it told its first."""
    stride: float
    """Rounds from one report to the next, at the most, before it was started."""

    @property
    def again(self) -> int:
        """Rounds that were made again; 0 where it told none."""
        return max(0, self.newest + 1 - self.steps[0].step) if self.steps else 0

    @property
    def skipped(self) -> int:
        """Rounds that no process told of, between what had been made and its first."""
        beyond = self.steps[0].step - self.reached if self.steps else 0
        return beyond - 1 if beyond > UNREPORTED * self.stride else 0

    @property
    def anew(self) -> bool:
        """Whether it began where the first of all did, though more rounds had been made."""
        return bool(self.steps) and self.steps[0].step <= self.first.step < self.newest

    @property
    def new(self) -> Step | None:
        """The first round that none of its predecessors had made."""
        return next((step for step in self.steps if step.step > self.newest), None)


class _Return(NamedTuple):
    """A process that lives and tells rounds again: it is a launcher, and has started its ranks again."""

    told: ToldRound
    """The first round that it told again."""
    newest: int
    """Round that it had come to."""
    first: int
    """The worker's very first round."""

    @property
    def again(self) -> int:
        """Rounds that were made again."""
        return self.newest + 1 - self.told.round

    @property
    def anew(self) -> bool:
        """Whether it began where the first of all did."""
        return self.told.round <= self.first

    def too_far(self, bound: Resumed) -> bool:
        """Return whether it went back further than to a checkpoint."""
        return self.again > bound.rounds if bound.rounds is not None else self.anew


@check(Resumed, needs={"sound run", "rounds"}, unverified="judged")
def resumed(history: History, bound: Resumed) -> Finding | None:
    """A process that is started again goes on from a checkpoint: it does not begin anew, skips no round, and comes to a
    round that was not made before in a few times the time that the first start took. It saves checkpoints as its
    predecessor did. A launcher's ranks do not begin anew either."""
    starts = [start for worker in history.plan.cluster.names for start in _starts(history, worker)]
    judged = [start for start in starts if start.new or start.last]
    returns = list(_returns(history))
    beyond = [jump.words for jump in jumps(history)
              if not any(start.skipped and start.steps[0] is jump.step for start in judged)]
    if not judged:
        return _of_ranks(returns, beyond, bound) if returns or beyond else None
    wrong = [_went_back(each) for each in returns if each.too_far(bound)] + beyond + _unsaved(history, starts)
    late: list[Late] = []
    for start in judged:
        if start.again > bound.rounds if bound.rounds is not None else start.anew:
            wrong.append(_line(start, "began anew" if start.anew else f"began with round {start.steps[0].step}",
                               start.steps[0].t, f", when round {start.newest} had been told"
                               + "; if it had saved nothing by then, let the fault come later" * start.anew))
        elif start.skipped:
            wrong.append(_line(start, f"began with round {start.steps[0].step}", start.steps[0].t,
                               f", when round {start.reached} had been told: {start.skipped} were skipped"))
        elif excess := _too_long(history, start, bound):
            late.append(excess)
            wrong.append(_line(start, "had come to no new round", excess.end))
    again = max(*(start.again for start in judged), *(each.again for each in returns), 0)
    longest = max((start.new.t if start.new else start.until) - start.spawn.t for start in judged)
    went_on = [_line(start, f"went on from round {start.steps[0].step - 1}", start.steps[0].t,
                     f", and came to round {start.new.step} at ", start.new.t) for start in judged if start.new]
    if not again and not history.references and any(each.losses or each.digests for each in history.told_rounds):
        went_on.append(line("no round was made twice, so it is not known whether everything was restored: "
                            "`rounds_repeat: {control: true}` tells"))
    return Finding(not wrong, f"{len(starts)} restart{'s' * (len(starts) > 1)}, {again} rounds made again, a new one "
                              f"after {show_seconds(longest)}",
                   _promised(bound), wrong[:5] or went_on[:5], late if len(late) == len(wrong) else [],
                   _figures(again, bound))


def _of_ranks(returns: Sequence[_Return], beyond: Sequence[Line], bound: Resumed) -> Finding:
    """Judge a node that lived and whose ranks went back, or went on beyond rounds that were not made."""
    wrong = [_went_back(each) for each in returns if each.too_far(bound)] + list(beyond)
    again = max((each.again for each in returns), default=0)
    restarts = f"{len(returns) or 'no'} restart{'s' * (len(returns) > 1)}"
    return Finding(not wrong, f"{restarts} within a process, {again} rounds made again", _promised(bound),
                   wrong[:5] or [_went_back(each) for each in returns[:5]], figures=_figures(again, bound))


def _promised(bound: Resumed) -> str | Bound:
    return "from a checkpoint" if bound.rounds is None else at_most(f"{bound.rounds} rounds made again")


def _figures(again: int, bound: Resumed) -> list[Figure]:
    return [] if bound.rounds is None else [Figure(value=again, limit=bound.rounds, unit="rounds")]


def _starts(history: History, worker: str) -> Iterator[_Start]:
    """Yield the processes of a worker that were started when rounds had been told."""
    spawns = sorted((event for event in history.tape.of(Spawn, node="harness") if event.target == worker),
                    key=lambda event: event.t)
    first: Step | None = None
    newest, took_s, stride = 0, history.first_start(worker) or 0.0, 0
    others = history.plan.cluster.names if history.plan.cluster.blocking else [worker]
    told = [(step.t, step.step) for (node, _), each in history.steps.items() if node in others for step in each]
    told += [(event.t, event.round) for event in history.tape.of(StaleRound) if event.node in others]
    for index, spawn in enumerate(spawns):
        steps = list(history.steps.get((worker, spawn.incarnation), ()))
        if first is not None:
            last = index + 1 == len(spawns)
            until = history.end if last else spawns[index + 1].t
            reached = max((number for t, number in told if steps and t < steps[0].t), default=newest)
            yield _Start(spawn, newest, steps, until, last, first, took_s, reached, stride or math.inf)
        elif steps:
            first = steps[0]
        newest = max(newest, *(step.step for step in steps), 0)
        stride = max(stride, *(later.step - earlier.step for earlier, later in pairwise(steps)), 0)


def _unsaved(history: History, starts: Sequence[_Start]) -> list[Line]:
    """Say which processes saved nothing, though they made as many rounds, and lived as long, as it took their
    predecessor from the first of all to the checkpoint that they went on from: the next one goes on from there again.
    """
    wrong: list[Line] = []
    for start, following in pairwise(starts):
        if start.spawn.target != following.spawn.target or not (start.steps and following.steps):
            continue
        began, last, again = start.steps[0], start.steps[-1], following.steps[0]
        saved = [told for told in history.told_rounds if told.worker == start.spawn.target and told.round < began.step
                 and told.t < start.spawn.t]
        took, took_s = began.step - start.first.step, max((told.t for told in saved), default=0.0) - start.first.t
        if (again.step <= began.step and took > 0 and not _with_notice(history, following.spawn.t)
                and last.step - began.step > _AS_SOON * took + UNREPORTED * start.stride
                and last.t - began.t > _AS_SOON * took_s > 0):
            wrong.append(line(f"{again.node}.{again.inc} went back to round {again.step} at ", again.t,
                              f", as {began.node}.{began.inc} had, which made {last.step - began.step + 1} rounds and "
                              f"saved none, though there was a checkpoint after {took}"))
    return wrong


def _with_notice(history: History, until: float) -> bool:
    """Return whether any fault until then may have had a process save its state, or kept it from that."""
    return any(span.injected is not None and span.injected < until
               and span.planned.fault.kind not in _WITHOUT_NOTICE for span in history.spans)


def _returns(history: History) -> Iterator[_Return]:
    """Yield where a process went back by itself after a silence in which a fault was on, or shortly after one."""
    newest: dict[str, int] = {}
    before: dict[str, ToldRound] = {}
    first: dict[str, int] = {}
    for told in history.told_rounds:
        worker, previous = told.worker, before.get(told.worker)
        if (previous and previous.inc == told.inc and previous.attempt < told.attempt
                and told.t - previous.t > _SILENCE_S
                and any(span.overlaps(previous.t - SHORTLY_S, told.t) for span in history.spans)):
            yield _Return(told, newest[worker], first[worker])
        before[worker] = told
        first.setdefault(worker, told.round)
        newest[worker] = max(newest.get(worker, 0), told.round)


def _went_back(back: _Return) -> Line:
    return line(f"{back.told.process} {'began anew' if back.anew else 'went back'} with round {back.told.round} at ",
                back.told.t, f", when round {back.newest} had been told")


def _too_long(history: History, start: _Start, bound: Resumed) -> Late | None:
    """Return the time in which a process should have come to a new round and had not; None where it came in time.

    Raises:
        Unknown: the run ended before.
    """
    limit = max(_LEAST_S, bound.starts * start.took_s)
    limit += _REMAKING * start.again * history.step_time(start.spawn.target)
    end = start.new.t if start.new else start.until
    if end - start.spawn.t > limit:
        return Late(start.spawn.t, end, limit)
    need(start.new or start.newest >= history.plan.cluster.budget_tokens > 0,
         f"{start.spawn.target}.{start.spawn.incarnation} had come to no new round when the run ended", longer(history))
    return None


def _line(start: _Start, what: str, moment: float, *rest: str | float) -> Line:
    name = f"{start.spawn.target}.{start.spawn.incarnation}"
    return line(f"{name} started at ", start.spawn.t, f", {what} at ", moment, *rest)
