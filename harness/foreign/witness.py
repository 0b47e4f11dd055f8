"""Writes the event log of nodes that write none: it reads their logs while the run goes on."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from harness.foreign.rounds import Rounds
from harness.foreign.settings import CommandSettings
from harness.tape.event import Event, line

_LONGEST_LINE = 1 << 16
_CLOCK_OFF_S = 5.0
"""A time that a log tells counts where it is so near to when the line was read; else the clock is another one."""


class LogWitness:
    """Implements `harness.trainer_api.trainer.Witness`."""

    def __init__(self, settings: CommandSettings, run: Path, epoch: float) -> None:
        """`epoch`: the run's beginning on CLOCK_MONOTONIC, in seconds."""
        self._logs, self._tape, self._epoch = run / "logs", run / "tape", epoch
        self._wall = time.time() - time.monotonic() + epoch  # what the clock on the wall said then
        self._workers = set(settings.names)
        self._expressions = settings.expressions()
        self._rounds = Rounds(settings.names, shared=settings.shared, target=settings.rounds)
        self._files: dict[tuple[str, int], tuple[BinaryIO, list[bytes]]] = {}
        self._restarts = {name: program.restart for name, program in settings.programs.items()}
        self._out: dict[tuple[str, int], Any] = {}
        self._told: set[tuple[str, int]] = set()

    def on_event(self, event: str, fields: dict[str, Any], t: float) -> None:
        """The harness recorded something."""
        if event == "spawn" and "target" in fields:
            node, incarnation = fields["target"], fields["incarnation"]
            role = "learner" if node in self._workers else "service"
            self._write([Event(t, node, incarnation, "start", {"role": role})])
            if node in self._workers:
                self._write(self._rounds.on_start(node, incarnation, t))
        elif event == "exit" and fields.get("target") in self._workers:
            node = fields["target"]
            self._read(node, fields["incarnation"], t, to_the_end=True)
            self._write(self._rounds.on_end(node, fields["incarnation"], t, again=bool(fields.get("again"))))

    def look(self, t: float) -> None:
        """Read what was logged since, and write what it means."""
        for path in sorted(self._logs.glob("*.log")):
            node, _, number = path.stem.rpartition(".")
            if node in self._workers and number.isdigit():
                self._read(node, int(number), t)
        self._write(self._rounds.on_time(t))

    def close(self) -> None:
        """The run is over."""
        for file, _ in self._files.values():
            file.close()
        for out in self._out.values():
            out.close()

    def _read(self, node: str, incarnation: int, t: float, to_the_end: bool = False) -> None:
        """New whole lines of a node's log; with the last one, though nothing ends it, where its process has ended."""
        key, path = (node, incarnation), self._logs / f"{node}.{incarnation}.log"
        if key not in self._files:
            if not path.is_file():
                return
            self._files[key] = open(path, "rb"), []  # noqa: SIM115 - followed as long as the run goes on
        file, rest = self._files[key]
        data = b"".join(rest) + file.read()
        whole = len(data) if to_the_end else data.rfind(b"\n") + 1
        rest[:] = [data[whole:]] if len(data) - whole < _LONGEST_LINE else []
        for text in data[:whole].splitlines():
            self._write(self._reported(node, incarnation, text.decode("utf-8", "replace"), t))

    def _reported(self, node: str, incarnation: int, text: str, t: float) -> Iterator[Event]:
        for expression in self._expressions:
            if node not in expression.nodes:
                continue
            read = expression.read(text[:_LONGEST_LINE])
            if isinstance(read, str):
                if (node, incarnation) not in self._told:  # once is enough
                    self._told.add((node, incarnation))
                    yield Event(t, node, incarnation, "warning", {"reason": read})
            elif read is not None:
                own = t if read.time is None else read.time - self._wall
                yield from self._rounds.on_report(node, incarnation, read, own if abs(own - t) < _CLOCK_OFF_S else t)
                return

    def _write(self, events: Iterable[Event]) -> None:
        for event in events:
            key = (event.node, event.incarnation)
            if key not in self._out:
                self._tape.mkdir(parents=True, exist_ok=True)
                self._out[key] = open(  # noqa: SIM115 - open as long as the run goes on
                    self._tape / f"{event.node}.{event.incarnation}.jsonl", "a", encoding="utf-8")
            self._out[key].write(line(event))
            self._out[key].flush()
