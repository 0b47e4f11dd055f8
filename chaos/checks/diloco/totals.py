"""Are the counts of the whole run right: the tokens that all have processed, and the rates that follow from them?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from diloco_chaos.chaos.checks.base import Finding, Late, check, need, rules_of, violations
from diloco_chaos.chaos.checks.diloco.testimony import miscounted, slow_clock
from diloco_chaos.chaos.evidence.accounting.by_version import ByVersion
from diloco_chaos.chaos.evidence.accounting.parts import Integers, PartColumns
from diloco_chaos.chaos.evidence.accounting.token_accounting import Node
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.scenario.model import COORDINATOR
from diloco_chaos.harness.base.lines import Line, line
from diloco_chaos.harness.base.tensors import Numbers, np
from diloco_chaos.harness.record.tape.events import Finished, Hello, Initial, Lost, Merge, Received, Resumed
from diloco_chaos.harness.record.tape.series import Series

if TYPE_CHECKING:  # see harness/base/tensors.py
    from numpy.typing import NDArray

_RATE = 1e-9
"""Rates are compared to this, as a share: a formula may be written in another order."""
_CALM_S = 5.0
"""So long after a fault, whatever it delayed has come."""


class _Steps(NamedTuple):
    """The steps of one process, in order."""

    times: Numbers
    """When each was done."""
    numbers: Integers
    tokens: Numbers
    """What it had processed before each of them, and at last."""

    def by(self, moments: Numbers) -> Numbers:
        """Tokens that it had processed by these moments, included."""
        return self.tokens[np.searchsorted(self.times, moments, side="right")]


def _steps(history: History) -> dict[Node, _Steps]:
    """Return the steps of every process.

    Raises:
        Unknown: the tape of a process that the syncer knew is missing, or a process took a step twice.
    """
    steps = {}
    for hello in history.tape.of(Hello, node=COORDINATOR):
        node = hello.learner, hello.incarnation
        need(node in history.tape.ends, f"{node[0]}.{node[1]} was there, but left no tape")
    for node, (numbers, tokens) in history.counted.items():
        moments = history.steps[node].t
        need(len(numbers) == len(moments), f"{node[0]}.{node[1]} took a step twice")
        steps[node] = _Steps(np.sort(moments), numbers, tokens.astype(float))
    return steps


def _together(begins_with: int, each: Iterable[Numbers], count: int) -> Numbers:
    return begins_with + sum(each, np.zeros(count))


class _Possible:
    """The tokens that the syncer can have heard of, at the most."""

    def __init__(self, history: History, steps: Mapping[Node, _Steps]) -> None:
        self._steps, self._begins_with, self._truncated = steps, rules_of(history).begins_with, history.truncated
        self._claimed = _claimed(history)

    def by(self, moments: Numbers) -> Numbers:
        """Return how many tokens all processes together may have made by each of these moments, in seconds."""
        made = {node: steps.by(moments) for node, steps in self._steps.items()}
        for node, lost in self._truncated.items():
            made[node] = made[node] + lost.tokens * lost.steps(moments)
        for node, (came, tokens) in self._claimed.items():
            made[node] = np.maximum(made.get(node, 0.0), tokens * np.searchsorted(came, moments, side="right"))
        return _together(self._begins_with, made.values(), len(moments))

    def in_the_name_of(self, node: Node) -> float:
        """Return the tokens that an impostor may have claimed in this process' name: the process hears of them, and
        adds its own steps to them."""
        return self._claimed[node][1] if node in self._claimed else 0.0


def _claimed(history: History) -> dict[Node, tuple[list[float], float]]:
    """Return, for each process in whose name an impostor came, when that was and how many tokens a step has: each time
    the impostor may have claimed one step more, so that the process is asked for more."""
    claimed: dict[Node, tuple[list[float], float]] = {}
    since: dict[str, float] = {}  # in whose name an impostor came, and when for the first time
    for span in history.spans:
        if span.planned.fault.impersonates and span.injected is not None:
            since |= {target: min(span.injected, since.get(target, span.injected))
                      for target in span.planned.fault.targets}
    for target, begin in since.items():
        step = max((float(events.numbers("tokens").max()) for (name, _), events in history.steps.items()
                    if name == target), default=0.0)
        for hello in history.tape.of(Hello, node=COORDINATOR):
            if hello.learner == target and hello.t >= begin - history.clocks.tolerance:
                claimed.setdefault((target, hello.incarnation), ([], step))[0].append(hello.t)
    return claimed


@check(needs={"fragments"}, unverified="judged")
def processed_correct(history: History) -> Finding:
    """The syncer's count of processed tokens agrees with the learners' own steps, at every merge and at the end.

    A step has the tokens that the plan says. The syncer has counted what was merged, and what those have made whose
    connection stands and is left alone; it has counted nothing that no learner made; and training is over when the
    budget is spent, not before. What it says to be in the model was merged, and while no node is hit its global clock
    goes ahead with the steps of the learner that drives it.
    """
    rules, merges = rules_of(history), history.merges
    need(history.steps and merges, "there are no steps or no merges on the tape")
    finished = [event for event in history.tape.of(Finished, node=COORDINATOR)[:1] if event.t <= history.end]
    points: list[Merge | Finished] = [*merges, *finished]
    steps = _steps(history)
    count, begins = len(points), rules.begins_with
    moments, said = (np.asarray([getattr(point, name) for point in points], float) for name in ("t", "processed"))
    merged = _merged(steps, history.parts, count)
    most = _Possible(history, steps).by(moments + history.clocks.tolerance)
    least = _together(begins, merged.values(), count)
    heard = _together(begins, (np.maximum(merged[node], _heard(history, node, own, moments))
                               for node, own in steps.items()), count)

    def words(at: int, more: str) -> Line:
        return line("at ", moments[at], f" {said[at]:,.0f} tokens were counted{more}")
    told = [*miscounted(history), *slow_clock(history)]
    wrong = _not_the_plans(history)
    wrong += [words(at, f", and all together had made {most[at]:,.0f}") for at in _where(~(said <= most))]
    wrong += [words(at, f", and steps of {least[at]:,.0f} were merged") for at in _where(~(said >= least))]
    if finished and not said[-1] >= rules.ends_with:
        wrong.append(words(-1, f" of {rules.ends_with:,}, and training was over"))
    behind = [] if wrong else _where(said < heard)
    allowed = history.plan.cluster.heartbeat_timeout
    slow = [words(at, f"; who was connected had made {heard[at]:,.0f} more than {allowed:g} s before") for at in behind]
    problems = [*(wrong or slow), *told]
    return Finding(not problems, f"{len(problems)} of {count} counts differ", f"0{history.clocks.allowed()}",
                   problems[:5], [] if told else [
                       Late(moments[at] - allowed - history.clocks.tolerance, moments[at], allowed) for at in behind],
                   violations(problems))


def _not_the_plans(history: History) -> list[Line]:
    """Name each process whose steps have other tokens than the plan gives them."""
    planned, wrong = rules_of(history).tokens, list[Line]()
    for (name, incarnation), steps in history.steps.items():
        differ = steps.numbers("tokens") != planned.get(name, steps.numbers("tokens"))
        if differ.any():
            first = steps[int(differ.argmax())]
            wrong.append(line(f"{differ.sum()} steps of {name}.{incarnation} have other tokens than the plan's "
                              f"{planned[name]:,}, the first at ", first.t, f": {first.tokens:,}"))
    return wrong


def _where(wrong: NDArray[np.bool_]) -> list[int]:
    return [int(place) for place in np.flatnonzero(wrong)]


def _merged(steps: Mapping[Node, _Steps], parts: PartColumns, points: int) -> dict[Node, Numbers]:
    """Return for each process the tokens up to its last step that is in any merge so far, at each of the points: the
    merges, and what comes after them."""
    processes, process = parts.processes if len(parts.merge) else ([], np.zeros(0, np.int64))
    last, merged = parts.integers("last"), {node: np.zeros(points) for node in steps}
    for number, node in enumerate(processes):
        if (own := steps.get(node)) is not None:
            mine = np.flatnonzero(process == number)
            merged[node][parts.merge[mine]] = own.tokens[np.searchsorted(own.numbers, last[mine], side="right")]
    return {node: np.maximum.accumulate(tokens) for node, tokens in merged.items()}


def _heard(history: History, node: Node, steps: _Steps, moments: Numbers) -> Numbers:
    """Tokens that this process must have been heard of at each of the moments; 0 where nothing is certain.

    It says after each step how far it is. Who says nothing for `heartbeat_timeout` counts as gone: so what it had made
    that long ago was heard, where it was connected all the while, and neither it nor the syncer was hit by a fault.
    """
    before = history.plan.cluster.heartbeat_timeout
    certain = np.zeros(len(moments), bool)
    for came, went in _connected(history, node):
        certain |= (moments >= came + before) & (moments < went)
    for span in history.spans:
        if span.injected is not None and {node[0], COORDINATOR} & set(
                span.planned.fault.affected_nodes(history.plan.cluster.names)):
            until = history.end if span.ended is None else span.ended + before + _CALM_S
            certain &= (moments < span.injected) | (moments > until)
    return np.where(certain, steps.by(moments - before - history.clocks.tolerance), 0.0)


def _connected(history: History, node: Node) -> Iterable[tuple[float, float]]:
    """Yield the start and the end, in seconds, of each time in which the syncer knew this process to be there."""
    since: float | None = None
    for event in history.tape.of(Hello, Lost, Initial, Resumed, node=COORDINATOR):
        if isinstance(event, Hello | Lost) and event.learner != node[0]:
            continue
        if since is not None:
            yield since, event.t
        since = event.t if isinstance(event, Hello) and event.incarnation == node[1] else None
    if since is not None:
        yield since, np.inf


@check(needs={"fragments"}, unverified="judged")
def learning_rate_correct(history: History) -> Finding:
    """The rate of every inner step is that of the schedule, at a count of tokens that the learner can have known then.

    That is no more than all have processed by then, and no less than the count that it was sent before the newest
    version that it had received, and what it has processed itself since.
    """
    rules, steps, counts = rules_of(history), _steps(history), _announced(history)
    received, possible = history.tape.series(Received), _Possible(history, steps)
    wrong: list[tuple[float, str]] = []
    count = 0
    for node, events in history.steps.items():
        rates = events.numbers("lr")
        need(not np.isnan(rates).any(), f"the steps of {node[0]}.{node[1]} do not tell their learning rates")
        began = events.numbers("began")
        most = possible.by(began + history.clocks.tolerance) + possible.in_the_name_of(node)
        least = np.minimum(_known(steps[node], began, received.get(node), counts), most)
        lowest, highest = rules.inner_rates(least, most)
        judged = events.t <= history.end
        count += int(judged.sum())
        right = (rates >= lowest * (1 - _RATE)) & (rates <= highest * (1 + _RATE))
        wrong += [(began[at], f"{node[0]}.{node[1]} step {events[at].step}: its rate was {rates[at]:g}; "
                   f"the schedule has {lowest[at]:g} to {highest[at]:g} there") for at in _where(judged & ~right)]
    need(count, "there are no steps on the tape")
    return Finding(not wrong, f"{len(wrong)} of {count} rates differ", f"0{history.clocks.allowed()}",
                   [words for _, words in sorted(wrong)[:5]], figures=violations(wrong))


def _announced(history: History) -> ByVersion:
    """Return for each version the processed tokens that every learner had been sent before it.

    The count is sent whenever the global step moves; so it is at least what was counted at the newest merge of an
    earlier step.
    """
    announced, before, newest, step = {(-1, -1): 0}, 0, 0, -1
    for merge in history.tape.of(Merge, node=COORDINATOR):
        if merge.step > step:
            before, step = newest, merge.step
        newest = max(newest, merge.processed)
        announced[merge.fragment, merge.version] = before
    return ByVersion(announced)


def _known(steps: _Steps, began: Numbers, received: Series[Received] | None,
           announced: ByVersion) -> Numbers:
    """The processed tokens that a process must know of when it begins each of its steps."""
    own = steps.tokens[:-1]
    if received is None:
        return own
    rows = announced.rows(received)
    of = np.where(rows < 0, 0.0, np.asarray(announced.values, float)[rows])
    ahead = np.maximum.accumulate(np.concatenate([[0.0], of - steps.by(received.t)]))
    return own + ahead[np.searchsorted(received.t, began, side="right")]
