"""Questions through a link, and contributions that no learner should send: both against a real server."""

import asyncio
import socket
import threading
from contextlib import contextmanager

import pytest

from diloco_chaos.harness.record.storage.disk import FolderDisk
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.record.tape.writing import TapeWriter
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.coordinator.fragment_state import restore
from diloco_chaos.harness.trainer.coordinator.syncer import Syncer
from diloco_chaos.harness.trainer.protocol.byzantine import rogue
from diloco_chaos.harness.trainer.protocol.messages import Hello, Report
from diloco_chaos.harness.trainers.node.failpoints import Failpoints
from diloco_chaos.harness.trainers.node.server import ServerDriver
from diloco_chaos.harness.trainers.wire.frames import encode
from diloco_chaos.harness.trainers.wire.impersonation import attack
from diloco_chaos.harness.trainers.wire.probe import probe

TOKEN = "a" * 32
CONFIG = TrainerConfig(model="micro", fragments=4, learners=2, budget=50)


@pytest.fixture
def syncer(tmp_path):
    """The address of a syncer that serves, and the tape that it leaves."""
    tape = TapeWriter(tmp_path / "tape", "syncer", 0, 0.0)
    found = restore(FolderDisk(tmp_path / "state"), CONFIG.fragment_table(), CONFIG.spec.initial(0), 0)
    driver = ServerDriver(Syncer(CONFIG, found), tape, 0.0, tmp_path, Failpoints({}), TOKEN)
    loop = asyncio.new_event_loop()
    serving = threading.Thread(target=lambda: loop.run_until_complete(driver.run("127.0.0.1", 0)))
    serving.start()

    def events(*names):
        return Tape.read(tmp_path / "tape").named(*names)
    while not events("listening"):
        pass
    yield f"127.0.0.1:{events('listening')[0].port}", events
    loop.call_soon_threadsafe(driver.feed, None)
    serving.join()
    loop.close()


def test_a_probe_is_answered_with_as_much_as_it_asked_for(syncer):
    address, _ = syncer
    short, long = probe(address, TOKEN), probe(address, TOKEN, reply_bytes=100_000)
    assert short.answered
    assert long.answered
    assert 100_000 <= long.received - short.received < 100_200
    assert probe(address, TOKEN, send_bytes=100_000).answered


def test_a_probe_can_watch_how_the_connection_ends(syncer):
    sounding = probe(syncer[0], TOKEN, watch_close=True)
    assert sounding.answered
    assert sounding.closing is not None
    assert probe(syncer[0], TOKEN).closing is None


def test_a_stranger_gets_no_answer(syncer):
    assert probe(syncer[0], "b" * 32).end == "closed"


@contextmanager
def server(behaviour):
    """Somebody who accepts one connection and does this with it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        def serve():
            link, _ = listening.accept()
            with link:
                behaviour(link)
        thread = threading.Thread(target=serve)
        thread.start()
        yield "{}:{}".format(*listening.getsockname())
        thread.join()


def _reset(link):
    link.recv(4)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


@pytest.mark.parametrize(("behaviour", "end"), [
    (lambda link: link.recv(1000), "closed"), (_reset, "reset"),
    (lambda link: link.sendall(b"HTTP/1.1 200 OK"), "closed")])
def test_what_becomes_of_a_question_is_told_apart(behaviour, end):
    with server(behaviour) as address:
        assert probe(address, TOKEN).end in ({end, "reset"} if end == "closed" else {end})


def test_silence_and_refusal_are_no_errors_either():
    over = threading.Event()
    with server(lambda link: over.wait(5)) as address:
        sounding = probe(address, TOKEN, timeout_s=0.05)
        over.set()
    assert sounding.end == "silent"
    assert sounding.seconds >= 0.05
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = "{}:{}".format(*free.getsockname())
    assert probe(address, TOKEN).end == "refused"


@pytest.mark.parametrize(("content", "reason"), [("nan", "not finite"), ("inf", "not finite"),
                                                 ("shape", "wrong shapes")])
def test_poison_is_asked_for_sent_refused_and_never_merged(syncer, content, reason):
    address, events = syncer
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as link:
        honest = {"tokens": 0, "position": 0}
        link.sendall(encode(Hello(token=TOKEN, node="learner-2", incarnation=0, step=1, versions=[0] * 4, steps=[0] * 4,
                                  **honest)))
        for step in range(2, 21):  # time passes: all fragments are due
            link.sendall(encode(Report(step=step, fragments=[(0, 0, 0)] * 4, **honest)))
        assert_refused(address, events, content, reason)


def assert_refused(address, events, content, reason):
    assert attack(rogue(TOKEN, "learner-1", 0, CONFIG, content), address, 2, 5.0) == 2
    while len(events("refused")) < 2:
        pass
    assert {event.reason for event in events("refused")} == {reason}
    assert all(event.first == event.last for event in events("refused"))
    assert not events("merge")


def test_poison_finds_nobody_where_nobody_is():
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = "{}:{}".format(*free.getsockname())
    assert attack(rogue(TOKEN, "learner-1", 0, CONFIG, "nan"), address, 2, 5.0) == 0
