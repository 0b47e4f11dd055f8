"""A tape that is read: whole when a run is judged, or line by line while it grows."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from diloco_chaos.harness.base.errors import all_printable, printable
from diloco_chaos.harness.base.gc_paused import gc_paused
from diloco_chaos.harness.record.tape.event import Event, Parts, parse, parsed, whole
from diloco_chaos.harness.record.tape.packed import PackedEvents, Packing

_LONGEST_LINE = 1 << 20
"""Bytes; a merge from 16 learners has 4,000."""
_BACKSLASH, _DELETE = b"\\\x7f"


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

    @property
    def names(self) -> Iterable[str]:
        """Of the events that there are."""
        return self._places

    def newest(self, node: str, at: float) -> int:
        """The newest incarnation of a node that had been started by then."""
        return max((spawn["incarnation"] for spawn in self.of("spawn", node="harness")
                    if spawn["target"] == node and spawn.t <= at), default=0)

    @cached_property
    def ends(self) -> dict[tuple[str, int], float]:
        """When each (node, incarnation) wrote for the last time, in seconds."""
        if isinstance(self.events, PackedEvents):
            return {process: events[-1].t for process, events in self.events.by_process().items()}
        return {(event.node, event.incarnation): event.t for event in self.events}


def read(folder: Path) -> Tape:
    """Read every file of a tape; each file up to the first line that is not whole. What a terminal would obey, or not
    show, is replaced by what it is: the folder may come from anybody."""
    tape, packing = Tape(), Packing(whole)
    with gc_paused():
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
                parts = parsed(text)
                plain = text.isascii() and _BACKSLASH not in text and _DELETE not in text  # JSON has the rest escaped
                packing.add(*(parts if plain else _shown(parts)))
            except ValueError as error:
                tape.torn[place] = printable(f"{path.name}, line {number}: {error}")
                if file.read(1):
                    tape.unread.add(place)
                break


def _shown(parts: Parts) -> Parts:
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
