"""Looks for what faults wait for and no event tells of: a line of a node's log, a file that appears or grows.

It looks once a tick of the run (`runtime.TICK_S`), from the steady state on. What it sees is on the harness' tape
before the same tick acts on events, so a fault comes within a tick of the line. A look that takes long is made less
often: it takes a tenth of the time at most.
"""

from __future__ import annotations

import glob
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR
from typing import NamedTuple, Protocol

from diloco_chaos.chaos.scenario.plan import PlannedFault
from diloco_chaos.faults import When
from diloco_chaos.harness.base.units import show_bytes
from diloco_chaos.harness.record.storage.files import last_lines
from diloco_chaos.harness.record.tape.events import Event, Sighted, Spawn, Steady, Unsighted
from diloco_chaos.harness.trainers.core.files import Followed, Identity, present
from diloco_chaos.harness.trainers.core.programs import LOG, Program, filled

_SHOWN = 200
_NEAREST = 3
_SLOW_S = 0.001
_RESTS = 9
"""A look that is slow is followed by a rest that is so many times as long."""


class FileState(NamedTuple):
    """A file as it was at a look."""

    inode: int
    size: int
    folder: bool = False


class Growth:
    """Counts files that appear, are replaced, or grow, from one look to the next."""

    def __init__(self, before: dict[str, FileState], grows: int | None) -> None:
        """`before`: path -> what was there. `grows`: bytes by which a file has to grow; None: it counts as it
        appears."""
        self._last, self._grows = before, grows
        self._from = {path: state.size for path, state in before.items()}
        self._counted: set[str] = set()

    def seen(self, now: dict[str, FileState]) -> list[tuple[str, int]]:
        """Return (path, size) of those that count since the last look."""
        found = []
        for path, state in now.items():
            before = self._last.get(path)
            if before is None or before.inode != state.inode or state.size < before.size:
                self._from[path] = 0
                self._counted.discard(path)
                new = before is None or before.inode != state.inode
            else:
                new = False
            grown = self._grows is not None and not state.folder and state.size - self._from[path] >= self._grows
            if (new if self._grows is None else grown and path not in self._counted):
                self._counted.add(path)
                found.append((path, state.size))
        self._last = now
        return found


class _Sight(Protocol):
    """What one fault waits for."""

    def look(self) -> Iterable[str]:
        """Return what was seen since the last time, each in words."""
        ...

    def nearest(self) -> tuple[str, list[str]]:
        """Return where was looked, and what there comes near to what is waited for."""
        ...

    def close(self) -> None:
        """Nobody waits for it any more."""
        ...


class _Files:
    """The files of a pattern."""

    def __init__(self, run: Path, pattern: str, grows: int | None) -> None:
        self._run, self._pattern = run, pattern
        self._growth = Growth(self._states(), grows)

    def look(self) -> Iterator[str]:
        """See `_Sight`."""
        for path, size in self._growth.seen(self._states()):
            yield f"{path}, {show_bytes(size)}"

    def nearest(self) -> tuple[str, list[str]]:
        """See `_Sight`."""
        parent, _, _ = self._pattern.rpartition("/")
        there = sorted(glob.glob(f"{parent}/*" if parent else "*", root_dir=self._run))
        return self._pattern, there[-_NEAREST:]

    def close(self) -> None:
        """See `_Sight`."""

    def _states(self) -> dict[str, FileState]:
        states = {}
        for path in glob.glob(self._pattern, root_dir=self._run, recursive=True):
            with suppress(OSError):  # it is gone again
                found = (self._run / path).lstat()
                states[path] = FileState(found.st_ino, found.st_size, S_ISDIR(found.st_mode))
        return states


class _Lines:
    """Lines that match, of files that may come later."""

    def __init__(self, run: Path, expression: str, where: str, paths: Callable[[], Sequence[str]], *,
                 many: bool = False) -> None:
        """`where`: the files, in words. `paths`: theirs, in the run's folder. `many`: they are patterns."""
        self._run, self._where, self._paths, self._many = run, where, paths, many
        self._expression, self._pattern = expression, re.compile(expression)
        self._before = {identity: size for identity, _, size in self._present()}
        self._followed: dict[str, Followed[None]] = {}

    def look(self) -> Iterator[str]:
        """See `_Sight`."""
        for path in map(self._whole, self._paths()):
            if path not in self._followed:
                self._followed[path] = Followed(path, lambda: None, self._before, many=self._many)
        for file in self._followed.values():
            for _, lines in file.look(0.0):
                yield from (line.text for line in lines if self._pattern.search(line.text))

    def nearest(self) -> tuple[str, list[str]]:
        """See `_Sight`."""
        lines = [line for _, path, _ in self._present() for line in last_lines(Path(path))]
        return self._where, nearest_lines(self._expression, lines)

    def close(self) -> None:
        """See `_Sight`."""
        for file in self._followed.values():
            file.close()

    def _present(self) -> Iterator[tuple[Identity, str, int]]:
        for path in map(self._whole, self._paths()):
            yield from present(path, self._many)

    def _whole(self, path: str) -> str:
        return f"{glob.escape(str(self._run)) if self._many else self._run}/{path}"


def nearest_lines(expression: str, lines: Sequence[str]) -> list[str]:
    """Return the lines that share the most words with an expression, one of each kind, the best first; where none
    shares any, the last one."""
    wanted = set(_words(re.sub(r"\(\?P<\w+>|\\[A-Za-z]", " ", expression)))
    kinds = {re.sub(r"\d+", "0", line): line.strip() for line in lines if line.strip()}
    shared = {line: len(wanted & set(_words(line))) for line in kinds.values()}
    best = sorted((line for line, count in shared.items() if count), key=lambda line: -shared[line])[:_NEAREST]
    return [line[:_SHOWN] for line in best or list(kinds.values())[-1:]]


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]{2,}", text.lower())


class Sightings:
    """See the module."""

    def __init__(self, run: Path, programs: Mapping[str, Program], record: Callable[[Event], None],
                 clock: Callable[[], float] = time.monotonic) -> None:
        """`run`: the run's folder. `programs`: node -> its command. `record`: writes to the harness' tape."""
        self._run, self._programs, self._record, self._clock = run, programs, record, clock
        self._waiting: dict[str, When] = {}
        self._sights: dict[str, _Sight] = {}
        self._counts: dict[str, int] = {}
        self._rests: dict[str, float] = {}  # fault -> until when
        self._newest: dict[str, int] = {}
        self._steady = False

    def add(self, faults: Iterable[PlannedFault]) -> None:
        """These wait for something, from the steady state on, or from now on."""
        self._waiting |= {planned.id: when for planned in faults
                          if (when := planned.fault.when) is not None and when.sights}
        if self._steady:
            self._begin()

    def on_event(self, event: Event) -> None:
        """An event came up on the tape."""
        if isinstance(event, Spawn):
            self._newest[event.target] = event.incarnation
        elif isinstance(event, Steady) and not self._steady:
            self._steady = True
            self._begin()

    def look(self) -> None:
        """Record what faults wait for, each once: when it was there as often as it has to be."""
        for fault, sight in list(self._sights.items()):
            began = self._clock()
            if began >= self._rests.get(fault, 0.0):
                self._look(fault, sight)
                took = self._clock() - began
                self._rests[fault] = began + took * (1 + _RESTS) if took > _SLOW_S else 0.0

    def close(self) -> None:
        """The run is over: record what did not come, with what comes near to it."""
        for fault, sight in self._sights.items():
            where, nearest = sight.nearest()
            self._record(Unsighted(fault=fault, count=self._counts[fault], nearest=nearest, looked_in=where))
            sight.close()
        self._sights.clear()

    def _look(self, fault: str, sight: _Sight) -> None:
        when = self._waiting[fault]
        for seen in sight.look():
            self._counts[fault] += 1
            if self._counts[fault] == when.count:
                self._record(Sighted(fault=fault, target=when.node, count=when.count, seen=seen[:_SHOWN]))
                self._sights.pop(fault).close()
                return

    def _begin(self) -> None:
        for fault, when in self._waiting.items():
            if fault not in self._counts:
                self._counts[fault], self._sights[fault] = 0, self._sight(when)

    def _sight(self, when: When) -> _Sight:
        pattern = self._pattern(when) if when.file else ""
        if when.log is None:
            return _Files(self._run, pattern, when.grows)
        if pattern:
            return _Lines(self._run, when.log, pattern, lambda: [pattern], many=True)
        return _Lines(self._run, when.log, f"the log of {when.node}", lambda: self._logs(when.node))

    def _pattern(self, when: When) -> str:
        """Return the pattern as it begins in the run's folder."""
        program = self._programs[when.node]
        own = program.own("", when.node)
        pattern = when.file or ""
        pattern = pattern if pattern.startswith("{run}/") else f"{program.state}/{pattern}"
        return filled(pattern, own, {}).lstrip("/")

    def _logs(self, node: str) -> list[str]:
        own = {"run": "", "name": node}
        return [filled(LOG, own | {"incarnation": str(number)}, {}).lstrip("/")
                for number in range(self._newest.get(node, -1) + 1)]
