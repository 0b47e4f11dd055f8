"""The tape: what every node records while it runs, and the only thing that verdicts are made from.

One file per node and incarnation, `tape/<node>.<incarnation>.jsonl`, one JSON object a line, flushed per event, so
that it can be read after any crash. docs/evidence.md describes every event.
"""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from sys import intern
from typing import Any, BinaryIO

import orjson

from harness.errors import all_printable, printable
from harness.event import Event as Event
from harness.garbage import uncollected
from harness.packed_events import PackedEvents, Packing
from harness.packed_events import times as times
from harness.packed_events import values as values

SCHEMA = 2
"""Of the tape. 1 called the outer gradient `snapshot`, a failpoint `held`, and a global checkpoint `cut`."""

_LONGEST_S = 1e7
"""Four months: no run is longer."""
_LONGEST_LINE = 1 << 20
"""Bytes; a merge from 16 learners has 4,000."""
_Parts = tuple[float, str, int, str, dict[str, Any]]
"""Of an event, in the order of its attributes."""
_BACKSLASH, _DELETE = b"\\\x7f"
_NONE: frozenset[str] = frozenset()

FIELDS: dict[str, frozenset[str]] = {name: frozenset(fields.split()) for name, fields in {
    "step": "step tokens began", "outer_gradient": "round fragment base first step steps tokens digest",
    "upload": "", "donated": "learner versions", "recovering": "learner from versions",
    "received": "fragment version step digest closed carried",
    "disconnected": "", "ready": "", "start": "", "imported": "", "failpoint": "point",
    "listening": "port", "initial": "versions digests step processed",
    "resumed": "versions digests step processed", "hello": "learner incarnation", "lost": "learner reason",
    "merge": "round fragment version digest step processed merged opened quorum_at closed grace step_time sync_time "
             "asked declined contributions",
    "refused": "reason", "refused_frame": "peer reason", "partial_frame": "peer bytes expected", "steady": "step",
    "grouped": "epoch step learners", "rolled_back": "step processed", "traffic": "sent received",
    "checkpoint_begun": "checkpoint step nodes", "checkpoint_part": "checkpoint step",
    "checkpoint_complete": "checkpoint", "checkpoint_incomplete": "checkpoint without",
    "not_saved": "checkpoint reason", "finished": "step", "exit": "", "begin": "plan", "continued": "run checkpoint",
    "end": "outcome message",
    "machine": "seconds cores idle ours others stolen late cpu io memory",
    "spawn": "target incarnation", "injecting": "fault kind targets description", "injected": "fault observed",
    "observed": "fault observed", "healed": "fault observed", "verified": "fault observed",
    "not_healed": "fault reason",
    "aborted": "why", "residue": "left", "repaired": "file reason", "superseded": "reason",
    "skipped": "step position reason", "reset": "step reason", "corrupted": "step fault part content values seed",
    "renewed": "learner incarnation reason", "failed": "reason",
    "refused_checkpoint": "reason", "warning": "reason"}.items()}
"""Every event of the contract, and the fields that verdicts need: a line without them is not whole."""


def line(event: Event) -> str:
    """The event as one JSON line, keys in a fixed order; NaN and infinity become null, as JSON wants it."""
    content = {"t": round(event.t, 6), "node": event.node, "inc": event.incarnation, "event": event.event,
               **event.fields}
    try:
        return orjson.dumps(content).decode() + "\n"
    except TypeError:  # a name that is no Unicode, a number of more than 64 bits: slower, and nothing is lost
        return json.dumps(content, separators=(",", ":")) + "\n"


def parse(text: str | bytes) -> Event:
    """The event on one line. Whole numbers of more than 64 bits, which only somebody else writes, lose digits.

    Raises:
        ValueError: the line is not a whole event.
    """
    t, node, incarnation, name, fields = _parsed(text)
    _whole(name, fields)
    return Event(t, node, incarnation, name, fields)


def _parsed(text: str | bytes) -> _Parts:
    """The same in parts, which may lack fields."""
    try:
        raw = _loaded(text)
        t, node, incarnation, name = raw.pop("t"), raw.pop("node"), raw.pop("inc"), raw.pop("event")
    except (KeyError, AttributeError, TypeError, RecursionError) as missing:
        raise ValueError(f"not an event: {missing}") from missing
    if not (isinstance(t, (int, float)) and isinstance(node, str) and isinstance(incarnation, int)
            and isinstance(name, str)):
        raise ValueError("not an event: t, node, inc or event has the wrong type")
    if not abs(t) <= _LONGEST_S:  # NaN included
        raise ValueError(f"not an event: {t} is no time of a run")
    return float(t), intern(node), incarnation, intern(name), raw


def _whole(name: str, fields: Mapping[str, Any]) -> None:
    if not FIELDS.get(name, _NONE) <= fields.keys():
        raise ValueError(f"a {name} without {', '.join(sorted(FIELDS[name] - fields.keys()))}")


def _loaded(text: str | bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # NaN, a name that is no Unicode: what `line` may have written, and nothing is lost
        return json.loads(text if isinstance(text, str) else text.decode("utf-8", "replace"))


def write(events: Iterable[Event], folder: Path) -> None:
    """Write events as their nodes would have."""
    folder.mkdir(parents=True, exist_ok=True)
    lines: dict[str, list[str]] = {}
    for event in events:
        lines.setdefault(f"{event.node}.{event.incarnation}.jsonl", []).append(line(event))
    for name, text in lines.items():
        (folder / name).write_text("".join(text), encoding="utf-8")


class TapeWriter:
    """Writes one node's tape; each event is in the kernel's hands before `record` returns."""

    def __init__(self, folder: Path, node: str, incarnation: int, epoch: float) -> None:
        """`epoch` is the run's beginning on CLOCK_MONOTONIC, in seconds."""
        folder.mkdir(parents=True, exist_ok=True)
        self._file = open(  # noqa: SIM115 - open as long as the node lives
            folder / f"{node}.{incarnation}.jsonl", "a", encoding="utf-8")
        self.node, self._incarnation, self._epoch = node, incarnation, epoch

    def record(self, event: str, **fields: Any) -> None:
        """Append one event, stamped with the time now."""
        now = time.monotonic() - self._epoch
        self._file.write(line(Event(now, self.node, self._incarnation, event, fields)))
        self._file.flush()

    def close(self) -> None:
        """Close the file; nothing is buffered."""
        self._file.close()


def next_incarnation(folder: Path, node: str) -> int:
    """The number of a node's next incarnation, by the tapes of those that were: 0 for the first."""
    numbers = [path.stem.rpartition(".") for path in folder.glob("*.jsonl")]
    return max((int(number) + 1 for name, _, number in numbers if name == node and number.isdigit()), default=0)


class NoTape(TapeWriter):
    """Records nothing: what a node is measured with to learn what its tape costs."""

    def __init__(self, folder: Path, node: str, incarnation: int, epoch: float) -> None:
        """Opens no file."""
        self.node = node

    def record(self, event: str, **fields: Any) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


@dataclass
class Tape:
    """All events of a run in the order of time, and what could not be read."""

    events: Sequence[Event] = field(default_factory=list)
    torn: dict[tuple[str, int], str] = field(default_factory=dict)
    """(node, incarnation) -> where and why reading its file stopped."""
    unread: set[tuple[str, int]] = field(default_factory=set)
    """Of these, the files that go on after that line: more than a last line is missing."""

    @cached_property
    def _places(self) -> dict[str, array[int]]:
        """Where among all the events of each name are."""
        if isinstance(self.events, PackedEvents):
            return self.events.places()
        found: dict[str, array[int]] = {}
        for place, event in enumerate(self.events):
            found.setdefault(event.event, array("I")).append(place)
        return found

    def each(self, *names: str) -> Iterator[Event]:
        """The events of these names, in the order of time. The tape must be whole."""
        return map(self.events.__getitem__, self._of(names))

    def of(self, *names: str, node: str | None = None) -> list[Event]:
        """The same at once, of one node if asked."""
        found = self.each(*names)
        return list(found) if node is None else [event for event in found if event.node == node]

    def by_process(self, *names: str) -> Mapping[tuple[str, int], Sequence[Event]]:
        """The events of these names, or all, from each (node, incarnation), in the order of time."""
        if isinstance(self.events, PackedEvents):
            return (self.events.at(self._of(names)) if names else self.events).by_process()
        found: dict[tuple[str, int], list[Event]] = {}
        for event in self.each(*names) if names else self.events:
            found.setdefault((event.node, event.incarnation), []).append(event)
        return found

    def _of(self, names: Iterable[str]) -> Sequence[int]:
        """Where the events of these names are."""
        found = [self._places[name] for name in dict.fromkeys(names) if name in self._places]
        return found[0] if len(found) == 1 else array("I", sorted(chain.from_iterable(found)))  # each is in order

    @cached_property
    def ends(self) -> dict[tuple[str, int], float]:
        """When each (node, incarnation) wrote for the last time, in seconds."""
        if isinstance(self.events, PackedEvents):
            return {process: events[-1].t for process, events in self.events.by_process().items()}
        return {(event.node, event.incarnation): event.t for event in self.events}


def read(folder: Path) -> Tape:
    """Read every file of a tape; each file up to the first line that is not whole. What a terminal would obey, or not
    show, is replaced by what it is: the folder may come from anybody."""
    tape, packing = Tape(), Packing(_whole)
    with uncollected():
        for path in sorted(folder.glob("*.jsonl")):
            if path.is_file():
                _read(path, tape, packing)
    tape.events = packing.done()
    return tape


def _read(path: Path, tape: Tape, packing: Packing) -> None:
    node, _, incarnation = path.stem.rpartition(".")
    place = (printable(node), int(incarnation) if incarnation.isdecimal() else 0)
    with open(path, "rb") as file:
        for number, text in enumerate(iter(partial(file.readline, _LONGEST_LINE), b""), 1):
            try:
                if not text.endswith(b"\n"):
                    raise ValueError("the line has no end" if len(text) < _LONGEST_LINE else "the line is too long")
                parts = _parsed(text)
                plain = text.isascii() and _BACKSLASH not in text and _DELETE not in text  # JSON has the rest escaped
                packing.add(*(parts if plain else _shown(parts)))
            except ValueError as error:
                tape.torn[place] = printable(f"{path.name}, line {number}: {error}")
                if file.read(1):
                    tape.unread.add(place)
                break


def _shown(parts: _Parts) -> _Parts:
    """An event's parts, with text that can be printed; hardly any line needs it."""
    t, node, incarnation, name, fields = parts
    return t, printable(node), incarnation, printable(name), all_printable(fields)


class Tail:
    """Follows a growing tape: each `poll` yields the events that came since the last one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.size = 0
        """Bytes read so far."""
        self._files: dict[Path, BinaryIO] = {}
        self._rest: dict[Path, bytes] = {}

    def poll(self) -> Iterator[Event]:
        """New whole lines of every file; half a line is left for the next call."""
        for path in sorted(self._folder.glob("*.jsonl")):
            if path not in self._files:
                if not path.is_file():
                    continue
                self._files[path] = open(path, "rb")  # noqa: SIM115 - followed as long as the run goes on
            data = self._files[path].read()
            if not data:
                continue
            self.size += len(data)
            data = self._rest.get(path, b"") + data
            whole = data.rfind(b"\n") + 1
            self._rest[path] = data[whole:]
            for text in data[:whole].splitlines():
                try:
                    yield parse(text)
                except ValueError:
                    continue  # `read` names it when the run is judged

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
