"""What faults cost: how long until somebody noticed, and until the run trained as before; the share of its time in
which it made progress; how long nodes stood idle; what was lost. Pure.

What is counted:

- *MTTD* and *MTTR*, mean times to detect and to recover: of all targets that a fault took out, from the injection to
  the end of the phase `noticed` (or `excluded`), and to the end of `pace as before`.
- *ETTR*, effective training time ratio: the share of the wall-clock time in which the job made progress, as ByteRobust
  defines it (arXiv 2509.16293: productive training time over the wall-clock time of a job). Not productive are the time
  that a pause between two rounds lasts longer than usual, if it is at least twice as long, and the time of rounds that
  were made before. The usual pause is that in which half of the time before the first fault passes, without pauses
  that are ten times as long as most. Where every worker counts its own rounds, it is the mean over workers.
- *idle node-seconds*: of every node the time between its steps that is longer than its usual step, if it is at least
  twice as long, less what was idle before the first fault. A node that never comes back is idle to the end. A node that
  takes the place of another is counted as that one.
- *lost rounds*: rounds of the whole job that came to nothing, because all went back behind them.
- *lost samples*: tokens, or samples, of the steps that a process had made and that came to nothing.

The time of a fault is from its injection to when the pace was as before, for the last of its targets, or to the end of
the run. Faults that overlap share what is counted there; those that take no node out cost nothing that is told here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from statistics import mean, median

from diloco_chaos.chaos.evidence.accounting.token_accounting import CRASH, LEFT
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.evidence.phases import NOTICED, PACE, Recovery, recoveries
from diloco_chaos.harness.record.tape.events import Merge, RolledBack

_TWICE = 2.0
"""A pause so many times as long as usual is one."""
_FAR_LONGER = 10.0
"""A pause so many times as long as most is no usual one."""
_LEAST_BEFORE_S = 1.0
_LEAST_ROUNDS = 3
_EARLIER = "let the first fault come later (`at`)"

Stretch = tuple[float, float]
"""From when to when, in seconds since the run began."""


@dataclass(frozen=True)
class Amount:
    """A figure."""

    value: float | None = None
    """None: it is not told."""
    missing: str = ""
    """What nothing tells, and what would bring it; beside a value: whose part it lacks."""


@dataclass(frozen=True)
class Cost:
    """What a fault cost, or all faults of a run together."""

    start: float
    end: float
    """From when to when that is counted, in seconds since the run began."""
    time_to_detect: Amount
    """Mean over targets, seconds."""
    time_to_recover: Amount
    """Mean over targets, seconds."""
    ettr: Amount
    """A share."""
    idle: Amount
    """Node-seconds."""
    lost_rounds: Amount
    lost_samples: Amount

    @property
    def amounts(self) -> dict[str, Amount]:
        """Return all figures by name."""
        return {"time_to_detect": self.time_to_detect, "time_to_recover": self.time_to_recover, "ettr": self.ettr,
                "idle_node_seconds": self.idle, "lost_rounds": self.lost_rounds, "lost_samples": self.lost_samples}


@dataclass(frozen=True)
class Costs:
    """What a run's faults cost."""

    run: Cost
    faults: dict[str, Cost]
    """By fault, of those that took a node out."""


def costs(history: History) -> Costs:
    """Return what faults cost: each that took a node out, and all together from the steady state to the end."""
    accounts, all_of_them = _Accounts(history), history.once(recoveries)
    followed: dict[str, list[Recovery]] = {}
    for recovery in all_of_them:
        followed.setdefault(recovery.span.id, []).append(recovery)
    return Costs(accounts.cost(history.origin, history.end, all_of_them),
                 {name: accounts.cost(own[0].span.began, _over(history, own), own) for name, own in followed.items()})


def _over(history: History, own: Sequence[Recovery]) -> float:
    """Return when the last target of a fault was back at its pace; the end of the run where one never was."""
    times = [recovery.to_recover for recovery in own]
    known = [recovery.span.began + seconds for recovery, seconds in zip(own, times, strict=True) if seconds is not None]
    return min(history.end, max(known)) if len(known) == len(times) else history.end


class _Accounts:
    """Adds up what a history tells, for any time of it."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._start, self._first = history.origin, history.first_fault

    def cost(self, start: float, end: float, own: Sequence[Recovery]) -> Cost:
        """Return what these recoveries cost between two times."""
        return Cost(start, end, _mean(own, lambda recovery: recovery.to_detect, NOTICED),
                    _mean(own, lambda recovery: recovery.to_recover, PACE), self._ettr(start, end),
                    self._idle(start, end), self._lost_rounds(start, end), self._lost_samples(own))

    # -- the time of the job -------------------------------------------------------------------------------------------

    def _ettr(self, start: float, end: float) -> Amount:
        whole = self._history.seconds(start, end)
        if self._unproductive is None or not whole > 0:
            return Amount(missing=self._no_pace)
        shares = [1 - _within(lost, start, end) / whole for lost in self._unproductive]
        return Amount(max(0.0, mean(shares)))

    @cached_property
    def _no_pace(self) -> str:
        if self._first - self._start < _LEAST_BEFORE_S:
            return f"the first fault came too early to know the usual pace: {_EARLIER}"
        return "too few rounds were told before the first fault to know the usual pace: more `rounds`, or a later fault"

    @cached_property
    def _unproductive(self) -> list[list[Stretch]] | None:
        """Return the times without progress of the job, or of each worker that counts its own rounds; None: the usual
        pace is not known."""
        if self._first - self._start < _LEAST_BEFORE_S:
            return None
        lanes = [self._lost_time(merges) for merges in self._lanes()]
        known = [lane for lane in lanes if lane is not None]
        return known if known and len(known) == len(lanes) else None

    def _lanes(self) -> Iterable[list[Merge]]:
        history = self._history
        if history.coordinator is not None or history.plan.cluster.blocking:
            return [history.merges]
        own: dict[str, list[Merge]] = {name: [] for name in history.plan.cluster.starters}
        for merge in history.merges:
            own.setdefault(merge.contributions[0].learner, []).append(merge)
        return own.values()

    def _lost_time(self, merges: list[Merge]) -> list[Stretch] | None:
        history, until = self._history, self._lane_end(merges)
        before = _apart([merge for merge in merges if self._start <= merge.t < self._first])
        if len(before) < _LEAST_ROUNDS:
            return None
        usual, again = _usual(history.still(self._start, self._first, before)), _made_again(history, merges)
        return [(began if ended in again else began + usual, ended)
                for began, ended in history.still(self._start, until, merges)
                if ended in again or ended - began >= _TWICE * usual]

    def _lane_end(self, merges: list[Merge]) -> float:
        """Return up to when somebody is to make rounds: to the end, or to the last of those that it was to make."""
        asked = self._history.plan.cluster.budget_tokens
        own = self._history.coordinator is None and not self._history.plan.cluster.blocking
        return merges[-1].t if own and asked and merges and merges[-1].step >= asked else self._history.end

    # -- the time of nodes ---------------------------------------------------------------------------------------------

    def _idle(self, start: float, end: float) -> Amount:
        if not self._idle_times:
            return Amount(missing="no node told the steps or rounds that it made")
        if self._first - self._start < _LEAST_BEFORE_S:
            return Amount(missing=f"the first fault came too early to know what is usual: {_EARLIER}")
        if None in self._idle_times:
            return Amount(missing="the usual time of a node's step is not known: more rounds before the first fault")
        usual = self._idle_between(self._start, self._first) / (self._first - self._start)
        return Amount(max(0.0, self._idle_between(start, end) - usual * self._history.seconds(start, end)))

    def _idle_between(self, start: float, end: float) -> float:
        return sum(_within(idle, start, end) / count for idle, count in filter(None, self._idle_times))

    @cached_property
    def _idle_times(self) -> list[tuple[list[Stretch], int] | None]:
        """Return the idle times of each member of each node, and of how many members it is one; None where its usual
        step is not known."""
        return [self._idle_of(names, len(members)) for members in self._places() for names in members]

    def _places(self) -> Iterable[list[list[str]]]:
        """Return for each node that was there its members, each with those that took its place."""
        history, places = self._history, [[name] for name in self._history.plan.cluster.names]
        for span in history.spans:
            fault = span.planned.fault
            if span.injected is not None and fault.stops_target and fault.joining():
                old, new = ([names for names in places if name in names] for name in (fault.targets[0],
                                                                                      fault.joining()[0]))
                if old and new and old[0] is not new[0]:
                    old[0] += new[0]
                    places.remove(new[0])
        told = {name for name, _ in history.steps}
        for names in places:
            if told.intersection(names):
                yield [names] if len(names) > 1 else [[member] for member in history.members[names[0]]]

    def _idle_of(self, names: Sequence[str], count: int) -> tuple[list[Stretch], int] | None:
        history = self._history
        pace = max(history.step_time(name) for name in names)
        moments = sorted(t for name in names for t in history.moments(name))
        if not pace or not moments:
            return None
        start = self._start if names[0].partition("/")[0] in history.plan.cluster.starters else moments[0]
        until = moments[-1] if self._made_all(names) else history.end
        inside = [t for t in moments if start < t < until]
        return [(began + pace, ended) for left, right in history.awake(start, until)
                for began, ended in pairwise([left, *(t for t in inside if left < t < right), right])
                if ended - began >= _TWICE * pace], count

    def _made_all(self, names: Sequence[str]) -> bool:
        """Return whether somebody who counts its own rounds has made all."""
        cluster, worker = self._history.plan.cluster, names[-1].partition("/")[0]
        if self._history.coordinator is not None or cluster.blocking or not cluster.budget_tokens:
            return False
        return any(steps[-1].step >= cluster.budget_tokens for (name, _), steps in self._history.steps.items()
                   if name == worker and len(steps))

    # -- what was lost -------------------------------------------------------------------------------------------------

    def _lost_rounds(self, start: float, end: float) -> Amount:
        if self._history.coordinator is None and not self._history.steps:
            return Amount(missing="no worker told its rounds: name them by `progress`")
        return Amount(float(sum(start <= t <= end for t in self._went_back)))

    @cached_property
    def _went_back(self) -> list[float]:
        """Return for each round of the job that came to nothing when that was so."""
        history = self._history
        if history.coordinator is not None:
            backs = history.tape.of(RolledBack, node=history.recorder)
            return [min(back.t for back in backs if back.t >= merge.t and back.step < merge.version)
                    for merge in history.rolled_back]
        if not history.plan.trainer.evidence & {"rounds"}:
            return []
        together = history.plan.cluster.blocking
        lost: dict[tuple[str, int], int] = {}
        went: list[float] = []
        for told in history.told_rounds:
            key, attempt = (("", told.round), told.era) if together else ((told.worker, told.round), told.attempt)
            if lost.get(key, attempt) < attempt:
                went.append(told.t)
                del lost[key]
            if told.void:
                lost[key] = attempt
        return went

    def _lost_samples(self, own: Sequence[Recovery]) -> Amount:
        amounts = [self._lost_of(recovery) for recovery in own]
        values = [amount.value for amount in amounts if amount.value is not None]
        missing = next((amount.missing for amount in amounts if amount.missing), "")
        return Amount(sum(values) if values or not own else None, missing)

    def _lost_of(self, recovery: Recovery) -> Amount:
        history, lost = self._history, recovery.lost_steps
        if lost == 0:
            return Amount(0.0)
        if lost is None:
            return Amount(missing=f"{recovery.target}: {self._why_not_told(recovery)}")
        node = recovery.target, recovery.before
        if history.plan.cluster.exchanges_fragments:
            accounting, (_, before) = history.accounting, history.counted[node]
            fates = [(size, accounting.fates[index, node].tokens(before))
                     for index, size in enumerate(accounting.sizes) if (index, node) in accounting.fates]
            tokens = sum(size * (of.get(CRASH, 0) + of.get(LEFT, 0)) for size, of in fates)
            return Amount(round(tokens / sum(accounting.sizes)))
        steps = history.steps[node]
        tokens = sum(step.tokens or sum(last - first + 1 for first, last in step.samples or ())
                     for step in steps[max(0, len(steps) - lost):])
        return Amount(tokens) if tokens else Amount(
            missing="rounds do not tell their samples: a group `(?P<samples>\\d+)` beside `round`")

    def _why_not_told(self, recovery: Recovery) -> str:
        if recovery.target == self._history.coordinator:
            return "it trains nothing itself; what was sent to it and never merged stands among the tokens"
        if recovery.span.planned.fault.is_final():
            return "it was not to come back, and no other node tells what of its work was used"
        return "no process told rounds after it: a longer run"


def _mean(own: Sequence[Recovery], seconds: Callable[[Recovery], float | None], phase: str) -> Amount:
    """Return the mean over the recoveries that have it; and whose is missing, and why."""
    if not own:
        return Amount(missing="no fault took a node out")
    values = [value for recovery in own if (value := seconds(recovery)) is not None]
    lacking = [recovery for recovery in own if seconds(recovery) is None]
    why = [next(one.missing for one in recovery.phases if one.name == phase) for recovery in lacking[:1]]
    some = [f"{len(lacking)} of {len(own)} not: "] if values and lacking else [""]
    return Amount(mean(values) if values else None, some[0] + why[0] if why else "")


def _usual(pauses: Iterable[Stretch]) -> float:
    """Return the length of those pauses in which half of the time passes, without those that are far longer than most.
    """
    lengths = [ended - began for began, ended in pauses]
    most = _FAR_LONGER * median(lengths)
    ordered = sorted(length for length in lengths if length <= most)
    half, passed = sum(ordered) / 2, 0.0
    for gap in ordered:
        passed += gap
        if passed >= half:
            return gap
    return 0.0


def _apart(merges: Iterable[Merge]) -> list[Merge]:
    """Return one of those that were made at one step: all fragments may be merged at once."""
    return [next(together) for _, together in groupby(merges, key=lambda merge: merge.step)]


def _made_again(history: History, merges: Iterable[Merge]) -> set[float]:
    """Return when rounds were over that had been made before."""
    newest: dict[int, int] = {}
    again = set()
    for merge in merges:
        number = merge.version if history.coordinator is not None else merge.step
        before = newest.get(merge.fragment, -1)
        if number <= before:
            again.add(merge.t)
        newest[merge.fragment] = max(number, before)
    return again


def _within(stretches: Iterable[Stretch], start: float, end: float) -> float:
    """Return for how many seconds of [start, end) these last."""
    return sum(max(0.0, min(ended, end) - max(began, start)) for began, ended in stretches)
