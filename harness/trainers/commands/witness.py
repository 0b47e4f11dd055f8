"""Writes the event log of nodes that write none: it reads their logs, or files of theirs, while the run goes on."""

from __future__ import annotations

import glob
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from diloco_chaos.harness.base.units import expression, shortened
from diloco_chaos.harness.record.storage.files import last_lines
from diloco_chaos.harness.record.tape.events import (
    Event,
    Exit,
    Failed,
    Failpoint,
    FailpointPassed,
    Noticed,
    Prepared,
    Spawn,
    StaleRound,
    Start,
    Steady,
    Warning,
)
from diloco_chaos.harness.record.tape.line import line
from diloco_chaos.harness.trainers.commands.last_words import last_words
from diloco_chaos.harness.trainers.commands.numbering import Numbering, begun_again
from diloco_chaos.harness.trainers.commands.progress import (
    LONGEST,
    NOTHING,
    Hold,
    Holds,
    Problem,
    Reader,
    Readings,
    Source,
)
from diloco_chaos.harness.trainers.commands.rounds import Rounds
from diloco_chaos.harness.trainers.commands.settings import CommandSettings
from diloco_chaos.harness.trainers.commands.timing import Bursts, Stamps
from diloco_chaos.harness.trainers.core.files import Followed, present
from diloco_chaos.harness.trainers.core.log_lines import Line
from diloco_chaos.harness.trainers.core.programs import LOG, PROGRESS, STEADY, WRITTEN, filled
from diloco_chaos.harness.trainers.core.round_reports import RoundReport

_READINGS = 5
_MOST_STALE = 20
_MOST_NOTICES, _WIDEST = 100, 300
_MOST_WARNINGS = 20
"""Of a node: of what comes after them one line of its log more or less tells nothing new."""


class _Reader:
    """What is kept of a file that is read."""

    def __init__(self, readers: list[Reader], wall: float) -> None:
        self.readings, self.stamps, self.bursts = Readings(readers), Stamps(wall), Bursts()
        self.rounds = 0
        """In this look."""
        self.last: int | None = None
        """The round that was told last."""


def wall_ahead() -> float:
    """Return by how many seconds the clock on the wall is ahead of CLOCK_MONOTONIC: of some readings the one in which
    least time passed between the two, for a busy machine may do other things there."""
    readings = [(time.monotonic(), time.time(), time.monotonic()) for _ in range(_READINGS)]
    before, wall, after = min(readings, key=lambda reading: reading[2] - reading[0])
    return wall - (before + after) / 2



class LogWitness:
    """Implements `diloco_chaos.harness.trainers.api.trainer.Witness`."""

    def __init__(self, settings: CommandSettings, run: Path, epoch: float) -> None:
        """`epoch`: the run's beginning on CLOCK_MONOTONIC, in seconds."""
        self._run, self._epoch = run, epoch
        self._wall = wall_ahead() + epoch  # what the clock on the wall said then
        self._workers = set(settings.names)
        self._programs = settings.programs
        self._sources = [Source(frozenset(settings.names), WRITTEN, Holds()), *settings.sources()]
        said: dict[type[Noticed | Prepared], str | None] = {Noticed: settings.noticed, Prepared: settings.ready}
        self._said = {kind: expression(pattern) for kind, pattern in said.items() if pattern is not None}
        if self._said:  # also by nodes, or in files, that tell of no round
            self._sources.append(Source(frozenset(settings.all_nodes), LOG, Holds()))
        self._followed_nodes = frozenset(settings.all_nodes) if self._said else self._workers
        self._notices: Counter[tuple[type[Event], str, int]] = Counter()
        self._rounds = Rounds(settings.starters, shared=settings.shared, target=settings.target)
        self._shared = settings.shared
        self._reports: dict[tuple[str, int, str | None], deque[tuple[RoundReport, float]]] = {}
        """Process and rank -> what is not counted yet."""
        together = Numbering()
        self._numbering = {node: together if settings.shared else Numbering() for node in self._workers}
        self._followed: dict[tuple[str, int], list[Followed[_Reader]]] = {}
        self._running: set[tuple[str, int]] = set()  # of whose files more may come
        self._since: dict[tuple[str, int], float] = {}  # when a process began, or told of something last
        self._before = {identity: size for node in self._workers for source in self._of(node)
                        for identity, _, size in present(*self._path(source, node, 0))}
        self._out: dict[tuple[str, int], Any] = {}
        self._warned: dict[str, set[str]] = {}  # node -> kinds of problems
        self._heard: set[tuple[str, int]] = set()  # processes that have reported a round
        self._stale: Counter[tuple[str, int]] = Counter()  # rounds of those whose successor had reported one

    def on_event(self, event: Event, t: float) -> None:
        """The harness recorded something; what follows from it is recorded at `t`, which is later."""
        if isinstance(event, Spawn):
            node, incarnation = event.process
            role = "learner" if node in self._workers else "service"
            self._write([Start(role=role).stamped(t, node, incarnation)])
            if node in self._followed_nodes:
                self._since[event.process] = event.t
                for before in [process for process in self._running if process[0] == node]:
                    self._read(*before, t)  # what it told before it had a successor
                self._write(self._counted())
                self._follow(node, incarnation)
            if node in self._workers:
                self._write(self._rounds.on_start(node, incarnation, t))
        elif isinstance(event, Exit) and event.target in self._followed_nodes:
            self._read_to_the_end(event.process, t)
            self._write(self._counted())
            if event.target in self._workers:
                self._write(self._rounds.on_end(*event.process, t, again=bool(event.again)))
        self._flush()

    def look(self, t: float, ended: Exit | None = None) -> None:
        """Read what was told since, and write what it means; of a process that ended, to the end of what it wrote."""
        if ended is not None:
            self._read_to_the_end(ended.process, t)
            if ended.status and not ended.killed and (why := last_words(self._log_of(*ended.process))):
                self._write([Failed(reason=why).stamped(t, *ended.process)])
        for node, incarnation in sorted(self._running):
            self._read(node, incarnation, t)
        self._write(self._counted())
        self._write(self._rounds.on_time(t))
        self._flush()

    def _log_of(self, node: str, incarnation: int) -> list[str]:
        own = {"run": str(self._run.absolute()), "name": node, "incarnation": str(incarnation)}
        return last_lines(Path(filled(LOG, own, {})))

    def _read_to_the_end(self, process: tuple[str, int], t: float) -> None:
        self._read(*process, t, to_the_end=True)
        self._running.discard(process)

    def close(self) -> None:
        """The run is over."""
        for files in self._followed.values():
            for file in files:
                file.close()
        for out in self._out.values():
            out.close()

    def _of(self, node: str) -> list[Source]:
        return [source for source in self._sources if node in source.nodes]

    def _path(self, source: Source, node: str, incarnation: int) -> tuple[str, bool]:
        """Return where a source is, and whether that may be many files."""
        own = self._programs[node].own(str(self._run.absolute()), node) | {"incarnation": str(incarnation)}
        if many := glob.has_magic(source.file):
            own = {name: glob.escape(value) for name, value in own.items()}
        return filled(source.file, own, {}), many

    def _follow(self, node: str, incarnation: int) -> None:
        """A file that its predecessors wrote, too, is read on from where it is, and what comes is the newest's."""
        before = {file.path: (process, file) for process, files in self._followed.items() if process[0] == node
                  for file in files}
        readers: dict[tuple[str, bool], list[Reader]] = {}
        for source in self._of(node):
            readers.setdefault(self._path(source, node, incarnation), []).append(source.reader)
        mine = self._followed[node, incarnation] = []
        for (path, many), known in readers.items():
            make = partial(_Reader, known, self._wall)
            if path in before:
                process, file = before[path]
                self._followed[process].remove(file)
                file.renew(make)
            else:
                file = Followed(path, make, self._before, many=many)
            mine.append(file)
        self._running.add((node, incarnation))

    def _read(self, node: str, incarnation: int, t: float, *, to_the_end: bool = False) -> None:
        for file in self._followed.get((node, incarnation), []):
            for reader, lines in file.look(t, to_the_end=to_the_end):
                for text in lines:
                    self._write(self._reported(node, incarnation, reader, text))
            for reader in file.states:
                problem = reader.bursts.look(reader.rounds, t, last=to_the_end)
                if problem is not None and not reader.stamps.exact:
                    self._write(self._problem(node, incarnation, problem, t))
                reader.rounds = 0

    def _reported(self, node: str, incarnation: int, reader: _Reader, text: Line) -> Iterator[Event]:
        """Yield the events of one line."""
        for words, pattern in self._said.items():
            if pattern.search(text.text[:LONGEST]):
                self._notices[words, node, incarnation] += 1
                if self._notices[words, node, incarnation] <= _MOST_NOTICES:
                    yield words(line=shortened(text.text.strip(), _WIDEST)).stamped(text.t, node, incarnation)
        told, problems = reader.readings.read(text.text) or NOTHING
        for problem in problems:
            yield from self._problem(node, incarnation, problem, text.t)
        if isinstance(told, Hold):
            kind = Failpoint if told.stops else FailpointPassed
            yield kind(point=told.point, count=told.count).stamped(text.t, node, incarnation)
        elif told is not None:
            reader.rounds += 1
            if again := begun_again(reader.last, told):
                yield from self._problem(node, incarnation, again, text.t)
            reader.last = told.round
            t = reader.stamps.moment(told.time, text.t, self._since.get((node, incarnation), 0.0))
            if reader.stamps.problem is not None:
                yield from self._problem(node, incarnation, reader.stamps.problem, text.t)
            self._since[node, incarnation] = t
            begins = incarnation > 0 and (node, incarnation) not in self._heard
            told = self._numbering[node].numbered(told, begins=begins)
            if any(other[0] == node and other[1] > incarnation for other in self._followed):
                yield from self._told_late(node, incarnation, told.round, t)
            else:
                self._heard.add((node, incarnation))
                self._reports.setdefault((node, incarnation, told.rank), deque()).append((told, t))

    def _counted(self) -> Iterator[Event]:
        """Yield the events of what was reported since: round by round where workers finish them together, as each told
        them in its order. Else who is read first would be rounds ahead of those who are read after it."""
        while self._reports:
            teller = min(self._reports, key=lambda teller: self._reports[teller][0][0].round if self._shared else 0)
            told, t = self._reports[teller].popleft()
            if not self._reports[teller]:
                del self._reports[teller]
            node, incarnation, _ = teller
            yield from self._rounds.on_report(node, incarnation, told, t)

    def _problem(self, node: str, incarnation: int, problem: Problem, t: float) -> Iterator[Event]:
        """Yield a warning for what a node's log has for the first time."""
        warned = self._warned.setdefault(node, set())
        if problem.kind not in warned and len(warned) < _MOST_WARNINGS:
            warned.add(problem.kind)
            yield Warning(problem.text, problem.kind, problem.change).stamped(t, node, incarnation)

    def _told_late(self, node: str, incarnation: int, number: int, t: float) -> Iterator[Event]:
        """Yield that a process tells of rounds beside its successor; they are no rounds of the run."""
        self._stale[node, incarnation] += any(
            other == node and newer > incarnation for other, newer in self._heard)
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

    def _flush(self) -> None:
        """What is written is there to be read."""
        for out in self._out.values():
            out.flush()
