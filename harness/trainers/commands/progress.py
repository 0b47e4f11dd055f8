"""What a line of a log tells of progress: a round, and what is said of it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from diloco_chaos.harness.trainers.commands.named_data import named, samples
from diloco_chaos.harness.trainers.core.round_reports import Lint, Named, RoundReport

GROUPS = ("round", "loss", "samples", "members", "time", "batch")
"""Names of groups that an expression may have; `round` it must."""


@dataclass(frozen=True)
class Hold:
    """A process came to a failpoint that a fault waits for."""

    point: str
    count: int
    stops: bool
    """It stands there now."""


class Reader(Protocol):
    """A reader of a log that understands its lines."""

    def read(self, line: str) -> RoundReport | Hold | str | None:
        """Return what a line reports; a sentence where its numbers are none; None: it is about something else."""
        ...


@dataclass(frozen=True)
class Source:
    """The place where some nodes report their rounds."""

    nodes: frozenset[str]
    file: str
    """With placeholders."""
    reader: Reader


@dataclass(frozen=True)
class Expression:
    """A regular expression for lines."""

    pattern: re.Pattern[str]

    def read(self, line: str) -> RoundReport | str | None:
        """See `Reader`; a line that does not match is about something else."""
        match = self.pattern.search(line)
        if match is None:
            return None
        said: Mapping[str, str | None] = match.groupdict()
        try:
            count, those = samples(said.get("samples"))
            return RoundReport(int(said["round"] or ""), _number(said.get("loss")), count,
                               _count(said.get("members")), _time(said.get("time")), _batches(said.get("batch")), those)
        except ValueError as error:
            return f"a line that matches tells no round: {error}"


@dataclass(frozen=True)
class JsonLines:
    """Every line is an object; it is about something else where there is no round in it."""

    keys: Mapping[str, str] = field(default_factory=dict)
    """What of a round -> the key that it stands under, as it is or as a path with dots; by its own name where nothing
    is said."""

    def read(self, line: str) -> RoundReport | str | None:
        """See `Reader`."""
        if not line.strip():
            return None
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            return f"a line is no JSON: {error}"
        said = {name: _under(document, self.keys.get(name, name)) for name in GROUPS}
        if "batch" not in self.keys:  # it may well be how large a batch is
            said["batch"] = None
        if said["round"] is None:
            return None
        try:
            count, those = samples(said["samples"])
            return RoundReport(_whole(said["round"]), _loss(said["loss"]), count, _whole(said["members"]),
                               _time(None if said["time"] is None else str(said["time"])), _batches(said["batch"]),
                               those)
        except (ValueError, OverflowError) as error:
            return f"a line with a round tells none: {error}"


class Holds:
    """Lines of `diloco_chaos.progress.hold`."""

    def read(self, line: str) -> Hold | None:
        """See `Reader`."""
        try:
            document = json.loads(line)
            return Hold(str(document["failpoint"]), int(document["count"]), bool(document["stops"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            return None


def _under(document: Any, key: str) -> Any:
    """Return the value under a key, or at the end of a dotted path; None where there is none."""
    if not isinstance(document, dict) or key in document:
        return document.get(key) if isinstance(document, dict) else None
    first, dot, rest = key.partition(".")
    return _under(document.get(first), rest) if dot else None


def _loss(value: Any) -> float | None:
    """A loss; texts say what is no number: JSON has no way to."""
    return float(value) if isinstance(value, str) else _finite(value)


def _batches(value: Any) -> Named | None:
    return None if value is None else named(value)


def _finite(value: Any) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ValueError(f"{str(value)[:40]!r} is no number")
    return value


def _whole(value: Any) -> Any:
    number = _finite(value)
    if number is not None and number != int(number):
        raise ValueError(f"{number!r} is no whole number")
    return None if number is None else int(number)


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


def lint(lines: Sequence[str], readers: Sequence[Reader], now: datetime | None = None) -> Lint:
    """Read a log as a run would. `now`: when its last line was written, to hold its clock against."""
    reports: list[RoundReport] = []
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        for reader in readers:
            read = reader.read(line)
            if isinstance(read, str):
                problems.append(f"line {number}: {read}")
            elif isinstance(read, RoundReport):
                if reports and read.round <= reports[-1].round:
                    problems.append(f"line {number}: round {read.round} comes after round {reports[-1].round}: does "
                                    f"the expression match two kinds of lines, or did the trainer go back?")
                elif reports and read.round > reports[-1].round + 1:
                    problems.append(f"line {number}: round {read.round} comes after round {reports[-1].round}: "
                                    f"{read.round - reports[-1].round - 1} are not told")
                reports.append(read)
                break
    if not reports:
        last_line = next((line.strip() for line in reversed(lines) if line.strip()), "")
        problems.append("no line tells a round: nothing would be known of this node"
                        + (f"; its last line is {last_line[:_SHOWN]!r}" if last_line else "; it is empty"))
    last = next((report.time for report in reversed(reports) if report.time is not None), None)
    if now is not None and last is not None and _of_another_zone(now.astimezone(UTC).timestamp() - last):
        problems.append(f"the last round was at {datetime.fromtimestamp(last, UTC):%Y-%m-%d %H:%M:%S} UTC by its own "
                        f"clock, and the log was written at {now.astimezone(UTC):%H:%M:%S} UTC: say the zone in the "
                        f"time, or leave the group `time` out")
    return Lint(reports, len(lines), problems)


_SHOWN = 100
_QUARTER_S = 900.0
_NEAR_S = 30.0
"""Zones are quarters of an hour apart; a log that was copied is off by anything."""


def _of_another_zone(off: float) -> bool:
    quarters = round(off / _QUARTER_S)
    return 0 < abs(quarters) <= 14 * 4 and abs(off - quarters * _QUARTER_S) < _NEAR_S
