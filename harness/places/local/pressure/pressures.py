"""Pressure that a run puts on this machine, and what its nodes meet of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from diloco_chaos.harness.base.machine import memory_and_left
from diloco_chaos.harness.base.processes import family, identity, longest_wait, major_faults, run_delays
from diloco_chaos.harness.places.base import NodeSpec
from diloco_chaos.harness.places.local.pressure.limits import why_not_disk, why_not_memory, why_not_workers
from diloco_chaos.harness.places.local.process import LocalProcess
from diloco_chaos.harness.places.local.spawning import spawned
from diloco_chaos.harness.places.local.undos import EndPressure
from diloco_chaos.harness.places.nodes.nodes import Nodes, log_of
from diloco_chaos.harness.places.pressure import Felt, Load, Met
from diloco_chaos.harness.record.undo_log import OpenUndos, UndoLog

_EVERY_S, _LOOKS = 1.0, 6
_ENDS_S = 1.0
_WORKER = "diloco_chaos.harness.places.local.pressure.worker"


class _Look(NamedTuple):
    at: float
    delays: Mapping[int, float]
    faults: int


class _Pressing(NamedTuple):
    popen: subprocess.Popen[bytes]
    began: Mapping[str, _Look]
    before: Mapping[str, Met]


class Pressures:
    """Implements `diloco_chaos.harness.places.capabilities.Pressure`."""

    def __init__(self, run: Path, nodes: Nodes[LocalProcess], undo_log: UndoLog) -> None:
        """`run`: the run's folder, on whose disk files are written."""
        self._run, self._nodes, self._token = run, nodes, undo_log.token
        self._undos = OpenUndos(undo_log)
        self._pressing: dict[str, _Pressing] = {}
        self._felt: dict[tuple[str, str], Felt] = {}
        self._looks: dict[str, deque[_Look]] = {}
        self._look_at = 0.0

    def begin(self, nodes: Sequence[NodeSpec]) -> None:
        """Look from now on at these nodes that pressure is meant for: what comes before it is measured, too."""
        self._looks |= {spec.name: deque(maxlen=_LOOKS) for spec in nodes if spec.pressed}

    def poll(self) -> None:
        """Look at them, once a second."""
        if self._looks and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _EVERY_S
            for node, looks in self._looks.items():
                looks.append(self._look(node))

    def press_on(self, fault: str, load: Load, nodes: Sequence[str]) -> str:
        """Start what makes the pressure, with its end written down before it begins."""
        processors = set[int]().union(*(self._processors(node) for node in nodes)) or os.sched_getaffinity(0)
        size = load.size or int(load.share * memory_and_left()[1])
        workers = load.workers or (len(processors) if load.resource == "cpu" else 1)
        why = (why_not_workers(workers, len(processors)) if load.resource == "cpu" else
               why_not_memory(size) if load.resource == "memory" else why_not_disk(self._run, size))
        if why:
            return why
        now = {node: self._look(node) for node in nodes}
        before = {node: _between(self._looks[node][0], now[node]) if self._looks.get(node) else Met(0.0, 0.0, 0)
                  for node in nodes}
        reads, writes = os.pipe()
        argv = [sys.executable, "-m", _WORKER, "--parent", str(os.getpid()), "--begin", str(reads), "--resource",
                load.resource, "--workers", str(workers), "--nice", str(load.nice), "--size", str(size), "--folder",
                str(self._run), "--processors", ",".join(map(str, sorted(processors)))]
        try:
            popen = spawned(self._run, self._token, argv, _name(fault), 0, {}, pass_fds=[reads])
            self._undos.record(fault, EndPressure, process=identity(popen.pid) or (popen.pid, 0))
            self._pressing[fault] = _Pressing(popen, now, before)
            os.write(writes, b".")
        finally:
            os.close(reads)
            os.close(writes)
        return ""

    def lift(self, fault: str) -> None:
        """Keep what nodes met of it, and end it."""
        if (pressing := self._pressing.pop(fault, None)) is None:
            return
        lines = log_of(self._run, _name(fault), 0).read_text(errors="replace").splitlines()
        why = next((line for line in lines if line.startswith("failed: ")), "").removeprefix("failed: ")
        if pressing.popen.poll() is not None:
            why = why or f"what makes it ended: {(lines or ['it said nothing'])[-1]}"
        did = next((line for line in lines if line.startswith("held ")), "")
        for node, began in pressing.began.items():
            self._felt[fault, node] = Felt(did, why, _between(began, self._look(node)), pressing.before[node])
        _end(pressing.popen)
        self._undos.complete(fault)

    def felt(self, fault: str, node: str) -> Felt | None:
        """Return what a node met of it."""
        return self._felt.get((fault, node))

    def residue(self) -> list[str]:
        """Return what still presses, in words."""
        return [f"pid {each.popen.pid} still presses, by {fault}" for fault, each in self._pressing.items()]

    def end(self) -> None:
        """The run is over."""
        for fault in list(self._pressing):
            self.lift(fault)

    def _pids(self, node: str) -> list[int]:
        return family(self._nodes[node].process.pid) if node in self._nodes else []

    def _look(self, node: str) -> _Look:
        pids = self._pids(node)
        return _Look(time.monotonic(), run_delays(pids), sum(map(major_faults, pids)))

    def _processors(self, node: str) -> set[int]:
        """Return those that a node's processes may run on."""
        processors: set[int] = set()
        for pid in self._pids(node):
            with suppress(OSError):
                processors |= os.sched_getaffinity(pid)
        return processors


def _name(fault: str) -> str:
    return f"pressure-{fault}"


def _between(then: _Look, now: _Look) -> Met:
    return Met(now.at - then.at, longest_wait(then.delays, now.delays) or 0.0, max(0, now.faults - then.faults))


def _end(popen: subprocess.Popen[bytes]) -> None:
    """Ask all of its group to end, so that it has waited for its workers; else kill them."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(popen.pid, number)
        with suppress(subprocess.TimeoutExpired):
            popen.wait(_ENDS_S)
            if number == signal.SIGTERM:
                return
    popen.wait()
