"""The stage on which time is virtual: an experiment that takes seconds of it is over in a moment."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from diloco_chaos.chaos.evidence.run_folder import RunFolder
from diloco_chaos.chaos.runner.resume_point import HARNESS, ResumePoint
from diloco_chaos.chaos.runner.runtime import Prober
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.faults import Fault, FaultContext, Impersonation, Observation
from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.base.units import round_up
from diloco_chaos.harness.links.probe import Sounding
from diloco_chaos.harness.places.cluster import Cluster
from diloco_chaos.harness.places.simulated.site import SimulatedSite
from diloco_chaos.harness.record.storage import checkpoint
from diloco_chaos.harness.record.storage.disk import Content
from diloco_chaos.harness.record.tape import writing
from diloco_chaos.harness.record.tape.events import Event, Machine
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.record.undo_log import NoUndoLog, UndoLog
from diloco_chaos.harness.simulation.host import KeepWorking, SimulatedHost
from diloco_chaos.harness.simulation.parameters import Parameters
from diloco_chaos.harness.simulation.world import World
from diloco_chaos.harness.trainers.api.trainer import Workload
from diloco_chaos.harness.trainers.core.effects import Working
from diloco_chaos.harness.trainers.node.settings import SETTINGS, NodeSettings
from diloco_chaos.harness.trainers.storage.workings import Workings
from diloco_chaos.harness.trainers.wire.impostor import Impostor

_EVENT_BYTES = 150


class VirtualStage:
    """Implements `diloco_chaos.chaos.runner.runtime.Stage`. All chance is drawn from the plan."""

    epoch = 0.0
    reads: tuple[Path, ...] = ()

    def __init__(self, plan: Plan, parameters: Parameters, workload: Workload,
                 snapshot: Callable[[Tensors, dict[str, Any]], None], run: Path = Path("simulated"),
                 origin: ResumePoint | None = None, parts: Mapping[str, Content] | None = None,
                 keep: KeepWorking | None = None) -> None:
        """`snapshot(tensors, meta)` gets each. `origin`: where the run goes on; `parts`: of its checkpoint;
        `keep`: what keeps what nodes compute with."""
        self.run = run
        self.world = World(f"{plan.chance}/{origin.checkpoint}" if origin else plan.chance)
        self.world.now = origin.time if origin else 0.0
        self.undo_log: UndoLog = NoUndoLog("simulated")
        self._tick = parameters.tick
        self._events: list[Event] = list(origin.begun) if origin else []
        self._seen = 0
        self._heeds: set[tuple[str, str]] | None = set()
        pace = plan.cluster.step_time
        around = SimulatedHost(self.world, parameters, self._note, snapshot,
                               min(1.0, parameters.compute / pace) if pace else 1.0, keep)
        self.checkpoints = around.checkpoints
        self._simulated = SimulatedSite(around, workload, self.record, self.undo_log, parts)
        self.cluster = Cluster(self._simulated)
        self.prober: Prober = VirtualProber(self.world, self._simulated)

    def record(self, event: Event) -> None:
        """Record the event as the harness's."""
        self._events.append(event.stamped(self.world.now, HARNESS, 0))

    def _note(self, node: str, incarnation: int, event: Event) -> None:
        self._events.append(event.stamped(self.world.now, node, incarnation))
        wake_on = self._heeds
        if wake_on is None or (node, event.event) in wake_on:
            self.world.stop()

    def now(self) -> float:
        """Virtual."""
        return self.world.now

    def events(self) -> Iterator[Event]:
        """Yield the new events in the order of time."""
        while self._seen < len(self._events):
            self._seen += 1
            yield self._events[self._seen - 1]

    @property
    def size(self) -> int:
        """About."""
        return _EVENT_BYTES * len(self._events)

    def sleep_until(self, until: float, wake_on: set[tuple[str, str]] | None) -> None:
        """Sleep to the first tick at which there is anything to do; the harness looks no more often than a real one."""
        self._heeds = wake_on
        first = round_up(self.world.now, self._tick)
        if self._seen == len(self._events):  # else what the harness itself recorded is to be seen at the next tick
            self.world.run(max(first, min(until, self._simulated.next_at)))
        look = round_up(self.world.now, self._tick, at_least=first)
        while self.world.now < look:
            self.world.run(look)

    def machines(self) -> list[Machine]:
        """A simulated machine does nothing else."""
        return []

    def dump_stacks(self, nodes: Collection[str]) -> None:
        """There are none."""

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """It is over in a moment."""
        yield

    def close(self) -> None:
        """Nothing is open."""

    def tape(self) -> Tape:
        """Return all that was recorded."""
        return Tape(list(self._events))

    def save(self, folder: Path) -> None:
        """Write the tape as files, as real nodes do."""
        writing.write(self._events, folder)


class FolderStage(VirtualStage):
    """A virtual stage whose tape and snapshots end up in the run's folder, as those of real nodes do."""

    def __init__(self, plan: Plan, parameters: Parameters, settings: NodeSettings, folder: RunFolder) -> None:
        """`settings`: what real nodes would be given."""
        (folder.path / SETTINGS).write_text(settings.model_dump_json(by_alias=True, indent=2))
        self._settings = settings
        self._workings: dict[tuple[str, int], Workings | None] = {}
        super().__init__(plan, parameters, settings.workload(), self._keep, folder.path, keep=self._keep_working)

    def close(self) -> None:
        """Write the tape."""
        self.save(self.run / "tape")

    def _keep_working(self, node: str, incarnation: int, working: Working) -> None:
        process = node, incarnation
        if process not in self._workings:
            self._workings[process] = self._settings.workings(self.run, *process)
        if (workings := self._workings[process]) is not None:
            workings.keep(working)

    def _keep(self, tensors: Tensors, meta: dict[str, Any]) -> None:
        checkpoint.save(self.run / "snapshots" / f"{meta['number']:03d}.safetensors", tensors, meta)


class VirtualProber:
    """Works out what a probe would measure. Implements `diloco_chaos.chaos.runner.runtime.Prober`."""

    def __init__(self, world: World, site: SimulatedSite) -> None:
        self._world, self._site = world, site
        self.spent = 0.0
        self._dues: list[float] = []

    def ask(self, address: str, reply_bytes: int, send_bytes: int, watch_close: bool) -> Sounding:
        """Probe the address at once, and add up the time that it takes."""
        sounding = self._site.sound(address, reply_bytes, send_bytes, watch_close)
        self.spent += sounding.seconds
        return sounding

    def attack(self, rogue: Impostor, address: str, count: int, timeout_s: float) -> int:
        """It can't be waited for: see `observe`."""
        raise NotImplementedError

    def together(self, ask: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """Ask for all items; together they take as long as the longest of them."""
        before, longest, answers = self.spent, 0.0, []
        for item in items:
            self.spent = before
            answers.append(ask(item))
            longest = max(longest, self.spent - before)
        self.spent = before + longest
        return answers

    def begin(self, measure: Callable[[], Any]) -> Future[Any]:
        """It is known when the time that it takes has passed."""
        future: Future[Any] = Future()
        self.spent = 0.0
        try:
            result = measure()
        except Exception as error:  # what a thread would hand over, too
            future.set_exception(error)
            return future
        self._dues.append(self._world.now + self.spent)
        self._world.after(self.spent, self._known, future, result)
        return future

    def observe(self, fault: Fault, hit: FaultContext) -> Future[Observation]:
        """An attack goes on beside the run."""
        if not isinstance(fault, Impersonation):
            return self.begin(lambda: fault.observe(hit))
        future: Future[Observation] = Future()
        self._attack(fault, hit, list(fault.targets), 0, future)
        return future

    @property
    def next_at(self) -> float:
        """Return when the first measurement is over, in seconds; infinite where none is under way."""
        return min(self._dues, default=math.inf)

    def close(self) -> None:
        """Nothing is under way outside the world."""

    def _known(self, future: Future[Any], result: Any) -> None:
        self._dues.pop(self._dues.index(min(self._dues)))
        future.set_result(result)
        self._world.stop()

    def _attack(self, fault: Impersonation, hit: FaultContext, targets: list[str], sent: int,
                future: Future[Observation]) -> None:
        """One target after the other."""
        if not targets:
            future.set_result({"sent": sent})
            self._world.stop()
            return
        rogue = fault.rogue(hit, targets[0])
        self._site.impostor(targets[0], rogue, fault.count, fault.timeout_s,
                               lambda more: self._attack(fault, hit, targets[1:], sent + more, future))
