"""The syncer's port, before anybody is known: strangers take neither memory nor descriptors that the run needs."""

import asyncio
import contextlib

import numpy as np
import pytest
from msgspec.structs import replace

from diloco_chaos.harness.record.tape.events import PartialFrame, RefusedFrame
from diloco_chaos.harness.record.tape.writing import TapeWriter
from diloco_chaos.harness.trainer.protocol.messages import MESSAGES, Hello
from diloco_chaos.harness.trainers.node import server
from diloco_chaos.harness.trainers.node.failpoints import Failpoints
from diloco_chaos.harness.trainers.node.server import MOST, ServerDriver
from diloco_chaos.harness.trainers.wire.frames import MAX_HEADER, PREFIX, Decoder, encode
from diloco_chaos.harness.trainers.wire.messages import Echo, Probe

HELLO = Hello(token="token", node="learner-1", incarnation=0, step=0, tokens=0, position=0, versions=[-1], steps=[0])
STRANGER = encode(replace(HELLO, token="another"))
LARGE = 32 << 20


def large(frame):
    """The beginning of this frame with a payload that has not come yet."""
    magic, header, _, checksum = PREFIX.unpack_from(frame)
    return PREFIX.pack(magic, header, LARGE, checksum) + frame[PREFIX.size:]


class Core:
    """Notes what reaches it."""

    messages = MESSAGES

    def __init__(self):
        self.heard, self.lost = [], []

    def start(self, now):
        return ()

    def on_message(self, connection, message, tensors, now):
        self.heard.append(message)
        return ()

    def on_lost(self, connection, reason, now):
        self.lost.append(reason)
        return ()


class Port:
    """A syncer's, and what its tape says."""

    def __init__(self, tmp_path):
        self.told, self.core = [], Core()
        tape = TapeWriter(tmp_path / "tape", "syncer", 0, 0.0)
        tape.record = self.told.append
        self.driver = ServerDriver(self.core, tape, 0.0, tmp_path, Failpoints({}), "token")

    async def open(self):
        self.task = asyncio.ensure_future(self.driver.run("127.0.0.1", 0))
        await until(lambda: self.told)
        return self.told[0].port

    def reasons(self):
        return [event.reason for event in self.told if isinstance(event, RefusedFrame)]


async def until(holds):
    """The same event loop runs both sides: nothing is timed, it only has to come about."""
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.001)


def served(tmp_path, scene):
    """Play a scene with clients of a port."""
    async def play():
        port = Port(tmp_path)
        number = await port.open()
        async with contextlib.AsyncExitStack() as open_:
            async def connect():
                reader, writer = await asyncio.open_connection("127.0.0.1", number)
                open_.callback(writer.close)
                return reader, writer
            await scene(port, connect)
        port.driver.feed(None)
        await port.task
        return port
    return asyncio.run(play())


def test_only_so_many_wait_to_be_admitted_and_a_learner_still_gets_in(tmp_path):
    async def scene(port, connect):
        idle = [await connect() for _ in range(3 * MOST)]
        _, learner = await connect()
        learner.write(encode(HELLO))
        await until(lambda: port.core.heard)
        await until(lambda: len(port.driver._writers) <= MOST + 1)
        assert await idle[0][0].read() == b"", "the oldest had to go"
        assert not idle[-1][0].at_eof()
    port = served(tmp_path, scene)
    assert f"{MOST} others came after it before it had shown a token" in port.reasons()


def test_a_learner_is_not_sent_away_for_strangers(tmp_path):
    async def scene(port, connect):
        reader, learner = await connect()
        learner.write(encode(HELLO))
        await until(lambda: port.core.heard)
        for _ in range(2 * MOST):
            await connect()
        learner.write(encode(HELLO))
        await until(lambda: len(port.core.heard) == 2)
        assert not reader.at_eof()
        assert port.core.lost == []
    served(tmp_path, scene)


def test_a_hello_is_due_soon(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "HELLO_S", 0.05)

    async def scene(port, connect):
        reader, _ = await connect()
        known, learner = await connect()
        learner.write(encode(HELLO))
        assert await reader.read() == b""
        await until(lambda: port.reasons())
        assert not known.at_eof(), "who was admitted may be silent for longer"
    assert served(tmp_path, scene).reasons() == ["no token within 0.05 s"]


@pytest.mark.parametrize(("first", "why"), [
    (large(STRANGER), "no valid token in the first hello"),
    (large(STRANGER) + bytes(MAX_HEADER), "no valid token in the first hello"),
    (PREFIX.pack(b"DLC1", 100, LARGE, 0) + bytes(100), "not a message: "),
    (PREFIX.pack(b"DLC1", MAX_HEADER + 1, 0, 0), "oversized frame: header ")])
def test_a_large_frame_of_a_stranger_is_refused_before_it_comes(tmp_path, first, why):
    async def scene(port, connect):
        reader, stranger = await connect()
        stranger.write(first)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        await until(lambda: port.reasons())
    [reason] = served(tmp_path, scene).reasons()
    assert reason.startswith(why)


def test_a_large_frame_of_a_learner_is_waited_for(tmp_path):
    async def scene(port, connect):
        _, learner = await connect()
        learner.write(encode(HELLO) + PREFIX.pack(b"DLC1", 100, LARGE, 0) + bytes(MAX_HEADER))
        await until(lambda: port.core.heard)
        learner.close()
        await until(lambda: port.core.lost)
    port = served(tmp_path, scene)
    assert port.reasons() == []
    [cut] = [event for event in port.told if isinstance(event, PartialFrame)]
    assert (cut.peer, cut.bytes, cut.expected) == ("learner-1", PREFIX.size + MAX_HEADER, PREFIX.size + 100 + LARGE)


def test_nobody_hears_of_strangers(tmp_path):
    async def scene(port, connect):
        for _ in range(5):
            _, stranger = await connect()
            stranger.write(b"GET / HTTP/1.1\r\n\r\n")
        await until(lambda: len(port.reasons()) == 5)
    port = served(tmp_path, scene)
    assert port.core.heard == port.core.lost == []


@pytest.mark.parametrize("filling", [0, 1 << 20])
def test_a_probe_is_answered_when_all_of_it_has_come(tmp_path, filling):
    async def scene(port, connect):
        reader, prober = await connect()
        frame = encode(Probe(token="token", reply_bytes=0), {"filling": np.zeros(filling // 4, np.float32)})
        prober.write(frame[:-1])
        await until(lambda: port.driver._names)
        prober.write(frame[-1:])
        [(message, _)] = list(Decoder(MESSAGES).feed(await reader.read(1 << 16)))
        assert isinstance(message, Echo)
    served(tmp_path, scene)
