"""A simulated process: carries out what a core asks for, one input at a time, on a simulated machine.

What `harness.trainer.driver` does on sockets, files and the machine's clock. A process can be stopped, continued and
killed between any two of its steps; sockets, the disk and the network are others' and go on without it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any

from harness.simulation.disk import MemoryDisk
from harness.simulation.network import Connection, Link
from harness.simulation.parameters import Parameters
from harness.simulation.sizes import Sizes
from harness.simulation.world import World
from harness.trainer import checkpoint
from harness.trainer.backoff import CONNECT_S, Backoff
from harness.trainer.client import CONGESTED
from harness.trainer.disk import Content
from harness.trainer.effects import Close, Commit, Compute, Effect, Hold, Mark, Record, Send, Snapshot, Stop, Timer
from harness.trainer.holds import HoldPoints
from harness.trainer.learner import Learner
from harness.trainer.messages import AnyMessage, Refused, Report
from harness.trainer.syncer import Syncer
from harness.trainer.synchronous import Hub, Peer
from harness.trainer.tensors import Tensors
from harness.trainer.traffic import Traffic

RecordEvent = Callable[[str, int, str, dict[str, Any]], None]
"""record(node, incarnation, event, fields)"""
_SIGKILL = -9
_ALMOST_S = 1e-9
_LEAST_SHARE = 0.1
"""Of a processor, for one that starts on a machine that is busy with others."""
_TIMES = {"step": ("began",), "merge": ("opened", "quorum_at", "closed")}
"""Fields of events that are times; a merge's contributions have `arrived`."""


class Surroundings:
    """What all processes of a run share."""

    def __init__(self, world: World, parameters: Parameters, record: RecordEvent,
                 snapshot: Callable[..., None], load: float = 0.0) -> None:
        """`snapshot(tensors, meta)` keeps one for the loss curve; `load`: the share of a processor that a learner needs
        to keep its pace."""
        self._load, self._training = load, 0
        self.world, self.parameters, self.record, self.snapshot = world, parameters, record, snapshot
        self.sizes = Sizes()
        self.numbers, self.pids = count(1), count(1001)
        """Of connections, and of processes."""
        self._starting: list[SimulatedProcess] = []

    def trains(self, more: int) -> None:
        """So many more learners are up, or less."""
        self._training += more

    def starts(self, process: SimulatedProcess, starting: bool) -> None:
        """A process begins to start, or does so no more. Those that start share what the others leave of the machine's
        processors: a learner that keeps its pace needs less than its fair share, and gets all of that."""
        for one in self._starting:
            one.started()
        if starting:
            self._starting.append(process)
        elif process in self._starting:
            self._starting.remove(process)
        free = self.parameters.cores - self._load * self._training
        share = min(1.0, max(_LEAST_SHARE, free / max(1, len(self._starting))))
        for one in self._starting:
            one.go_on_starting(share)


class SimulatedProcess:
    """What is the same for all roles."""

    def __init__(self, around: Surroundings, name: str, incarnation: int, holds: Mapping[str, int],
                 starts: float, disk: MemoryDisk | None = None) -> None:
        """`holds`: as of `harness.trainer.driver.Driver`; `starts`: seconds until it is up."""
        self.around, self.name, self.incarnation, self.disk = around, name, incarnation, disk
        self.world = around.world
        self._pid = next(around.pids)
        self.status: int | None = None
        """Exit status; negative: the signal that ended it."""
        self.frozen = False
        self._ready = False  # it has started
        self.held = False
        """It stands still because it was told to do so at a hold point."""
        self._holds = HoldPoints(holds)
        self._inputs: deque[tuple[Callable[..., Iterable[Effect] | None], tuple[Any, ...]]] = deque()
        self._effects: deque[Effect] = deque()
        self._saving: Iterator[str] | None = None
        self._busy = False  # an effect takes its time
        self._waited = False  # that time is over
        self._turning = False  # it is handling inputs
        self._doing = self._does()
        self._timers: dict[str, tuple[int, float]] = {}  # key -> (number, when by its own clock)
        self._numbers = count(1)
        self._jumps: list[tuple[float, float]] = []  # (this clock's time, how much it is ahead from then on)
        self._ahead = 0.0
        self.record("start", role=self.role, pid=self.pid, sources="simulated")
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
    def pid(self) -> int:
        """A number that no other process of the run has."""
        return self._pid

    @property
    def core(self) -> Syncer | Hub | Learner | Peer | None:
        """The state machine, once it is up."""
        raise NotImplementedError

    def _up(self) -> Iterable[Effect] | None:
        """It has started."""
        raise NotImplementedError

    # -- its clock ---------------------------------------------------------------------------------------------------

    def now(self) -> float:
        """What its clock says."""
        return self.world.now + self._ahead

    def jump(self, seconds: float) -> None:
        """Its clock goes forward: timers that are due by then fire."""
        self._ahead += seconds
        self._jumps.append((self.now(), self._ahead))
        for key, (_, at) in list(self._timers.items()):
            self._plan_timer(key, at)

    def _true(self, mine: float) -> float:
        """When its clock said so; within a jump: when it jumped."""
        latest = float("inf")
        for at, ahead in reversed(self._jumps):
            if mine >= at:
                return min(mine - ahead, latest)
            latest = at - ahead
        return min(mine, latest)

    def record(self, event: str, **fields: Any) -> None:
        """Write to its tape, in the time of the world."""
        self._put(event, fields)

    def _put(self, event: str, fields: dict[str, Any]) -> None:
        if self._jumps:
            times = {name: fields[name] for name in _TIMES.get(event, ()) if fields[name] is not None}
            fields = fields | {name: self._true(time) for name, time in times.items()}
            if event == "merge":
                fields["contributions"] = [part | {"arrived": self._true(part["arrived"])}
                                           for part in fields["contributions"]]
        self.around.record(self.name, self.incarnation, event, fields)

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
            self._doing[type(effect)](effect)

    def _does(self) -> dict[type[Effect], Callable[[Any], None]]:
        """How each kind of effect is carried out."""
        return {Send: self._send, Record: self._write, Timer: self._set_timer, Compute: self._compute,
                Commit: self._commit, Mark: lambda effect: self.feed(self._on_mark, effect.key),
                Hold: lambda effect: self._hold(effect.point), Close: self._close,
                Snapshot: self._snapshot, Stop: self._stop}

    def _snapshot(self, effect: Snapshot) -> None:
        self.around.snapshot(effect.tensors, effect.meta | {"t": self.world.now})

    def _stop(self, effect: Stop) -> None:
        self.exit(0)

    def _write(self, effect: Record) -> None:
        self._put(effect.event, effect.fields)

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
            self.record("failed", reason=str(error))
            self.exit(1)
            return
        if moment is None:
            self._saving = None
            return
        took = self.around.parameters.write if moment.endswith("before_sync") else self.around.parameters.sync
        self._busy, self._waited = True, False
        self.world.after(took, self._took)
        self._hold(moment)

    def _took(self) -> None:
        """An effect took its time; a process that stands still goes on from there later."""
        self._waited = True
        self._go_on()

    def _set_timer(self, timer: Timer) -> None:
        self._plan_timer(timer.key, timer.at)

    def _plan_timer(self, key: str, at: float) -> None:
        number = next(self._numbers)
        self._timers[key] = (number, at)
        late = self.world.near(self.around.parameters.late / 2, self.around.parameters.late / 2)
        self.world.at(at - self._ahead + late, self._fire, key, number)

    def _fire(self, key: str, number: int) -> None:
        known = self._timers.get(key)
        if known is not None and known[0] == number:
            del self._timers[key]
            self.feed(self._on_timer, key)

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

    def exit(self, status: int) -> None:
        """It ends by itself, in good order where the status is 0."""
        if status == 0:
            self.record("exit")
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
        if self._holds.due(point, self.core):
            self._stop_here(point)

    def _stop_here(self, point: str) -> None:
        self.record("held", point=point, count=self._holds.passed[point])
        self._suspend()
        self.frozen = self.held = True

    # -- what roles add ----------------------------------------------------------------------------------------------

    def _send(self, send: Send) -> None:
        raise NotImplementedError

    def _close(self, effect: Close) -> None:
        raise NotImplementedError

    def _compute(self, effect: Compute) -> None:
        raise NotImplementedError

    def _on_mark(self, key: str) -> Iterable[Effect]:
        raise NotImplementedError

    def _hang_up(self) -> None:
        """Its connections end with it."""
        raise NotImplementedError


class SimulatedServer(SimulatedProcess):
    """The syncer's process, or the hub's; `harness.trainer.server` on sockets."""

    role = "syncer"

    def __init__(self, around: Surroundings, name: str, incarnation: int, holds: Mapping[str, int], disk: MemoryDisk,
                 make_core: Callable[[], Syncer | Hub]) -> None:
        self._make, self._core = make_core, None
        self._open: dict[int, Connection] = {}
        self._traffic = Traffic()
        super().__init__(around, name, incarnation, holds, around.parameters.start_syncer, disk)

    _core: Syncer | Hub | None

    @property
    def core(self) -> Syncer | Hub | None:
        """The state machine, once it is up."""
        return self._core

    @property
    def listening(self) -> bool:
        """Whether connections are taken; one that stands still takes them, too."""
        return self._core is not None and self.status is None

    def _up(self) -> Iterable[Effect]:
        try:
            self._core = self._make()
        except checkpoint.CheckpointError as error:
            self.record("refused_checkpoint", reason=str(error))
            self.exit(2)
            return ()
        self.record("listening", host="simulated", port=1)
        self.world.stop()
        return self._core.start(self.now())

    def accept(self, connection: Connection) -> None:
        """Somebody connected."""
        self._open[connection.number] = connection

    def arrived(self, connection: Connection, message: AnyMessage, tensors: Tensors) -> None:
        """A whole frame."""
        self._traffic.received[message.type] += self.around.sizes.of(message, tensors)
        self.feed(self._on_message, connection.number, message, tensors)

    def ended(self, connection: Connection, reason: str) -> None:
        """A connection ended."""
        self.feed(self._on_end, connection, reason)

    def _on_message(self, number: int, message: AnyMessage, tensors: Tensors) -> Iterable[Effect]:
        assert self._core is not None, "nobody connects before"
        return self._core.on_message(number, message, tensors, self.now())

    def _on_end(self, connection: Connection, reason: str) -> Iterable[Effect]:
        assert self._core is not None, "nobody connects before"
        if connection.partial is not None:
            arrived, expected = connection.partial
            client = getattr(connection.client, "name", "unknown")
            self.record("partial_frame", peer=client, bytes=arrived, expected=expected)
        self._open.pop(connection.number, None)
        return self._core.on_lost(connection.number, reason, self.now())

    def _on_mark(self, key: str) -> Iterable[Effect]:
        assert self._core is not None, "marks are set by the core"
        return self._core.on_mark(key, self.now())

    def _send(self, send: Send) -> None:
        self._to(self._open.get(send.to or 0), send.message, send.tensors)

    def _to(self, connection: Connection | None, message: AnyMessage, tensors: Tensors) -> None:
        if connection is not None:
            size = self.around.sizes.of(message, tensors)
            self._traffic.sent[message.type] += size
            connection.to_client(size, message, tensors)

    def _close(self, effect: Close) -> None:
        connection = self._open.pop(effect.to or 0, None)
        if connection is not None:
            self._to(connection, Refused(reason=effect.reason, final=effect.final), {})
            connection.close_server()

    def _snapshot(self, effect: Snapshot) -> None:
        super()._snapshot(effect)
        self.record("traffic", **self._traffic.fields())

    def _stop(self, effect: Stop) -> None:
        self.record("traffic", **self._traffic.fields())
        super()._stop(effect)

    def _compute(self, effect: Compute) -> None:
        raise NotImplementedError

    def _hang_up(self) -> None:
        for connection in list(self._open.values()):
            connection.close_server()
        self._open.clear()


class SimulatedClient(SimulatedProcess):
    """A learner's process; `harness.trainer.client` on sockets."""

    role = "learner"

    def __init__(self, around: Surroundings, name: str, incarnation: int, holds: Mapping[str, int], link: Link,
                 server: Callable[[], SimulatedServer], make_core: Callable[[], Learner | Peer]) -> None:
        """`server()`: who is at the other end of the link now."""
        self._link, self._server, self._make = link, server, make_core
        self._core = None
        self._connection: Connection | None = None
        self._heard: float | None = None  # when anything was last heard on the connection
        self._backoff = Backoff(around.world.chance)
        self._silence: float | None = None
        self._computed: tuple[float, Callable[..., Iterable[Effect]], tuple[Any, ...]] | None = None
        self._finishes = 0.0
        self._computation = 0
        self._rest: Send | None = None  # of a frame that was cut in two
        super().__init__(around, name, incarnation, holds, around.parameters.start_learner)

    _core: Learner | Peer | None

    @property
    def core(self) -> Learner | Peer | None:
        """The state machine, once it is up."""
        return self._core

    def _up(self) -> None:
        self._core = self._make()
        self._silence = self._core.config.silence if isinstance(self._core, Learner) else None
        self.record("imported")
        self._attempt()

    # -- its connection ----------------------------------------------------------------------------------------------

    def _attempt(self) -> None:
        """Try to connect."""
        if self._link.vanished:
            self.world.after(CONNECT_S, self.feed, self._refused)
        elif not self._link.enabled:
            self._refused()
        else:
            server = self._server()
            self._connection = self._link.connect(next(self.around.numbers), self, server)
            self._heard = None
            if server.listening:
                server.accept(self._connection)
            else:  # the link takes it, and finds nobody at the other end
                self._connection.server_open = False
                self.world.after(self.around.parameters.delay, self._connection.broken, "refused")
            self.feed(self._on_connected)
            if self._silence is not None:
                self.world.after(self._silence, self.feed, self._on_silence, self._connection, self.world.now)

    def _refused(self) -> None:
        self.world.after(self._backoff.refused(), self.feed, self._attempt)

    def _on_connected(self) -> Iterable[Effect]:
        assert self._core is not None, "it is up"
        return self._core.on_connected(self.now())

    def _on_silence(self, connection: Connection, since: float) -> Iterable[Effect] | None:
        """Nothing was heard for as long as that may last, unless something was."""
        if self._connection is not connection or not connection.client_open or self._silence is None:
            return None
        left = (since if self._heard is None else self._heard) + self._silence - self.world.now
        if left > _ALMOST_S:
            self.world.after(left, self.feed, self._on_silence, connection, since)
            return None
        return self._on_lost(connection, f"nothing heard for {self._silence:.1f} s")

    def arrived(self, connection: Connection, message: AnyMessage, tensors: Tensors) -> None:
        """A whole frame."""
        self._heard = self.world.now
        self.feed(self._on_message, connection, message, tensors)

    def ended(self, connection: Connection, reason: str) -> None:
        """The connection ended."""
        self.feed(self._on_lost, connection, reason)

    def _on_message(self, connection: Connection, message: AnyMessage, tensors: Tensors) -> Iterable[Effect] | None:
        assert self._core is not None, "it is up"
        if connection is not self._connection:
            return None
        if isinstance(message, Refused):
            if message.final:
                self.record("superseded", reason=message.reason)
                self.exit(0)
                return None
            return self._on_lost(connection, f"refused: {message.reason}")
        return self._core.on_message(message, tensors, self.now())

    def _on_lost(self, connection: Connection, reason: str) -> Iterable[Effect] | None:
        if connection is not self._connection:
            return None
        assert self._core is not None, "it is up"
        connection.close_client()
        heard, self._connection = self._heard is not None, None
        self.world.after(self._backoff.lost(heard), self.feed, self._attempt)
        return self._core.on_lost(reason, self.now())

    def _send(self, send: Send) -> None:
        connection = self._connection
        if connection is None or not connection.client_open:
            return
        if isinstance(send.message, Report) and connection.up.backlog() > CONGESTED:
            return
        size = self.around.sizes.of(send.message, send.tensors)
        if send is self._rest:
            self._rest = None
            connection.to_server(size - size // 2, send.message, send.tensors)
        elif send.half and self._holds.due(send.half, self.core):
            connection.half_to_server(size // 2, size)
            self._rest = Send(send.message, send.tensors, send.to, "", send.sent)  # it goes on there, if it lives
            self._effects.appendleft(self._rest)
            self._stop_here(send.half)
            return
        else:
            connection.to_server(size, send.message, send.tensors)
        if send.sent:
            message: Any = send.message
            self.record(send.sent, bytes=size, round=message.round, fragment=message.fragment)

    def _close(self, effect: Close) -> None:
        if self._connection is not None:
            self._connection.close_client()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close_client()
            self._connection = None

    # -- inner steps, beside everything else -------------------------------------------------------------------------

    def _compute(self, effect: Compute) -> None:
        core, began = self._core, self.now()
        if isinstance(core, Learner):
            self._begin(core.on_computed, (core.replica.train(effect.position, effect.lr), began))
        else:
            assert core is not None, "it is up"
            loss, gradient = core.replica.gradient(effect.position)
            self._begin(core.on_gradient, (loss, gradient, began))

    def _begin(self, then: Callable[..., Iterable[Effect]], arguments: tuple[Any, ...]) -> None:
        parameters = self.around.parameters
        took = self.world.near(parameters.compute, parameters.compute_spread)
        self._computed = (took, then, arguments)
        self._plan_computed(took)

    def _plan_computed(self, takes: float) -> None:
        self._computation += 1
        self._finishes = self.world.now + takes
        self.world.at(self._finishes, self._done, self._computation)

    def _done(self, computation: int) -> None:
        if computation == self._computation and self._computed is not None and self.status is None and not self.frozen:
            _, then, arguments = self._computed
            self._computed = None
            self.feed(self._on_computed, then, arguments)

    def _on_computed(self, then: Callable[..., Iterable[Effect]], arguments: tuple[Any, ...]) -> Iterable[Effect]:
        return then(*arguments, self.now())

    def _suspend(self) -> None:
        super()._suspend()
        if self._computed is not None:
            self._computed = (max(0.0, self._finishes - self.world.now), *self._computed[1:])
            self._computation += 1

    def _resume(self) -> None:
        if self._computed is not None:
            self._plan_computed(self._computed[0])
