"""Drives the core that others connect to: accepts them on a loopback port."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

import numpy as np

from diloco_chaos.harness.base.crowd import Crowd
from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.record.tape import events
from diloco_chaos.harness.record.tape.writing import TapeWriter
from diloco_chaos.harness.trainers.core.effects import Close, Compute, Effect, Send, Snapshot, Stop
from diloco_chaos.harness.trainers.core.roles import Coordinator
from diloco_chaos.harness.trainers.node.driver import Driver
from diloco_chaos.harness.trainers.node.failpoints import Failpoints
from diloco_chaos.harness.trainers.node.refusals import STRANGER, Refusals
from diloco_chaos.harness.trainers.storage.workings import Workings
from diloco_chaos.harness.trainers.wire.frames import MAX_HEADER, Decoder, FrameError
from diloco_chaos.harness.trainers.wire.messages import Echo, Introduction, Message, Probe, Refused
from diloco_chaos.harness.trainers.wire.token import matches
from diloco_chaos.harness.trainers.wire.traffic import TrafficCounter

HELLO_S = 5.0
"""A first frame with the run's token is due within so long."""
MOST = 64
"""Connections that wait for it at the same time: strangers take neither memory nor descriptors that the run needs."""
_CHUNK = 1 << 18
_FLUSH_S = 2.0
_LOOK_S = 0.01
_PROBE = "probe"


class ServerDriver(Driver):
    """Many connections, one core. Frames that can't be trusted end their connection, are recorded, and harm nobody
    else."""

    def __init__(self, core: Coordinator, tape: TapeWriter, epoch: float, run: Path, failpoints: Failpoints,
                 token: str, workings: Workings | None = None) -> None:
        super().__init__(core, tape, epoch, run, failpoints, workings)
        self._server_core, self._token = core, token
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._names: dict[int, str] = {}  # of those who were admitted
        self._lobby, self._refusals = Crowd[int](MOST), Refusals(tape.record, self.now)
        self._numbers = count(1)
        self._traffic = TrafficCounter()

    async def run(self, host: str, port: int) -> None:
        """Serve until training is over.

        Raises:
            OSError: the port can't be bound.
        """
        server = await asyncio.start_server(self._accept, host, port)
        self.tape.record(events.Listening(host=host, port=server.sockets[0].getsockname()[1]))
        self.feed(self._server_core.start)
        await self.serve()
        server.close()
        await self._all_heard()
        self._refusals.sum_up()
        for writer in self._writers.values():
            writer.close()
        await asyncio.wait([asyncio.ensure_future(self._flushed(writer)) for writer in self._writers.values()]
                           or [asyncio.ensure_future(asyncio.sleep(0))], timeout=_FLUSH_S)

    async def _all_heard(self) -> None:
        """Leave peers the time to read the last frame, and to close. Were a connection closed on which something of
        theirs is still on its way, it would be reset, and what they had not read yet would be lost."""
        until = self.now() + _FLUSH_S
        while set(self._names.values()) - {_PROBE} and self.now() < until:
            await asyncio.sleep(_LOOK_S)

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
        if isinstance(effect, Snapshot | Stop | events.Steady):
            self.tape.record(self._traffic.event())

    def frame(self, message: Message, tensors: Tensors | None = None) -> bytes:
        """Counted, too."""
        frame = super().frame(message, tensors)
        self._traffic.sent[message.type] += len(frame)
        return frame

    def compute(self, effect: Compute) -> None:
        """It does not train."""
        raise NotImplementedError

    async def _flushed(self, writer: asyncio.StreamWriter) -> None:
        try:
            await writer.wait_closed()
        except OSError:
            pass  # the learner went first: there is nobody left to flush to

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = next(self._numbers)
        self._writers[connection] = writer
        self._make_room_for(connection)
        decoder = Decoder(self._server_core.messages, self._traffic.received)
        reason, garbled = "closed by the peer", False
        try:
            async with asyncio.timeout(HELLO_S) as limit:
                while data := await reader.read(_CHUNK if connection in self._names else MAX_HEADER):
                    if connection not in self._names:
                        begun, data = decoder.first(data), b""
                        if begun is None:
                            continue
                        if not self._admit(connection, begun, writer):
                            return
                        limit.reschedule(None)
                    for message, tensors in decoder.feed(data):
                        if isinstance(message, Probe):
                            writer.write(self._echo(message))
                        else:
                            self._pass_on(connection, message, tensors)
        except FrameError as error:
            reason, garbled = f"frame: {error}", True
            self._refusals.record(events.RefusedFrame(peer=self._peer(connection), reason=str(error)))
        except OSError as error:
            reason = error.strerror or str(error)
            if limit.expired():
                self._refusals.record(events.RefusedFrame(peer=STRANGER, reason=f"no token within {HELLO_S:g} s"))
        finally:
            arrived, expected = decoder.pending
            if arrived and not garbled:
                self._refusals.record(events.PartialFrame(peer=self._peer(connection), bytes=arrived,
                                                          expected=expected))
            self._gone(connection, writer, reason)

    def _make_room_for(self, connection: int) -> None:
        """Whoever waits longest to be admitted has to go, where too many do."""
        oldest = self._lobby.enter(connection)
        if oldest is not None:
            why = f"{MOST} others came after it before it had shown a token"
            self._refusals.record(events.RefusedFrame(peer=STRANGER, reason=why))
            self._writers[oldest].transport.abort()

    def _gone(self, connection: int, writer: asyncio.StreamWriter, reason: str) -> None:
        self._lobby.leave(connection)
        self._writers.pop(connection, None)
        writer.close()
        if self._names.pop(connection, None) is not None:  # nobody knew of any other
            self.feed(lambda now: self._server_core.on_lost(connection, reason, now))

    def _peer(self, connection: int) -> str:
        return self._names.get(connection, STRANGER)

    def _admit(self, connection: int, message: Message, writer: asyncio.StreamWriter) -> bool:
        """Return whether the sender of the first frame, by its beginning, may talk to us."""
        token = message.token if isinstance(message, (Introduction, Probe)) else ""
        if not matches(token, self._token):
            why = f"no valid token in the first {message.type}"
            self._refusals.record(events.RefusedFrame(peer=STRANGER, reason=why))
            writer.write(self.frame(Refused(reason="wrong token: this is another run's syncer")))
            return False
        self._lobby.leave(connection)
        self._names[connection] = message.node if isinstance(message, Introduction) else _PROBE
        return True

    def _echo(self, probe: Probe) -> bytes:
        return self.frame(Echo(), {"filling": np.zeros(probe.reply_bytes // 4, np.float32)}
                          if probe.reply_bytes else None)

    def _pass_on(self, connection: int, message: Message, tensors: Tensors) -> None:
        self.feed(lambda now: self._server_core.on_message(connection, message, tensors, now))
