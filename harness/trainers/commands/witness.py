"""Writes the event log of nodes that write none: it reads their logs, or files of theirs, while the run goes on."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from diloco_chaos.harness.record.tape.events import (
    Event,
    Exit,
    Failpoint,
    FailpointPassed,
    Spawn,
    StaleRound,
    Start,
    Steady,
    Warning,
)
from diloco_chaos.harness.record.tape.line import line
from diloco_chaos.harness.trainers.commands.progress import Hold, Holds, Reader, Source
from diloco_chaos.harness.trainers.commands.rounds import Rounds
from diloco_chaos.harness.trainers.commands.settings import CommandSettings
from diloco_chaos.harness.trainers.core.programs import PROGRESS, STEADY, WRITTEN, filled

_LONGEST_LINE = 1 << 16
_CLOCK_OFF_S = 5.0
"""A time that a line tells counts where it is so near to when the line was read; else the clock is another one."""


_MOST_STALE = 20


class _Followed:
    """New whole lines of a file that may not be there yet, or is begun anew."""

    def __init__(self, path: Path, start: int = 0) -> None:
        """`start`: bytes of it that were there before."""
        self.path, self.readers = path, list[Reader]()
        self._place, self._rest = start, b""
        self._file: BinaryIO | None = None

    def lines(self, *, to_the_end: bool = False) -> list[bytes]:
        """Since the last time; with the last one, though nothing ends it, where nothing more will come."""
        if self._file is None:
            if not self.path.is_file():
                return []
            self._file = open(self.path, "rb")  # noqa: SIM115 - followed as long as the run goes on
        if os.fstat(self._file.fileno()).st_size < self._place:
            self._place, self._rest = 0, b""
        self._file.seek(self._place)
        data = self._rest + (new := self._file.read())
        self._place += len(new)
        whole = len(data) if to_the_end else data.rfind(b"\n") + 1
        self._rest = data[whole:] if len(data) - whole < _LONGEST_LINE else b""
        return data[:whole].splitlines()

    def close(self) -> None:
        """It is followed no more."""
        if self._file is not None:
            self._file.close()


class LogWitness:
    """Implements `diloco_chaos.harness.trainers.api.trainer.Witness`."""

    def __init__(self, settings: CommandSettings, run: Path, epoch: float) -> None:
        """`epoch`: the run's beginning on CLOCK_MONOTONIC, in seconds."""
        self._run, self._epoch = run, epoch
        self._wall = time.time() - time.monotonic() + epoch  # what the clock on the wall said then
        self._workers = set(settings.names)
        self._programs = settings.programs
        self._sources = [Source(frozenset(settings.names), WRITTEN, Holds()), *settings.sources()]
        self._rounds = Rounds(settings.names, shared=settings.shared, target=settings.rounds)
        self._followed: dict[tuple[str, int], list[_Followed]] = {}
        self._running: set[tuple[str, int]] = set()  # of whose files more may come
        self._before = {path: path.stat().st_size for node in self._workers for source in self._of(node)
                        if (path := self._path(source, node, 0)).is_file()}
        self._out: dict[tuple[str, int], Any] = {}
        self._warned: set[tuple[str, int]] = set()
        self._stale: Counter[tuple[str, int]] = Counter()  # rounds of those whose successor had been started

    def on_event(self, event: Event, t: float) -> None:
        """The harness recorded something; what follows from it is recorded at `t`, which is later."""
        if isinstance(event, Spawn):
            node, incarnation = event.process
            role = "learner" if node in self._workers else "service"
            self._write([Start(role=role).stamped(t, node, incarnation)])
            if node in self._workers:
                for before in [process for process in self._running if process[0] == node]:
                    self._read(*before, t)  # what it told before it had a successor
                self._follow(node, incarnation)
                self._write(self._rounds.on_start(node, incarnation, t))
        elif isinstance(event, Exit) and event.target in self._workers:
            self._read(*event.process, t, to_the_end=True)
            self._running.discard(event.process)
            self._write(self._rounds.on_end(*event.process, t, again=bool(event.again)))

    def look(self, t: float) -> None:
        """Read what was told since, and write what it means."""
        for node, incarnation in sorted(self._running):
            self._read(node, incarnation, t)
        self._write(self._rounds.on_time(t))

    def close(self) -> None:
        """The run is over."""
        for files in self._followed.values():
            for file in files:
                file.close()
        for out in self._out.values():
            out.close()

    def _of(self, node: str) -> list[Source]:
        return [source for source in self._sources if node in source.nodes]

    def _path(self, source: Source, node: str, incarnation: int) -> Path:
        own = self._programs[node].own(str(self._run.absolute()), node) | {"incarnation": str(incarnation)}
        return Path(filled(source.file, own, {}))

    def _follow(self, node: str, incarnation: int) -> None:
        """A file that its predecessors wrote, too, is read on from where it is, and what comes is the newest's."""
        before = {file.path: (process, file) for process, files in self._followed.items() if process[0] == node
                  for file in files}
        mine: dict[Path, _Followed] = {}
        for source in self._of(node):
            path = self._path(source, node, incarnation)
            if path not in mine and path in before:
                process, mine[path] = before[path]
                self._followed[process].remove(mine[path])
                mine[path].readers.clear()
            mine.setdefault(path, _Followed(path, self._before.get(path, 0))).readers.append(source.reader)
        self._followed[node, incarnation] = list(mine.values())
        self._running.add((node, incarnation))

    def _read(self, node: str, incarnation: int, t: float, *, to_the_end: bool = False) -> None:
        for file in self._followed.get((node, incarnation), []):
            for text in file.lines(to_the_end=to_the_end):
                self._write(self._reported(node, incarnation, file.readers, text.decode("utf-8", "replace"), t))

    def _reported(self, node: str, incarnation: int, readers: Iterable[Reader], text: str, t: float) -> Iterator[Event]:
        """Yield the events of one line, as the first reader that knows it reads it."""
        readings = (reader.read(text[:_LONGEST_LINE]) for reader in readers)
        read = next((reading for reading in readings if reading is not None), None)
        if isinstance(read, str):
            if (node, incarnation) not in self._warned:  # once is enough
                self._warned.add((node, incarnation))
                yield Warning(reason=read).stamped(t, node, incarnation)
        elif isinstance(read, Hold):
            kind = Failpoint if read.stops else FailpointPassed
            yield kind(point=read.point, count=read.count).stamped(t, node, incarnation)
        elif read is not None and any(other[0] == node and other[1] > incarnation for other in self._followed):
            yield from self._told_late(node, incarnation, read.round, t)
        elif read is not None:
            own = t if read.time is None else read.time - self._wall
            yield from self._rounds.on_report(node, incarnation, read, own if abs(own - t) < _CLOCK_OFF_S else t)

    def _told_late(self, node: str, incarnation: int, number: int, t: float) -> Iterator[Event]:
        """Yield that a process tells of rounds beside its successor; they are no rounds of the run."""
        self._stale[node, incarnation] += 1
        if self._stale[node, incarnation] <= _MOST_STALE:
            yield StaleRound(round=number).stamped(t, node, incarnation)

    def _write(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Steady):
                (self._run / PROGRESS / STEADY).touch()
            key = (event.node, event.inc)
            if key not in self._out:
                (self._run / "tape").mkdir(parents=True, exist_ok=True)
                self._out[key] = open(  # noqa: SIM115 - open as long as the run goes on
                    self._run / "tape" / f"{event.node}.{event.inc}.jsonl", "ab")
            self._out[key].write(line(event))
            self._out[key].flush()
