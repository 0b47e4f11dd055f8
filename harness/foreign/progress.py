"""What a line of a log tells of progress: a round, and what is said of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from harness.core.rounds_told import Lint, Report

GROUPS = ("round", "loss", "samples", "members", "time")
"""Names of groups that an expression may have; `round` it must."""


@dataclass(frozen=True)
class Expression:
    """A regular expression for the lines of some nodes' logs."""

    nodes: frozenset[str]
    pattern: re.Pattern[str]

    def read(self, line: str) -> Report | str | None:
        """What a line tells; a sentence where it matches but its numbers are none; None: it is about something else."""
        found = self.pattern.search(line)
        if found is None:
            return None
        said: Mapping[str, str | None] = found.groupdict()
        try:
            return Report(int(said["round"] or ""), _number(said.get("loss")), _count(said.get("samples")),
                          _count(said.get("members")), _time(said.get("time")))
        except ValueError as error:
            return f"a line that matches tells no round: {error}"


def compiled(text: str) -> re.Pattern[str]:
    """An expression that finds rounds.

    Raises:
        ValueError: it is no regular expression, or has no group `round`, or groups that mean nothing.
    """
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from error
    if "round" not in pattern.groupindex:
        raise ValueError(r"it has no group `round`: write (?P<round>\d+) where the number of the round stands")
    if unknown := sorted(set(pattern.groupindex) - set(GROUPS)):
        raise ValueError(f"group {unknown[0]!r} means nothing: groups are {', '.join(GROUPS)}")
    return pattern


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)


def _count(text: str | None) -> int | None:
    return None if text is None else int(text)


def _time(text: str | None) -> float | None:
    """Seconds since 1970 from a number or from ISO 8601; without a zone it is local time.

    Raises:
        ValueError: it is neither.
    """
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text.replace("Z", "+00:00").replace(",", ".")).timestamp()


def lint(lines: Sequence[str], expressions: Sequence[Expression], now: datetime | None = None) -> Lint:
    """Read a log as a run would. `now`: when its last line was written, to hold its clock against."""
    reports: list[Report] = []
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        for expression in expressions:
            read = expression.read(line)
            if isinstance(read, str):
                problems.append(f"line {number}: {read}")
            elif read is not None:
                if reports and read.round <= reports[-1].round:
                    problems.append(f"line {number}: round {read.round} comes after round {reports[-1].round}: does "
                                    f"the expression match two kinds of lines, or did the trainer go back?")
                elif reports and read.round > reports[-1].round + 1:
                    problems.append(f"line {number}: round {read.round} comes after round {reports[-1].round}: "
                                    f"{read.round - reports[-1].round - 1} are not told")
                reports.append(read)
                break
    if not reports:
        problems.append("no line matches: nothing would be known of this node")
    last = next((report.time for report in reversed(reports) if report.time is not None), None)
    if now is not None and last is not None and abs(now.astimezone(UTC).timestamp() - last) > _FAR_OFF_S:
        problems.append(f"the last round was at {datetime.fromtimestamp(last, UTC):%Y-%m-%d %H:%M:%S} UTC by its own "
                        f"clock, and the log was written at {now.astimezone(UTC):%H:%M:%S} UTC: say the zone in the "
                        f"time, or leave the group `time` out")
    return Lint(reports, len(lines), problems)


_FAR_OFF_S = 60.0
