"""What an experiment is performed on: a clock, a tape, a cluster, and a prober that asks through its links."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from diloco_chaos.chaos.evidence.run_folder import RunFolder
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.faults import Fault, FaultContext, Observation
from diloco_chaos.harness.base.machine import MachineWatch
from diloco_chaos.harness.links.probe import Sounding
from diloco_chaos.harness.places.base import Recorder
from diloco_chaos.harness.places.capabilities import Watched
from diloco_chaos.harness.places.cluster import Cluster
from diloco_chaos.harness.places.site import Site
from diloco_chaos.harness.record.tape.events import Event, Exit, Machine
from diloco_chaos.harness.record.tape.reading import Tail
from diloco_chaos.harness.record.tape.writing import TapeWriter
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.trainers.node.settings import SETTINGS, NodeSettings
from diloco_chaos.harness.trainers.wire.impersonation import attack
from diloco_chaos.harness.trainers.wire.impostor import Impostor
from diloco_chaos.harness.trainers.wire.probe import probe

TICK_S = 0.01
_STACKS_S = 0.2
_THREADS = 8
MakeSite = Callable[[Path, Recorder, UndoLog], Site]


class Prober(Protocol):
    """Asks through links, beside everything else."""

    @property
    def spent(self) -> float:
        """Return the seconds that the measurement at hand takes up to here, where time does not pass by itself."""
        ...

    def ask(self, address: str, reply_bytes: int, send_bytes: int, watch_close: bool) -> Sounding:
        """See `diloco_chaos.harness.trainers.wire.probe.probe`."""
        ...

    def attack(self, rogue: Impostor, address: str, count: int, timeout_s: float) -> int:
        """See `diloco_chaos.harness.trainers.wire.impersonation.attack`."""
        ...

    def together(self, ask: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """`ask` about each, all at once."""
        ...

    def begin(self, measure: Callable[[], Any]) -> Future[Any]:
        """Measure beside everything else."""
        ...

    def observe(self, fault: Fault, hit: FaultContext) -> Future[Observation]:
        """Let a fault measure what it does."""
        ...

    @property
    def next_at(self) -> float:
        """Return when something that was begun is done, where that is known; else infinite."""
        ...

    def close(self) -> None:
        """Begin nothing more, and wait for what was begun."""
        ...


class Stage(Protocol):
    """One run's."""

    run: Path
    """Its folder."""
    epoch: float
    """Its beginning on CLOCK_MONOTONIC."""
    reads: tuple[Path, ...]
    """Files beyond the folder that nodes must be able to read."""
    cluster: Cluster
    undo_log: UndoLog
    prober: Prober

    def record(self, event: Event) -> None:
        """Write to the harness' own tape."""
        ...

    def now(self) -> float:
        """Seconds since the run began."""
        ...

    def events(self) -> Iterator[Event]:
        """Return the events that came onto the tape since the last call."""
        ...

    @property
    def size(self) -> int:
        """Bytes of the whole tape."""
        ...

    def sleep_until(self, until: float, wake_on: set[tuple[str, str]] | None) -> None:
        """Let time go on: a moment, or as long as nothing happens that is heeded ((node, event), None: anything), and
        at most until then."""
        ...

    def machines(self) -> list[Machine]:
        """Return what went on on the run's machines in the last second; empty where nothing is known, or nothing
        new."""
        ...

    def dump_stacks(self, nodes: Collection[str]) -> None:
        """Have the stacks of these nodes written, as far as that is possible where they are."""
        ...

    def undisturbed(self) -> AbstractContextManager[None]:
        """Don't let Ctrl-C hinder the end."""
        ...

    def close(self) -> None:
        """The tape ends here."""
        ...


MakeStage = Callable[[Plan, RunFolder, NodeSettings, UndoLog], Stage]


class LiveStage:
    """Real time, and a cluster that is somewhere else. Implements `Stage`."""

    def __init__(self, plan: Plan, folder: RunFolder, settings: NodeSettings, make: MakeSite,
                 undo_log: UndoLog) -> None:
        self.run, self.undo_log = folder.path, undo_log
        (self.run / SETTINGS).write_text(settings.model_dump_json(by_alias=True, indent=2))
        self.epoch = time.monotonic() - settings.elapsed
        self.reads = tuple(filter(None, (settings.data, settings.initial)))
        self._tape = TapeWriter(self.run / "tape", "harness", 0, self.epoch)
        self._tail = Tail(self.run / "tape")
        self._witness = plan.trainer.witness(self.run, self.epoch)
        self.cluster = Cluster(make(self.run, self.record, undo_log))
        self.prober: Prober = LiveProber(undo_log.token)
        self._watched = self.cluster.having(Watched)  # where nodes are elsewhere, their agents tell what they use
        self._watch = MachineWatch(self._pids, "" if self._watched else undo_log.token, self.run)

    def _pids(self) -> list[int]:
        return [state.pid for state in self.cluster.states().values() if state.pid]

    def record(self, event: Event) -> None:
        """Write the event to its file, and show it to the witness if there is one. What a process said comes before its
        end."""
        if self._witness is not None and isinstance(event, Exit):
            self._witness.look(self.now(), event)
        self._tape.record(event)
        if self._witness is not None:
            self._witness.on_event(event, self.now())

    def now(self) -> float:
        """Return the time since the epoch of the run in seconds, by the machine's clock."""
        return time.monotonic() - self.epoch

    def events(self) -> Iterator[Event]:
        """Return the new events from all files."""
        if self._witness is not None:
            self._witness.look(self.now())
        return self._tail.poll()

    @property
    def size(self) -> int:
        """Return the size of the tape in bytes, as far as it was read."""
        return self._tail.size

    def sleep_until(self, until: float, wake_on: set[tuple[str, str]] | None) -> None:
        """A tick."""
        time.sleep(TICK_S)

    def machines(self) -> list[Machine]:
        """Return what went on on the machines, by what the kernel reports."""
        if (sample := self._watch.look()) is None:
            return []
        return self._watched.machines(sample) if self._watched else [Machine(**sample.fields())]

    def dump_stacks(self, nodes: Collection[str]) -> None:
        """They reach the logs in a moment."""
        self.cluster.dump_stacks(nodes)
        time.sleep(_STACKS_S)

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """A second Ctrl-C does not count. (It reaches the main thread only: in another one there is nothing to do.)"""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def close(self) -> None:
        """Close the files."""
        if self._witness is not None:
            self._witness.close()
        self._watch.close()
        self._tail.close()
        self._tape.close()


class LiveProber:
    """Real questions, in threads. Implements `Prober`."""

    spent = 0.0

    def __init__(self, token: str) -> None:
        self._token = token
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="sensing")

    def ask(self, address: str, reply_bytes: int, send_bytes: int, watch_close: bool) -> Sounding:
        """Probe the address over a connection of its own."""
        return probe(address, self._token, reply_bytes, send_bytes, watch_close=watch_close)

    def attack(self, rogue: Impostor, address: str, count: int, timeout_s: float) -> int:
        """Attack the address over a connection of its own."""
        return attack(rogue, address, count, timeout_s)

    def together(self, ask: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """A thread for each."""
        with ThreadPoolExecutor(max(1, len(items))) as pool:
            return list(pool.map(ask, items))

    def begin(self, measure: Callable[[], Any]) -> Future[Any]:
        """Measure in a thread."""
        return self._pool.submit(measure)

    def observe(self, fault: Fault, hit: FaultContext) -> Future[Observation]:
        """Observe the fault in a thread."""
        return self._pool.submit(fault.observe, hit)

    @property
    def next_at(self) -> float:
        """Nobody knows."""
        return float("inf")

    def close(self) -> None:
        """Wait for what is under way."""
        self._pool.shutdown(wait=True, cancel_futures=True)
