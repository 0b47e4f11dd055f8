"""What a line of a log tells of progress: a round, and what is said of it. Pure."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

from diloco_chaos.harness.base.units import expression
from diloco_chaos.harness.trainers.commands.fields import MOST, moment, number, rank, shown, whole, word
from diloco_chaos.harness.trainers.commands.named_data import named, samples
from diloco_chaos.harness.trainers.core.round_reports import RoundReport

GROUPS = ("round", "loss", "samples", "members", "time", "epoch", "batch", "digest", "rank")
"""Names of groups that an expression may have; `round` it must."""
Unit = Literal["round", "epoch"]
"""What a round is counted in: an epoch's fractions are told, `0.25`."""
AN_EPOCH = 10_000
"""Rounds of an epoch where fractions of it are told."""
LONGEST = 1 << 16
"""Characters that an expression is held against at once."""
_PARSERS: Mapping[str, Callable[[Any], Mapping[str, Any]]] = {
    "loss": lambda value: {"loss": number(value)}, "samples": samples,
    "members": lambda value: {"members": whole(value)}, "time": lambda value: {"time": moment(value)},
    "epoch": lambda value: {"epoch": number(value)}, "batch": lambda value: {"batches": named(value)},
    "digest": lambda value: {"digest": word(value, "digest")}, "rank": lambda value: {"rank": rank(value)}}
"""Group -> what its value says of a round."""
_ASKED_FOR = ("epoch", "batch", "digest", "rank")
"""What an object is asked for only where `keys` says so: many have an epoch beside rounds that go on through all of
them, under `batch` how large one is, under `digest` that of something else, and under `rank` that of the whole job."""
_MOST_OBJECTS = 8
"""Places of a line at which a JSON object is looked for."""
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Hold:
    """A process came to a failpoint that a fault waits for."""

    point: str
    count: int
    stops: bool
    """It stands there now."""


class Problem(NamedTuple):
    """Something in a log that can't be read as it was meant."""

    kind: str
    """What it is about: each kind is told once."""
    text: str
    change: str = ""
    """What to change, where that is known."""


class Reading(NamedTuple):
    """What a line tells."""

    told: RoundReport | Hold | None
    problems: tuple[Problem, ...] = ()


NOTHING = Reading(None)


class Reader(Protocol):
    """A reader of a log that understands its lines."""

    @property
    def lines(self) -> int:
        """Return how many lines tell a round together."""
        ...

    def read(self, line: str) -> Reading | None:
        """Return what a line tells; None: it is about something else."""
        ...


class Readings:
    """The lines of one file, one after the other, as the first reader that knows a line reads it."""

    def __init__(self, readers: Sequence[Reader]) -> None:
        self._readers = [(reader, reader.lines) for reader in readers]
        self._last = deque[str](maxlen=max((count for _, count in self._readers), default=1))

    def read(self, line: str) -> Reading | None:
        """Return what the file's next line tells."""
        self._last.append(line)
        unread: Reading | None = None
        for reader, count in self._readers:
            reading = reader.read(line if count == 1 else "\n".join([*self._last][-count:]))
            if reading is not None and reading.told is not None:
                return reading
            unread = unread or reading
        return unread


@dataclass(frozen=True)
class Source:
    """The place where some nodes report their rounds."""

    nodes: frozenset[str]
    file: str
    """With placeholders; `*` stands for any name."""
    reader: Reader


@dataclass(frozen=True)
class Expression:
    """A regular expression for lines, or for as many at once as it has newlines."""

    pattern: re.Pattern[str]
    unit: Unit = "round"

    @property
    def lines(self) -> int:
        """See `Reader`."""
        return 1 + len(_NEWLINE.findall(self.pattern.pattern))

    def read(self, line: str) -> Reading | None:
        """See `Reader`; a line that does not match is about something else."""
        if len(line) <= LONGEST:
            return self._searched(line)
        long = Problem("long", f"a line of {len(line):,} characters is read in pieces of {LONGEST:,}: what a round "
                               f"tells may be parted there")
        told = next(filter(None, map(self._searched, _pieces(line))), Reading(None))
        return Reading(told.told, (*told.problems, long))

    def _searched(self, text: str) -> Reading | None:
        match = self.pattern.search(text)
        if match is None or match["round"] is None or match.end() <= text.rfind("\n"):
            return None
        said = match.groupdict()
        for name in self._numbers:
            end = match.end(name)
            rest = _REST.match(text, end) if text[end:end + 1] == "," and _FIRST.fullmatch(match[name]) else None
            if rest is not None and not any(end < start < rest.end() for start, _ in match.regs[1:]):
                said[name] = match[name] + rest[0]
        return _told(said, self.unit)

    @cached_property
    def _numbers(self) -> Sequence[str]:
        """Groups for numbers after which the expression has no comma itself: `\\d+` finds the 1 of `1,024`."""
        return [name for name in self.pattern.groupindex
                if name not in ("time", "digest", "rank") and not _COMMA.match(_after(self.pattern.pattern, name))]


_FIRST, _REST = re.compile(r"[1-9]\d{0,2}"), re.compile(r"(?:,\d{3})+(?:\.\d+)?(?![\d,])")
"""Of a number that is written with commas."""
_COMMA = re.compile(r"\)*(?:\\?,|\[[^\]]*,)")
_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()]|[^\\\[()]+", re.DOTALL)
"""Of an expression: an escape, a class, a parenthesis, anything else."""


def _after(pattern: str, group: str) -> str:
    """Return what comes after a group in an expression."""
    place, depth = pattern.index(f"(?P<{group}>"), 0
    for part in _PART.finditer(pattern, place):
        depth += {"(": 1, ")": -1}.get(part[0], 0)
        if not depth:
            return pattern[part.end():]
    return ""


_NEWLINE = re.compile(r"(?<!\\)(?:\\\\)*(?:\\n|\n)")
"""In an expression."""


def _pieces(line: str) -> Iterator[str]:
    """A long line in parts, each of which ends with a blank where there is one."""
    while line:
        blank = line.rfind(" ", LONGEST // 2, LONGEST) if len(line) > LONGEST else 0
        cut = blank if blank > 0 else LONGEST
        yield line[:cut]
        line = line[cut:]


@dataclass(frozen=True)
class JsonLines:
    """Every line has an object; it is about something else where there is no round in it."""

    keys: Mapping[str, str] = field(default_factory=dict)
    """What of a round -> the key that it stands under, as it is or as a path with dots; by its own name where nothing
    is said."""
    unit: Unit = "round"

    @property
    def lines(self) -> int:
        """See `Reader`."""
        return 1

    def read(self, line: str) -> Reading | None:
        """See `Reader`. What stands before the object (`[rank0]: `), or after it, is about something else."""
        place, problem = line.find("{"), ""
        for _ in range(_MOST_OBJECTS):
            if place < 0:
                break
            try:
                document, _ = _DECODER.raw_decode(line, place)
            except (ValueError, RecursionError) as error:
                problem = problem or f"a line is no JSON: {error}"
            else:
                said = {name: _under(document, self.keys.get(name, name)) for name in GROUPS
                        if name in self.keys or name not in _ASKED_FOR}
                if said["round"] is not None:
                    return _told(said, self.unit)
                problem = ""
            place = line.find("{", place + 1)
        return Reading(None, (Problem("json", problem),)) if problem and line.lstrip()[:1] == "{" else None


def _told(said: Mapping[str, Any], unit: Unit) -> Reading:
    """What is said of a round, as numbers. What is no number is a problem, and unknown; without the round nothing is
    known."""
    values: dict[str, Any] = {}
    problems = []
    try:
        values["round"] = whole(said["round"]) if unit == "round" else _of_an_epoch(said["round"])
    except ValueError as error:
        return Reading(None, (Problem("round", f"a line that matches tells no round: {error}"),))
    for name, parse in _PARSERS.items():
        if (value := said.get(name)) is not None:
            try:
                values |= parse(value)
            except ValueError as error:
                problems.append(Problem(name, f"{name}: {error}; the round counts without it"))
    return Reading(RoundReport(**values), tuple(problems))


def _of_an_epoch(value: Any) -> int:
    epochs = number(value)
    if not 0 <= epochs <= MOST / AN_EPOCH:  # also where it is no number
        raise ValueError(f"{shown(value)} is no fraction of an epoch")
    return round(epochs * AN_EPOCH)


class Holds:
    """Lines of `diloco_chaos.progress.hold`."""

    lines = 1

    def read(self, line: str) -> Reading | None:
        """See `Reader`."""
        if '"failpoint"' not in line:
            return None
        try:
            document = json.loads(line)
            return Reading(Hold(str(document["failpoint"]), int(document["count"]), bool(document["stops"])))
        except (ValueError, KeyError, TypeError, RecursionError):
            return None


def _under(document: Any, key: str) -> Any:
    """Return the value under a key, or at the end of a dotted path; None where there is none."""
    if not isinstance(document, dict) or key in document:
        return document.get(key) if isinstance(document, dict) else None
    first, dot, rest = key.partition(".")
    return _under(document.get(first), rest) if dot else None


def compiled(text: str) -> re.Pattern[str]:
    """An expression that finds rounds.

    Raises:
        ValueError: it is no regular expression, or has no group `round`, or groups that mean nothing.
    """
    pattern = expression(text)
    if "round" not in pattern.groupindex:
        raise ValueError(r"it has no group `round`: write (?P<round>\d+) where the number of the round stands")
    if unknown := sorted(set(pattern.groupindex) - set(GROUPS)):
        raise ValueError(f"group {unknown[0]!r} means nothing: groups are {', '.join(GROUPS)}")
    return pattern
