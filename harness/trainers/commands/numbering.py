"""One number for rounds that begin again with each epoch. Pure."""

from __future__ import annotations

import math

from diloco_chaos.harness.trainers.commands.progress import Problem
from diloco_chaos.harness.trainers.core.round_reports import RoundReport

_MANY = 3
"""Ranks that write to one log are not so many rounds apart."""


def begun_again(last: int | None, report: RoundReport) -> Problem | None:
    """Return what is odd where rounds begin again, and nothing tells of which epoch they are. `last`: the one that was
    told before."""
    if last is None or report.epoch is not None or report.round > 1 or last < report.round + _MANY:
        return None
    return Problem("epochs", f"its rounds begin again with {report.round} after {last}",
                   "if each epoch counts its own, tell which one it is, by a group `(?P<epoch>\\d+)`, or "
                   "`keys: {epoch: ...}` of objects")


class Numbering:
    """Rounds of those who number them together: all workers, or one.

    How many rounds an epoch has shows when the next one begins; an epoch that comes again, after a restart from a
    checkpoint, has the numbers that it had. A process that begins with a new epoch has left out the rest of the one
    before, where it is known how many rounds that has. Rounds that go on through all epochs are left as they are.
    """

    def __init__(self) -> None:
        self._before: dict[int, int] = {}  # epoch -> what its rounds are counted from
        self._last: dict[int, int] = {}  # epoch -> the highest round that was told of it, as it was told
        self._first: int | None = None  # round of an epoch
        self._stride: int | None = None  # from a round that is told to the next
        self._length: int | None = None  # of an epoch
        self._newest: tuple[int, int] | None = None  # epoch and round of the last report

    def numbered(self, report: RoundReport, *, begins: bool = False) -> RoundReport:
        """The report with the number of its round in all. `begins`: it is the first of a process that was started
        again."""
        if report.epoch is None or not math.isfinite(report.epoch):
            return report
        epoch, told = int(report.epoch), report.round
        if epoch not in self._before:
            self._before[epoch] = self._begun(epoch, told, begins)
        if self._newest is not None and self._newest[0] == epoch and told > self._newest[1]:
            gap = told - self._newest[1]
            self._stride = min(gap, self._stride or gap)
        self._first = min(told, told if self._first is None else self._first)
        self._newest = epoch, told
        self._last[epoch] = max(told, self._last.get(epoch, told))
        return report._replace(round=max(0, self._before[epoch] + told))

    def _begun(self, epoch: int, told: int, begins: bool) -> int:
        """Return what the rounds of a new epoch are counted from. `told`: the first that is told of it; `begins`: by a
        process that was started again."""
        earlier = [known for known in self._before if known < epoch]
        if not earlier:
            return 0
        previous = max(earlier)
        if told > self._last[previous]:
            return self._before[previous]  # they go on
        first = min(told, told if self._first is None else self._first)
        length = self._last[previous] + (self._stride or first or 1) - first
        if begins:
            length = max(length, self._length or 0)
        skipped = (epoch - previous - 1) * (self._length or length)
        if self._length is None and previous + 1 == epoch:
            self._length = length
        return self._before[previous] + length + skipped
