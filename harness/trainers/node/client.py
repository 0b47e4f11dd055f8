"""Drives a learner: one connection that is made again whenever it breaks, and inner steps in a worker thread."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.record.tape import events
from diloco_chaos.harness.record.tape.writing import TapeWriter
from diloco_chaos.harness.trainers.core.effects import Close, Compute, Effect, Send
from diloco_chaos.harness.trainers.core.memory import ordered
from diloco_chaos.harness.trainers.core.roles import COORDINATOR, Corruptible, Worker
from diloco_chaos.harness.trainers.node.backoff import CONNECT_S, Backoff
from diloco_chaos.harness.trainers.node.driver import Driver
from diloco_chaos.harness.trainers.node.failpoints import Failpoints
from diloco_chaos.harness.trainers.node.refusals import Refusals
from diloco_chaos.harness.trainers.storage.workings import Workings
from diloco_chaos.harness.trainers.wire.frames import Decoder, FrameError
from diloco_chaos.harness.trainers.wire.messages import Message, Refused

_CHUNK = 1 << 18
CONGESTED = 1 << 20  # bytes waiting to be sent above which a report, which the next one replaces, is dropped


class ClientDriver(Driver):
    """See the module. Never waits for the network: what can't be sent now waits in the transport's buffer."""

    def __init__(self, core: Worker, tape: TapeWriter, epoch: float, run: Path, failpoints: Failpoints,
                 workings: Workings | None = None) -> None:
        super().__init__(core, tape, epoch, run, failpoints, workings)
        self._client_core = core
        self._silence = core.heartbeat_timeout
        self._refusals = Refusals(tape.record, self.now)
        self._writer: asyncio.StreamWriter | None = None
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="inner-step")

    async def run(self, host: str, port: int) -> None:
        """Train until the syncer says that training is over."""
        link = asyncio.ensure_future(self._keep_connected(host, port))
        await self.serve()
        link.cancel()
        self._executor.shutdown()

    def writer(self, send: Send) -> asyncio.StreamWriter | None:
        """The connection, where there is one and the message is worth its place in the queue."""
        congested = self._writer is not None and self._writer.transport.get_write_buffer_size() > CONGESTED
        return None if congested and send.message.replaceable else self._writer

    def close(self, effect: Close) -> None:
        """Close the connection; a new one is made."""
        if self._writer is not None:
            self._writer.close()

    def compute(self, effect: Compute) -> None:
        """Run the inner step beside the I/O."""
        core, began = self._client_core, self.now()
        if isinstance(core, Corruptible):
            for corruption in ordered(self._run_folder, core.name, core.incarnation):
                for event in core.corrupt(corruption):
                    self.tape.record(event)

        def step() -> None:
            # What is raised in here ends the node with its traceback in the log: see `_raise`.
            result = core.compute(effect)
            loop.call_soon_threadsafe(self.feed, lambda now: core.on_computed(result, began, now))
        loop = asyncio.get_running_loop()
        loop.run_in_executor(self._executor, step).add_done_callback(self._check)

    def _check(self, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and (error := done.exception()):
            self.fail(error)

    async def _keep_connected(self, host: str, port: int) -> None:
        backoff = Backoff(random.Random())
        while True:
            self.touch()
            try:
                reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port), CONNECT_S)
            except OSError:  # TimeoutError is one
                await asyncio.sleep(backoff.refused())
                continue
            self.feed(partial(self._begin, writer))
            heard, reason = await self._read(reader)
            writer.close()
            self.feed(partial(self._end, reason))
            await asyncio.sleep(backoff.lost(heard))

    def _begin(self, writer: asyncio.StreamWriter, now: float) -> Iterable[Effect]:
        """From here on messages go there. Not before: what was queued earlier must not come before the hello."""
        self._writer = writer
        return self._client_core.on_connected(now)

    def _end(self, reason: str, now: float) -> Iterable[Effect]:
        """Messages go nowhere."""
        self._writer = None
        return self._client_core.on_lost(reason, now)

    async def _read(self, reader: asyncio.StreamReader) -> tuple[bool, str]:
        """Pass on what arrives until the connection ends: (whether anything came, why it ended)."""
        decoder, heard = Decoder(self._client_core.messages), False
        try:
            while data := await asyncio.wait_for(reader.read(_CHUNK), self._silence):
                for message, tensors in decoder.feed(data):
                    heard = True
                    if isinstance(message, Refused):
                        if message.final:
                            self.tape.record(events.Superseded(reason=message.reason))
                            self.feed(None)
                        return heard, f"refused: {message.reason}"
                    self._pass_on(message, tensors)
            return heard, "closed by the syncer"
        except FrameError as error:
            self._refusals.record(events.RefusedFrame(peer=COORDINATOR, reason=str(error)))
            return heard, str(error)
        except TimeoutError:
            return heard, f"nothing heard for {self._silence:.1f} s"
        except OSError as error:
            return heard, error.strerror or str(error)

    def _pass_on(self, message: Message, tensors: Tensors) -> None:
        self.feed(lambda now: self._client_core.on_message(message, tensors, now))
