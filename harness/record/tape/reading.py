"""A tape that is read: whole when a run is judged, or line by line while it grows."""

from __future__ import annotations

import io
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import merge
from itertools import chain
from operator import attrgetter, itemgetter
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast, overload

from diloco_chaos.harness.base.errors import printable
from diloco_chaos.harness.base.gc_paused import gc_paused
from diloco_chaos.harness.base.tensors import np
from diloco_chaos.harness.record.tape.events import Event, Merge, OuterGradient, Received, Spawn, Step, Upload
from diloco_chaos.harness.record.tape.line import parse, parse_all
from diloco_chaos.harness.record.tape.parts import PartTable
from diloco_chaos.harness.record.tape.series import Builder, Series

if TYPE_CHECKING:  # see harness/base/tensors.py
    from numpy.typing import NDArray

E = TypeVar("E", bound=Event)
E2 = TypeVar("E2", bound=Event)
E3 = TypeVar("E3", bound=Event)
Process = tuple[str, int]
"""A node, and the incarnation of its process."""
_LONGEST_LINE = 1 << 20
"""Bytes; a merge from 16 learners has 4,000."""
_BLOCK = 1 << 20
"""Bytes that are read and understood at once."""
_MANY: tuple[type[Event], ...] = (Step, Received, OuterGradient, Upload)
"""Kinds of which a long run has so many that they are kept in columns."""
_FEW = -1
_NUMBERS: Mapping[type[Event], int] = defaultdict(lambda: _FEW, {kind: number for number, kind in enumerate(_MANY)})
_NODE, _INC, _T = attrgetter("node"), attrgetter("inc"), attrgetter("t")
_Key = tuple[float, int, int]
"""When an event was, the number of its file, and its place in it: the order of a tape."""


class Tape:
    """All events of a run in the order of time, and what could not be read."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        """`events`: of a run that was not read from files."""
        self.torn: dict[Process, str] = {}
        """Process -> where and why reading its file stopped."""
        self.unread: set[Process] = set()
        """Of these, the files that go on after that line: more than a last line is missing."""
        given = list(events)
        self._keys: list[_Key] = sorted((event.t, 0, place) for place, event in enumerate(given))
        self._events = [given[place] for _, _, place in self._keys]
        self._series: dict[type[Event], dict[Process, tuple[int, Series[Any]]]] = {}

    @classmethod
    def read(cls, folder: Path) -> Tape:
        """Read every file of a tape's folder, each up to the first line that is not whole."""
        tape, reader = cls(), _Reader()
        with gc_paused():
            for number, path in enumerate(sorted(folder.glob("*.jsonl"))):
                if path.is_file():
                    reader.read(path, number, tape)
                    reader.compact()
            reader.done(tape)
        return tape

    @cached_property
    def events(self) -> Sequence[Event]:
        """Return all events; of a long run only a few are asked for in this way."""
        return self._merged(self._positions, list(self._series))

    @cached_property
    def end(self) -> float:
        """Return when the last event was, in seconds; 0 where there is none."""
        return max(self.ends.values(), default=0.0)

    def __len__(self) -> int:
        return len(self._events) + sum(len(series) for of in self._series.values() for _, series in of.values())

    @cached_property
    def _positions(self) -> range:
        return range(len(self._events))

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        """The places of each event name among the events that are kept whole."""
        places: dict[str, list[int]] = {}
        for place, event in enumerate(self._events):
            places.setdefault(event.event, []).append(place)
        return places

    @overload
    def of(self, kind: type[E], /, *, node: str | None = None) -> list[E]: ...
    @overload
    def of(self, kind: type[E], other: type[E2], /, *, node: str | None = None) -> list[E | E2]: ...
    @overload
    def of(self, kind: type[E], other: type[E2], third: type[E3], /, *, node: str | None = None,
           ) -> list[E | E2 | E3]: ...
    @overload
    def of(self, *kinds: type[Event], node: str | None = None) -> list[Event]: ...
    def of(self, *kinds: type[Event], node: str | None = None) -> Sequence[Event]:
        """Return the events of these kinds, by time; of one node if `node` is given."""
        names = [kind.name() for kind in kinds]
        if len(names) == 1:
            places: Sequence[int] = self._places.get(names[0], ())
        else:
            places = sorted(place for name in dict.fromkeys(names) for place in self._places.get(name, ()))
        events = self._merged(places, [kind for kind in kinds if kind in self._series], node)
        return events if node is None else [event for event in events if event.node == node]

    def named(self, *names: str, node: str | None = None) -> list[Event]:
        """The events of these names, those that only a trainer knows included."""
        kinds = [kind for kind in self._series if kind.name() in names]
        places = sorted(place for name in dict.fromkeys(names) for place in self._places.get(name, ()))
        return [event for event in self._merged(places, kinds) if node in (None, event.node)]

    def _merged(self, places: Sequence[int], kinds: Sequence[type[Event]], node: str | None = None) -> list[Event]:
        if not kinds:
            return [self._events[place] for place in places]
        keyed: list[tuple[_Key, Event]] = [(self._keys[place], self._events[place]) for place in places]
        for kind in kinds:
            for process, (number, series) in self._series[kind].items():
                if node in (None, process[0]):
                    keyed += [((event.t, number, place), event)
                              for event, place in zip(series, series.places.tolist(), strict=True)]
        return [event for _, event in sorted(keyed, key=lambda item: item[0])]

    def series(self, kind: type[E]) -> Mapping[Process, Series[E]]:
        """Return the events of a kind by process; the processes are in the order of their first events."""
        if kind not in self._series:
            grouped: dict[Process, list[int]] = {}
            for place in self._places.get(kind.name(), ()):
                grouped.setdefault((self._events[place].node, self._events[place].inc), []).append(place)
            return {process: Series.of(cast("list[E]", [self._events[place] for place in places]),
                                       [self._keys[place][2] for place in places])
                    for process, places in grouped.items()}
        of_kind = self._series[kind]
        first = sorted(of_kind, key=lambda process: (of_kind[process][1].t[0], of_kind[process][0]))
        return {process: of_kind[process][1] for process in first}

    def has(self, kind: type[Event]) -> bool:
        """Return whether there is an event of this kind."""
        return kind.name() in self._places or any(len(series) for _, series in self._series.get(kind, {}).values())

    def by_process(self, *kinds: type[Event]) -> Mapping[Process, Iterator[Event]]:
        """The events of these kinds from each process, in the order of time; each is made when it is asked for."""
        few: dict[Process, list[tuple[_Key, Event]]] = {}
        for place in sorted(place for kind in kinds for place in self._places.get(kind.name(), ())):
            event = self._events[place]
            few.setdefault((event.node, event.inc), []).append((self._keys[place], event))
        streams: dict[Process, list[Iterator[tuple[_Key, Event]]]] = {
            process: [iter(events)] for process, events in few.items()}
        begins = {process: events[0][0] for process, events in few.items()}
        for kind in kinds:
            for process, (number, series) in self._series.get(kind, {}).items():
                streams.setdefault(process, []).append(_keyed(series, number))
                first = (float(series.t[0]), number, int(series.places[0]))
                begins[process] = min(first, begins.get(process, first))
        return {process: (event for _, event in merge(*streams[process], key=itemgetter(0)))
                for process in sorted(streams, key=begins.__getitem__)}

    @property
    def names(self) -> Iterable[str]:
        """Return the names of the events that there are."""
        return [*self._places, *(kind.name() for kind in self._series)]

    def newest(self, node: str, at: float) -> int:
        """The newest incarnation of a node that had been started by then."""
        return max((spawn.incarnation for spawn in self.of(Spawn, node="harness")
                    if spawn.target == node and spawn.t <= at), default=0)

    def moments(self, process: Process) -> list[float]:
        """Return when this process wrote anything, in order, in seconds."""
        few = [event.t for event in self._events if (event.node, event.inc) == process]
        return sorted(chain(few, *(of[process][1].plain("t") for of in self._series.values() if process in of)))

    @cached_property
    def ends(self) -> dict[Process, float]:
        """Return when each process wrote for the last time, in seconds."""
        latest = {(event.node, event.inc): event.t for event in self._events}
        for of in self._series.values():
            for process, (_, series) in of.items():
                latest[process] = max(latest.get(process, -_Reader.NEVER), float(series.t[-1]))
        return latest


class _Reader:
    """Reads the files of a tape into one."""

    NEVER = float("inf")

    def __init__(self) -> None:
        self._keys: list[_Key] = []
        self._events: list[Event] = []
        self._builders: dict[type[Event], dict[Process, tuple[int, Builder[Any]]]] = {kind: {} for kind in _MANY}
        self._parts = PartTable()

    def read(self, path: Path, number: int, tape: Tape) -> None:
        """A file, up to the first line that is not whole. `number`: among those of the tape."""
        node, _, inc = path.stem.rpartition(".")
        process = printable(node), int(inc) if inc.isdecimal() else 0
        lines = size = 0
        with open(path, "rb") as file:
            for block in _blocks(file):
                events, understood, why = _understood(block)
                self._take(events, number, lines)
                lines, size = lines + len(events), size + understood
                if why:
                    tape.torn[process] = printable(f"{path.name}, line {lines + 1}: {why}")
                    if size < os.fstat(file.fileno()).st_size:
                        tape.unread.add(process)
                    return

    def _take(self, events: Sequence[Event], number: int, first: int) -> None:
        kinds = np.fromiter(map(_NUMBERS.__getitem__, map(type, events)), np.int8, len(events))
        alone = len(set(map(_NODE, events))) == len(set(map(_INC, events))) == 1
        rest = np.flatnonzero(kinds == _FEW).tolist()
        few = [events[place] for place in rest]
        self._keys += [(event.t, number, first + place) for event, place in zip(few, rest, strict=True)]
        _share(few)
        self._parts.take_over(event for event in few if isinstance(event, Merge))
        self._events += few
        for kind in set(kinds.tolist()) - {_FEW}:
            places = np.flatnonzero(kinds == kind)
            of_kind = [events[place] for place in places.tolist()]
            for process, (mine, of) in _by_process(of_kind, places + first, alone):
                builders = self._builders[_MANY[kind]]
                if process not in builders:
                    builders[process] = number, Builder(_MANY[kind], *process)
                builders[process][1].add(mine, of)

    def compact(self) -> None:
        """A file is read."""
        for builders in self._builders.values():
            for _, builder in builders.values():
                builder.compact()

    def done(self, tape: Tape) -> None:
        """Everything is read."""
        self._parts.done()
        order = sorted(range(len(self._keys)), key=self._keys.__getitem__)
        tape._keys = [self._keys[place] for place in order]
        tape._events = [self._events[place] for place in order]
        for kind, of in self._builders.items():
            tape._series[kind] = {process: (number, builder.done()) for process, (number, builder) in of.items()}


def _keyed(series: Series[Any], number: int) -> Iterator[tuple[_Key, Event]]:
    return (((event.t, number, place), event) for event, place in zip(series, series.places, strict=True))


def _share(events: Iterable[Event]) -> None:
    """Keep equal names, and equal lists of them, once: each line brings its own."""
    lists: dict[tuple[str, ...], list[str]] = {}
    for event in events:
        event.node = intern(event.node)
        if isinstance(event, Merge):
            event.why = intern(event.why)
            event.asked, event.declined = (lists.setdefault(tuple(each), list(map(intern, each)))
                                           for each in (event.asked, event.declined))
            for part in event.contributions:
                part.learner = intern(part.learner)


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield what a file holds, many whole lines at a time; the last one may lack its end, or be too long."""
    rest = b""
    while data := file.read(_BLOCK):
        data = rest + data
        cut = data.rfind(b"\n") + 1
        if cut or len(data) > _LONGEST_LINE:
            yield data[:cut] or data
        rest = data[cut:] if cut else b"" if len(data) > _LONGEST_LINE else data
    if rest:
        yield rest


def _understood(block: bytes) -> tuple[Sequence[Event], int, str]:
    """Return the events up to the first line that is not whole; the number of bytes up to there, that line included;
    and what is wrong with that line, empty where all are whole."""
    if block.endswith(b"\n"):
        try:
            events = parse_all(block)
            if _all_whole(events):
                return events, len(block), ""
        except ValueError:  # which line it is, and what is wrong with it, is found one by one
            pass
    parsed: list[Event] = []
    size = 0
    for text in io.BytesIO(block):
        size += len(text)
        try:
            if len(text) > _LONGEST_LINE:
                raise ValueError("the line is too long")
            if not text.endswith(b"\n"):
                raise ValueError("the line has no end")
            parsed.append(parse(text))
        except ValueError as error:
            return parsed, size, str(error)
    return parsed, size, ""


def _all_whole(events: Sequence[Event]) -> bool:
    """Return whether each event says when it was and whose it is."""
    return (all(set(map(_NODE, events))) and min(map(_INC, events)) >= 0
            and not np.isnan(np.fromiter(map(_T, events), float, len(events))).any())


def _by_process(events: Sequence[Event], places: NDArray[np.int64], alone: bool,
                ) -> Iterator[tuple[Process, tuple[Sequence[Event], NDArray[np.int64]]]]:
    """The events of each process, with their places; `alone`: one process wrote all of them, as is usual in a file."""
    if alone:
        yield (events[0].node, events[0].inc), (events, places)
        return
    mine: dict[Process, list[int]] = {}
    for place, event in enumerate(events):
        mine.setdefault((event.node, event.inc), []).append(place)
    for process, of in mine.items():
        yield process, ([events[place] for place in of], places[of])


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
