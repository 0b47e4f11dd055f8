"""Whether the run can prove anything at all: was the cluster steady, did the machine keep up?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from statistics import median
from typing import NamedTuple

from diloco_chaos.chaos.checks.base import Doubt, from_logs, no_round_reported, unnumbered_epochs
from diloco_chaos.chaos.evidence.clocks import TOO_FAR_S
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.evidence.interference import (
    Interference,
    describe,
    interference,
    seconds_within,
    stopped_for,
)
from diloco_chaos.harness.base.units import show_seconds
from diloco_chaos.harness.record.tape.events import Begin, End, Exit, Finished, Machine, Planned, Spawn, Warning
from diloco_chaos.harness.record.tape.series import times

PACE_WINDOW_S = 3.0
PACE_SLACK = 0.05
_OWN_ROUNDS = "`shared: false` beside `progress`, if each worker counts rounds of its own"


def doubt(history: History, *, stands_still: bool = False) -> Doubt:
    """Return why the run is inconclusive, and what to change; false where it is sound.

    `stands_still`: it was waited for until its deadline, and nothing came any more: that is what it does, and not for
    want of time.
    """
    ends = history.tape.of(End, node="harness")
    if ends and ends[-1].outcome != "finished" and not stands_still:
        late = ends[-1].outcome == "deadline"
        return Doubt(str(ends[-1].message or ends[-1].outcome) + _silent_workers(history),
                     f"more time: --deadline {2 * history.plan.deadline:g}s" if late else "")
    began = history.tape.of(Begin, node="harness")
    # `planned` comes where a test added faults on the way.
    planned: list[Begin | Planned] = [*began, *history.tape.of(Planned, node="harness")]
    if planned and planned[-1].plan != history.plan.digest:
        return Doubt("this tape was recorded from another plan than the one in its folder")
    if history.clocks.apart > TOO_FAR_S:
        return Doubt(f"clocks of different machines are known too badly to tell what came first: "
                     f"{history.clocks.words()}", "a better connection with the cluster: run it from nearby")
    if unclear := _never_reported(history) or _buffered(history) or Doubt(*unnumbered_epochs(history)):
        return unclear
    if _over_too_soon(history) is not None:
        return Doubt() if from_logs(history) else Doubt("training was over before its budget of tokens was spent")
    if history.zero is None:
        behind = _late_workers(history)
        return Doubt(f"there never was a steady state: {history.plan.trainer.counting.unsteady}"
                     f"{_silent_workers(history)}{behind}", _OWN_ROUNDS if behind else "")
    if history.plan.cluster.blocking:
        return Doubt()  # learners wait for every merge: they have no pace to hold
    # Of a machine that the first fault took away the last moments before it may be missing.
    known_until = [process.since for process in history.truncated.values()]
    return _lost_pace(history, history.zero, min([history.first_fault, *known_until]))


def ended_early(history: History) -> Doubt:
    """Return why what holds need not have held to the end; false where training was as long as planned.

    Of workers that end when they like: what did not hold until they ended does not hold, what did might not have later
    on.
    """
    over = _over_too_soon(history)
    if over is None or not from_logs(history):
        return Doubt()
    return Doubt(f"every worker had ended by round {over}, before round {history.plan.cluster.budget_tokens}"
                 f"{_silent_workers(history)}",
                 f"let the workers train for longer, or say `rounds: {over}` or fewer" if over else
                 "what keeps the workers from training: `logs/` in the run's folder has all that they said")


def _over_too_soon(history: History) -> int | None:
    """Tokens, or rounds, at which training was over though more were planned."""
    finished = history.tape.of(Finished, node=history.recorder)
    done = finished[0].processed if finished else None
    return done if done is not None and done < history.plan.cluster.budget_tokens else None


def _never_reported(history: History) -> Doubt:
    """Return a doubt where all workers have ended in good order, and nothing is known of what they did."""
    exits = [event.status for event in history.tape.of(Exit, node="harness")
             if event.target in history.plan.cluster.names]
    if not no_round_reported(history) or any(exits) or not exits:
        return Doubt()
    return Doubt("every worker ended with exit status 0, and none had told of a round" + _silent_workers(history),
                 "`progress`, so that it finds the rounds that the workers tell of")


def _buffered(history: History) -> Doubt:
    """Return a doubt where it is not known when workers made their rounds: they were told many at once."""
    warnings = [event for event in history.tape.of(Warning) if event.kind == "buffered"]
    return Doubt(f"{warnings[0].node}: {warnings[0].reason}", warnings[0].change) if warnings else Doubt()


def _silent_workers(history: History) -> str:
    """Name the workers in whose logs no round was found, and say how to find out why; empty where there are none."""
    if history.zero is not None or not from_logs(history):
        return ""
    heard = {node for node, _ in history.steps}
    started = {event.target for event in history.tape.of(Spawn, node="harness")}
    silent = [name for name in history.plan.cluster.names if name in started - heard]
    return (f". No line of {' and '.join(silent)} told of a round: `diloco-chaos progress LOG --with SCENARIO` shows "
            f"what the scenario finds in a log, as in {silent[0]}.0.log"
            f"{_half_closed(history, silent)}") if silent else ""


def _half_closed(history: History, silent: Sequence[str]) -> str:
    """Say what else may be why a worker that has links made no round; empty where none has any."""
    programs = history.plan.trainer.programs()
    linked = any(programs[name].talks_to or programs[name].meets for name in silent if name in programs)
    return ("; a worker that ends its side of a connection before the answer comes (a half-close) gets none through a "
            "link" if linked else "")


def _late_workers(history: History) -> str:
    """Name the workers that had a part in no round, since they report each after the others have gone on, and say how
    late; empty where there are none."""
    if not from_logs(history) or not history.plan.cluster.blocking:
        return ""
    over = {merge.step: merge.t for merge in history.merges}
    members = {part.learner for merge in history.merges for part in merge.contributions}
    late: dict[str, list[float]] = {}
    for (node, _), steps in history.steps.items():
        if node not in members:
            late.setdefault(node, []).extend(step.t - over[step.step] for step in steps if step.step in over)
    took = [later - earlier for earlier, later in pairwise(over.values())]
    return "".join(f". {node} reports a round {show_seconds(median(behind))} after the others, which have begun the "
                   f"next after {show_seconds(median(took))}" for node, behind in sorted(late.items())
                   if behind and took)


def _lost_pace(history: History, start: float, end: float) -> Doubt:
    """Return why this machine did not keep the pace between these times; false: it did, or the run itself is why."""
    slow = [window for window in _paces(history, start, end) if window.too_slow > 0]
    if not slow:
        return Doubt()
    if stood := stopped_for(history, start, end):
        return Doubt(f"the run stood still for {stood:.1f} s before the first fault, while this machine had nothing "
                     f"else to do: it was stopped (Ctrl-Z, a debugger), or the machine slept", "run it again")
    intervals = interference(history)
    others = describe(intervals, start, end)
    if history.tape.of(Machine, node="harness"):
        usual = {learner: _usual_pace(history, learner, start, end) for learner in {window.learner for window in slow}}
        slow = [window for window in slow
                if usual[window.learner] > window.bearable or window.explained_by(intervals)]
        if not slow:
            return Doubt()  # nothing else was in the way, and the machine is large enough
    worst = max(slow, key=lambda window: window.pace / window.bearable)
    nominal = history.step_time(worst.learner)
    return Doubt(f"this machine is too busy: {worst.learner} took {worst.pace * 1e3:.0f} ms a step before the first "
                 f"fault, nominal is {nominal * 1e3:.0f} ms" + (f" ({others})" if others else ""),
                 "run it when less else is going on" if others else "a pace that this machine holds: --step-time auto")


class _Pace(NamedTuple):
    """The mean time of a learner's steps in a part of the run, all in seconds."""

    learner: str
    pace: float
    bearable: float
    start: float
    end: float

    @property
    def too_slow(self) -> float:
        """Return the seconds by which its steps took too long."""
        return (self.end - self.start) * (1 - self.bearable / self.pace)

    def explained_by(self, intervals: Sequence[Interference]) -> bool:
        """Return whether others were in the way for half of that."""
        return seconds_within(intervals, self.start, self.end) >= self.too_slow / 2


def _slack(history: History, learner: str) -> float:
    """Return how much slower the slowest window may be, as a share. Steps that vary by a share v, evenly, have a mean
    over n of them whose deviation is v / sqrt(3 n): five of these are hardly ever exceeded, whatever the number of
    windows."""
    steps = max(1.0, PACE_WINDOW_S / (history.step_time(learner) or PACE_WINDOW_S))
    return PACE_SLACK + 5 * history.plan.cluster.variance / math.sqrt(3 * steps)


def _usual_pace(history: History, learner: str, start: float, end: float) -> float:
    """Median time from step to step between these times, in seconds; infinite where it took hardly any."""
    took = [later - earlier for (name, _), events in history.steps.items() if name == learner
            for earlier, later in pairwise(times(events)) if start <= earlier and later <= end]
    return median(took) if took else math.inf


def _paces(history: History, start: float, end: float) -> Iterator[_Pace]:
    """Yield the mean time of a step of each learner over each window of 3 s."""
    if not history.plan.cluster.step_time:
        return
    for ((learner, _), events), (left, right) in product(history.steps.items(), history.awake(start, end)):
        moments = [t for t in times(events) if left <= t <= right]
        moments += [right] if moments else []  # a learner that stands still at the end does not hold its pace
        index, bearable = 0, (1 + _slack(history, learner)) * history.step_time(learner)
        for last, (_, now) in enumerate(pairwise(moments), 1):
            while now - moments[index + 1] >= PACE_WINDOW_S:
                index += 1
            if now - moments[index] >= PACE_WINDOW_S:
                yield _Pace(learner, (now - moments[index]) / (last - index), bearable, moments[index], now)
