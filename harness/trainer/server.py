"""Drives the syncer (or the hub of data parallelism): accepts learners on a loopback port."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Iterable
from itertools import count
from pathlib import Path

import numpy as np

from harness.tape import TapeWriter
from harness.trainer.driver import Driver
from harness.trainer.effects import Close, Compute, Effect, Record, Send, Snapshot, Stop
from harness.trainer.holds import HoldPoints
from harness.trainer.hub import Hub
from harness.trainer.messages import AnyMessage, Echo, Hello, Probe, Refused
from harness.trainer.syncer import Syncer
from harness.trainer.tensors import Tensors
from harness.trainer.traffic import TOLD_AT, Traffic
from harness.trainer.wire import Decoder, FrameError

_CHUNK = 1 << 18
_FLUSH_S = 2.0


class ServerDriver(Driver):
    """Many connections, one core. Frames that can't be trusted end their connection, are recorded, and harm nobody
    else."""

    def __init__(self, core: Syncer | Hub, tape: TapeWriter, epoch: float, run: Path, holds: HoldPoints,
                 token: str) -> None:
        super().__init__(core, tape, epoch, run, holds)
        self._server_core, self._token = core, token
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._numbers = count(1)
        self._traffic = Traffic()

    async def run(self, host: str, port: int) -> None:
        """Serve until training is over.

        Raises:
            OSError: the port can't be bound.
        """
        server = await asyncio.start_server(self._accept, host, port)
        self.tape.record("listening", host=host, port=server.sockets[0].getsockname()[1])
        self.feed(self._server_core.start)
        await self.serve()
        server.close()
        for writer in self._writers.values():
            writer.close()
        await asyncio.wait([asyncio.ensure_future(self._flushed(writer)) for writer in self._writers.values()]
                           or [asyncio.ensure_future(asyncio.sleep(0))], timeout=_FLUSH_S)

    def writer(self, send: Send) -> asyncio.StreamWriter | None:
        """The connection that the core named."""
        return self._writers.get(send.to or 0)

    def close(self, effect: Close) -> None:
        """Tell the learner why, and close."""
        writer = self._writers.pop(effect.to or 0, None)
        if writer is not None:
            writer.write(self.frame(Refused(reason=effect.reason, final=effect.final)))
            writer.close()

    async def _do(self, effect: Effect) -> None:
        await super()._do(effect)
        if isinstance(effect, (Snapshot, Stop)) or (isinstance(effect, Record) and effect.event == TOLD_AT):
            self.tape.record("traffic", **self._traffic.fields())

    def frame(self, message: AnyMessage, tensors: Tensors | None = None) -> bytes:
        """Counted, too."""
        frame = super().frame(message, tensors)
        self._traffic.sent[message.type] += len(frame)
        return frame

    def compute(self, effect: Compute) -> None:
        """A syncer does not train."""
        raise NotImplementedError

    def on_mark(self, key: str, now: float) -> Iterable[Effect]:
        """The effects of a merge are done."""
        return self._server_core.on_mark(key, now)

    async def _flushed(self, writer: asyncio.StreamWriter) -> None:
        try:
            await writer.wait_closed()
        except OSError:
            pass  # the learner went first: there is nobody left to flush to

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = next(self._numbers)
        decoder, peer, reason = Decoder(arrived=self._traffic.received), "", ""
        self._writers[connection] = writer
        try:
            while data := await reader.read(_CHUNK):
                for message, tensors in decoder.feed(data):
                    if not peer and not (peer := self._admit(message, writer)):
                        return
                    if not isinstance(message, Probe):
                        self._pass_on(connection, message, tensors)
        except FrameError as error:
            reason = f"frame: {error}"
            self.tape.record("refused_frame", peer=peer or "unknown", reason=str(error))
        except OSError as error:
            reason = error.strerror or str(error)
        finally:
            arrived, expected = decoder.pending
            if arrived and not reason.startswith("frame: "):
                self.tape.record("partial_frame", peer=peer or "unknown", bytes=arrived, expected=expected)
            self._writers.pop(connection, None)
            writer.close()
            self.feed(lambda now: self._server_core.on_lost(connection, reason or "closed by the peer", now))

    def _admit(self, message: AnyMessage, writer: asyncio.StreamWriter) -> str:
        """Who this is, by the first frame; empty: nobody who may talk to us."""
        token = message.token if isinstance(message, (Hello, Probe)) else ""
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            self.tape.record("refused_frame", peer="unknown", reason=f"no valid token in the first {message.type}")
            writer.write(self.frame(Refused(reason="wrong token: this is another run's syncer")))
            return ""
        if isinstance(message, Probe):
            writer.write(self.frame(Echo(), {"filling": np.zeros(message.reply_bytes // 4, np.float32)}
                                    if message.reply_bytes else None))
            return "probe"
        return message.node if isinstance(message, Hello) else ""

    def _pass_on(self, connection: int, message: AnyMessage, tensors: Tensors) -> None:
        self.feed(lambda now: self._server_core.on_message(connection, message, tensors, now))
