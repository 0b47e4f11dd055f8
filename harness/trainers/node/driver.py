"""Carries out what a core asks for, on real sockets, files and clocks. One task handles one input at a time."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.record.storage import checkpoint
from diloco_chaos.harness.record.storage.disk import STATE, Content, FolderDisk
from diloco_chaos.harness.record.tape import events
from diloco_chaos.harness.record.tape.events import Event
from diloco_chaos.harness.record.tape.writing import TapeWriter
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
from diloco_chaos.harness.trainers.storage.global_checkpoint import keep
from diloco_chaos.harness.trainers.storage.workings import Workings
from diloco_chaos.harness.trainers.wire.frames import encode
from diloco_chaos.harness.trainers.wire.messages import Message

Input = Callable[[float], Iterable[Effect]]
"""A core's method with everything but the time bound."""


_UNWELL_S = 15.0
"""A node that did nothing for so long is not well: a syncer has its heartbeat, a learner its steps or its attempts to
connect."""


class Driver:
    """The part that the drivers of all roles share. Subclasses know about connections and computing."""

    def __init__(self, core: Core, tape: TapeWriter, epoch: float, run: Path, failpoints: Failpoints,
                 workings: Workings | None = None) -> None:
        """`epoch`: the run's beginning on CLOCK_MONOTONIC. `failpoints`: where to stop, counted from the
        moment at which this node learns of the steady state."""
        self.tape = tape
        self._core, self._epoch, self._run_folder, self._failpoints = core, epoch, run, failpoints
        self._workings = workings
        self._inputs: asyncio.Queue[Input | None] = asyncio.Queue()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._busy = time.monotonic()

    async def run(self, host: str, port: int) -> None:
        """Listen there, or connect to it, and serve until training is over."""
        raise NotImplementedError

    def status(self) -> Mapping[str, Any]:
        """Return whether the node is well, and what it knows."""
        return {"healthy": time.monotonic() - self._busy < _UNWELL_S, **self._core.status()}

    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._epoch

    def feed(self, step: Input | None) -> None:
        """Queue an input; None ends the driver."""
        self._inputs.put_nowait(step)

    async def serve(self) -> None:
        """Handle inputs until training is over."""
        while (step := await self._inputs.get()) is not None:
            for effect in list(step(self.now())):
                await self._do(effect)
            self.touch()

    def touch(self) -> None:
        """It is not stuck."""
        self._busy = time.monotonic()

    async def _do(self, effect: Effect) -> None:
        match effect:
            case Send():
                await self._send(effect)
            case Event():
                self.tape.record(effect)
            case Timer():
                self._set_timer(effect)
            case Commit():
                content = Content(effect.tensors, effect.meta)
                for moment in checkpoint.saving_both(FolderDisk(self._run_folder / STATE), effect.name, content):
                    self._hold(moment)
            case Save():
                self._save(effect)
            case Working():
                if self._workings is not None:
                    self._workings.keep(effect)
            case Snapshot():
                checkpoint.save(self._run_folder / "snapshots" / f"{effect.meta['number']:03d}.safetensors",
                                effect.tensors, effect.meta | {"t": self.now()})
            case AtFailpoint():
                self._hold(effect.point)
            case Compute():
                self.compute(effect)
            case Close():
                self.close(effect)
            case Stop():
                self.feed(None)

    def _save(self, save: Save) -> None:
        """Nobody waits for it; what can't be saved now costs this checkpoint, and nothing else."""
        def saved(done: asyncio.Future[None]) -> None:
            error = done.exception()
            if error is None:
                self.feed(lambda now: self._core.on_saved(save.checkpoint, now))
            elif isinstance(error, OSError):
                self.tape.record(events.NotSaved(checkpoint=save.checkpoint, reason=str(error)))
            else:
                self.fail(error)
        asyncio.get_running_loop().run_in_executor(
            None, keep, self._run_folder, self.tape.node, self._failpoints.noted(save)).add_done_callback(saved)

    def fail(self, error: BaseException) -> None:
        """End the node, with this error's traceback in its log."""
        def fail(now: float) -> Iterable[Effect]:
            raise error
        self.feed(fail)

    def _set_timer(self, timer: Timer) -> None:
        if timer.key in self._timers:
            self._timers.pop(timer.key).cancel()
        self._timers[timer.key] = asyncio.get_running_loop().call_later(
            max(0.0, timer.at - self.now()), self._fire, timer.key)

    def _fire(self, key: str) -> None:
        self._timers.pop(key, None)
        self.feed(lambda now: self._core.on_timer(key, now))

    async def _send(self, send: Send) -> None:
        writer = self.writer(send)
        if writer is None or writer.is_closing():
            return
        frame = self.frame(send.message, send.tensors)
        if send.half and self._failpoints.due(send.half, self._core, self.tape.record):
            writer.write(frame[:len(frame) // 2])
            while writer.transport.get_write_buffer_size() > 0 and not writer.is_closing():
                await asyncio.sleep(0.001)
            _stop_here()
            writer.write(frame[len(frame) // 2:])
        else:
            writer.write(frame)
        if send.sent is not None:
            self.tape.record(replace(send.sent, bytes=len(frame)))

    # -- failpoints: they exist for the experiment's sake ----------------------------------------------------------

    def _hold(self, point: str) -> None:
        if self._failpoints.due(point, self._core, self.tape.record):
            _stop_here()

    # -- what subclasses add --------------------------------------------------------------------------------------

    def frame(self, message: Message, tensors: Tensors | None = None) -> bytes:
        """Return the bytes that go over the wire."""
        return encode(message, tensors)

    def writer(self, send: Send) -> asyncio.StreamWriter | None:
        """Return where a message goes; None: nowhere, it is dropped."""
        raise NotImplementedError

    def close(self, effect: Close) -> None:
        """Close a connection."""
        raise NotImplementedError

    def compute(self, effect: Compute) -> None:
        """Begin an inner step."""
        raise NotImplementedError


def _stop_here() -> None:
    """Stand still, all threads, until someone continues or kills this process."""
    os.kill(os.getpid(), signal.SIGSTOP)
