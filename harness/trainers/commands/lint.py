"""A whole log, read as a run would read it: the rounds that it tells, and what is wrong with them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise

from diloco_chaos.harness.trainers.commands.numbering import Numbering
from diloco_chaos.harness.trainers.commands.progress import NOTHING, Reader, Readings
from diloco_chaos.harness.trainers.commands.timing import Stamps
from diloco_chaos.harness.trainers.core.round_reports import Lint, RoundReport

_NOTES = frozenset({"long"})
"""Kinds of problems that cost nothing where they come alone."""
_SHOWN = 100
_QUARTER_S = 900.0
_NEAR_S = 30.0
"""Zones are quarters of an hour apart; a log that was copied is off by anything."""


def lint(lines: Sequence[str], readers: Sequence[Reader], now: datetime | None = None) -> Lint:
    """Read a log as a run would. `now`: when its last line was written, to hold its clock against."""
    readings, numbering = Readings(readers), Numbering()
    rounds: list[tuple[int, RoundReport]] = []
    problems: list[tuple[int, str]] = []
    notes: list[str] = []
    for number, line in enumerate(lines, 1):
        reading = readings.read(line) or NOTHING
        for problem in reading.problems:
            if problem.kind not in _NOTES:
                problems.append((number, problem.text))
            elif not notes:
                notes.append(f"line {number}: {problem.text}")
        if isinstance(reading.told, RoundReport):
            rounds.append((number, numbering.numbered(reading.told)))
    reports = [report for _, report in rounds]
    problems += _out_of_order(rounds, notes)
    told = [f"line {number}: {text}" for number, text in sorted(problems)]
    if not reports:
        last_line = next((line.strip() for line in reversed(lines) if line.strip()), "")
        told.append("no line tells a round: nothing would be known of this node"
                    + (f"; its last line is {last_line[:_SHOWN]!r}" if last_line else "; it is empty"))
    last = next((report.time for report in reversed(reports) if report.time is not None), None)
    if now is not None and last is not None and _of_another_zone(now.astimezone(UTC).timestamp() - last):
        told.append(f"the last round was at {datetime.fromtimestamp(last, UTC):%Y-%m-%d %H:%M:%S} UTC by its own "
                    f"clock, and the log was written at {now.astimezone(UTC):%H:%M:%S} UTC: say the zone in the "
                    f"time, or leave the group `time` out")
    return Lint(reports, len(lines), told, [*notes, *_coarse(reports)])


def _out_of_order(rounds: Sequence[tuple[int, RoundReport]], notes: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the line and a sentence for rounds that go back or are left out. Equal ones are those of several ranks, who
    may be a round apart; where every tenth is told, those between are not left out."""
    stride = _stride(report.round for _, report in rounds)
    if stride > 1:
        notes.append(f"every {stride}th round is told: faults and checks see no others")
    seen: set[int] = set()
    newest: int | None = None
    for number, report in rounds:
        told = report.round
        if newest is not None and told < newest and not (told in seen and newest - told <= stride):
            yield number, (f"round {told} comes after round {newest}: does the expression match two kinds of lines, do "
                           f"rounds begin again with each epoch (add a group `(?P<epoch>\\d+)`), or did the trainer go "
                           f"back?")
            newest = told
        elif newest is not None and told > newest + stride:
            yield number, f"round {told} comes after round {newest}: {told - newest - 1} are not told"
        newest = told if newest is None else max(newest, told)
        seen.add(told)


def _stride(rounds: Iterable[int]) -> int:
    """Return how many rounds lie between two that are told, as a rule."""
    gaps = Counter(later - earlier for earlier, later in pairwise(rounds) if later > earlier)
    gap, times = gaps.most_common(1)[0] if gaps else (1, 1)
    return gap if times > 1 else 1


def _coarse(reports: Sequence[RoundReport]) -> Iterator[str]:
    stamps = Stamps(0.0)
    for report in reports:
        if report.time is not None:
            stamps.moment(report.time, report.time, 0.0)
    if stamps.problem is not None:
        yield stamps.problem.text


def _of_another_zone(off: float) -> bool:
    quarters = round(off / _QUARTER_S)
    return 0 < abs(quarters) <= 14 * 4 and abs(off - quarters * _QUARTER_S) < _NEAR_S
