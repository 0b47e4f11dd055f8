"""A simulated process: carries out what a core asks for, one input at a time, on a simulated machine.

What `harness.trainers.node.driver` does on sockets, files and the machine's clock. A process can be stopped,
continued and killed between any two of its steps; sockets, the disk and the network are others' and go on without it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from diloco_chaos.harness.record.storage import checkpoint
from diloco_chaos.harness.record.storage.disk import Content
from diloco_chaos.harness.record.tape import events
from diloco_chaos.harness.record.tape.events import Event
from diloco_chaos.harness.simulation.clock import Timers, VirtualClock
from diloco_chaos.harness.simulation.disk import MemoryDisk
from diloco_chaos.harness.simulation.host import SimulatedHost
from diloco_chaos.harness.trainers.core.effects import (
    AtFailpoint,
    Close,
    Commit,
    Compute,
    Effect,
    Save,
    Send,
    Snapshot,
    Stop,
    Timer,
    Working,
)
from diloco_chaos.harness.trainers.core.roles import Core
from diloco_chaos.harness.trainers.node.failpoints import Failpoints

_SIGKILL = -9


class SimulatedProcess:
    """The part of a simulated process that is the same for all roles."""

    def __init__(self, around: SimulatedHost, name: str, incarnation: int, failpoints: Failpoints,
                 starts: float, disk: MemoryDisk | None = None) -> None:
        """`holds`: as of `diloco_chaos.harness.trainers.node.driver.Driver`; `starts`: seconds until it is up."""
        self.around, self.name, self.incarnation, self.disk = around, name, incarnation, disk
        self.world = around.world
        self.pid = next(around.pids)
        """A number that no other process of the run has."""
        self.status: int | None = None
        """Exit status; negative: the signal that ended it."""
        self.frozen = False
        self._ready = False  # it has started
        self.held = False
        """It stands still because it was told to do so at a failpoint."""
        self._failpoints = failpoints
        self._inputs: deque[tuple[Callable[..., Iterable[Effect] | None], tuple[Any, ...]]] = deque()
        self._effects: deque[Effect] = deque()
        self._saving: Iterator[str] | None = None
        self._busy = False  # an effect takes its time
        self._waited = False  # that time is over
        self._stands = False  # a call on the disk does not return
        self._turning = False  # it is handling inputs
        self._doing = self._does()
        self._clock = VirtualClock(self.world)
        self._timers = Timers(self.world, self._clock, around.parameters.late,
                              lambda key: self.feed(self._on_timer, key))
        self.record(events.Start(role=self.role, pid=self.pid, sources="simulated"))
        self._starting = self.world.near(starts, 0.05 * starts)  # seconds of a processor that it still takes
        self._since, self._share, self._start = self.world.now, 1.0, 0
        around.starts(self, True)

    def started(self) -> None:
        """Note how far it has got."""
        self._starting = max(0.0, self._starting - (self.world.now - self._since) * self._share)
        self._since = self.world.now

    def go_on_starting(self, share: float) -> None:
        """It has so much of a processor from now on."""
        self._share, self._since = share, self.world.now
        self._start += 1
        self.world.after(self._starting / share, self._is_up, self._start)

    def _is_up(self, start: float) -> None:
        if start == self._start and not self.frozen and self.status is None:
            self._ready = True
            if self.role == "learner":
                self.around.trains(1)
            self.around.starts(self, False)
            self.feed(self._up)

    role = ""

    @property
    def core(self) -> Core | None:
        """The state machine, once it is up."""
        raise NotImplementedError

    def _up(self) -> Iterable[Effect] | None:
        """It has started."""
        raise NotImplementedError

    # -- its clock and its tape --------------------------------------------------------------------------------------

    def now(self) -> float:
        """Return the time that its clock shows, in seconds."""
        return self._clock.now()

    def jump(self, seconds: float) -> None:
        """Its clock goes forward: timers that are due by then fire."""
        self._clock.jump(seconds)
        self._timers.jumped()

    def record(self, event: Event) -> None:
        """Write to its tape, in the time of the world."""
        self.around.record(self.name, self.incarnation, self._clock.in_the_worlds_time(event))

    # -- inputs and effects ------------------------------------------------------------------------------------------

    def feed(self, action: Callable[..., Iterable[Effect] | None], *arguments: Any) -> None:
        """Queue an input: `action` gives effects, or deals with it by itself."""
        if self.status is not None:
            return
        if self._turning or self.frozen or self._busy or self._effects or self._inputs:
            self._inputs.append((action, arguments))
            return
        self._turning = True
        self._handle(action, arguments)
        self._turning = False
        if self._inputs:
            self._turn()

    def _turn(self) -> None:
        """Handle what is queued, as far as nothing takes its time."""
        self._turning = True
        inputs = self._inputs
        while inputs and not self.frozen and not self._busy and self.status is None:
            self._handle(*inputs.popleft())
        self._turning = False

    def _handle(self, action: Callable[..., Iterable[Effect] | None], arguments: tuple[Any, ...]) -> None:
        """One input: all that it gives, and then, in order, what that asks for."""
        effects = action(*arguments)
        if effects:
            self._effects.extend(effects)
            self._carry_out()

    def _go_on(self) -> None:
        """What was under way may go on: an effect that took its time is done, or the process runs again."""
        if self.frozen or self.status is not None:
            return
        if self._busy and not self._waited:
            return  # what takes its time is not over yet
        if self._busy:
            self._busy = False
            self._save()
        if not self._busy:
            self._carry_out()
            self._turn()

    def _carry_out(self) -> None:
        effects = self._effects
        while effects and not self.frozen and not self._busy and self.status is None:
            effect = effects.popleft()
            self._doing.get(type(effect), self._write)(effect)

    def _does(self) -> dict[type[Effect], Callable[[Any], None]]:
        """Return how each kind of effect is carried out; an event is written."""
        return {Send: self._send, Compute: self._compute, Commit: self._commit,
                Timer: lambda effect: self._timers.set(effect.key, effect.at),
                AtFailpoint: lambda effect: self._hold(effect.point), Close: self._close,
                Snapshot: self._snapshot, Save: self._save_part, Stop: self._stop,
                Working: lambda effect: self.around.keep(self.name, self.incarnation, effect)}

    def _snapshot(self, effect: Snapshot) -> None:
        self.around.snapshot(effect.tensors, effect.meta | {"t": self.world.now})

    def _save_part(self, effect: Save) -> None:
        """Beside everything else."""
        self.around.save(self.name, self._failpoints.noted(effect))
        self.world.after(self.around.parameters.write, self.feed, self._on_saved, effect.checkpoint)

    def _on_saved(self, checkpoint: int) -> Iterable[Effect]:
        assert self.core is not None, "it asked for that"
        return self.core.on_saved(checkpoint, self.now())

    def _stop(self, effect: Stop) -> None:
        self.exit(0)

    def _write(self, event: Event) -> None:
        self.record(event)

    def _commit(self, effect: Commit) -> None:
        assert self.disk is not None, "only who has a disk commits"
        self._saving = checkpoint.saving_both(self.disk, effect.name, Content(effect.tensors, effect.meta))
        self._save()

    def _save(self) -> None:
        """The next step of a save; it takes its time, and the process may be stopped or killed meanwhile."""
        assert self._saving is not None, "something is being saved"
        try:
            moment = next(self._saving, None)
        except OSError as error:
            self.record(events.Failed(reason=str(error)))
            self.exit(1)
            return
        if moment is None:
            self._saving = None
            return
        took = self.around.parameters.write if moment.endswith("before_sync") else self.around.parameters.sync
        self._busy, self._waited = True, False
        assert self.disk is not None, "only who has a disk commits"
        took += self.disk.faults.waited_s()
        self._stands = took == math.inf
        if not self._stands:
            self.world.after(took, self._took)
        self._hold(moment)

    def call_returns(self) -> None:
        """The call on the disk that hung is over; harmless where none did."""
        if self._stands:
            self._stands = False
            self._took()

    def _took(self) -> None:
        """An effect took its time; a process that stands still goes on from there later."""
        self._waited = True
        self._go_on()

    def _on_timer(self, key: str) -> Iterable[Effect]:
        assert self.core is not None, "timers are set by the core"
        return self.core.on_timer(key, self.now())

    # -- how it stops and ends ---------------------------------------------------------------------------------------

    def freeze(self) -> None:
        """SIGSTOP."""
        if not self.frozen and self.status is None:
            self._suspend()
            self.frozen = True

    def thaw(self) -> None:
        """SIGCONT."""
        if self.frozen and self.status is None:
            self.frozen = self.held = False
            if not self._ready:
                self.around.starts(self, True)
            self._resume()
            self._go_on()

    def _suspend(self) -> None:
        """What goes on beside the inputs stands still from now on."""
        if not self._ready:
            self.around.starts(self, False)
            self._start += 1

    def _resume(self) -> None:
        """It goes on."""

    def die(self) -> None:
        """SIGKILL."""
        self._end(_SIGKILL)

    def exit(self, status: int, asked: bool = False) -> None:
        """End by itself, in good order where the status is 0. `asked`: a SIGTERM is the reason."""
        if status == 0:
            self.record(events.Exit(told=asked))
        self._end(status)

    def _end(self, status: int) -> None:
        if self.status is None:
            self.status = status
            self.frozen = self.held = False
            if not self._ready:
                self.around.starts(self, False)
            elif self.role == "learner":
                self.around.trains(-1)
            self._hang_up()
            self.world.stop()  # the harness shall see it

    def _hold(self, point: str) -> None:
        if self._failpoints.due(point, self.core, self.record):
            self._stop_here()

    def _stop_here(self) -> None:
        self._suspend()
        self.frozen = self.held = True

    # -- what roles add ----------------------------------------------------------------------------------------------

    def _send(self, send: Send) -> None:
        raise NotImplementedError

    def _close(self, effect: Close) -> None:
        raise NotImplementedError

    def _compute(self, effect: Compute) -> None:
        raise NotImplementedError

    def _hang_up(self) -> None:
        """Its connections end with it."""
        raise NotImplementedError
