"""An agent, and the harness' connection with it: what it starts, what becomes of that, and what a lost connection
costs."""

from __future__ import annotations

import ast
import mmap
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from diloco_chaos.harness.places.remote import agent
from diloco_chaos.harness.places.remote.agent import GROWING, WHOLE
from diloco_chaos.harness.places.remote.connection import AgentConnection, AgentError, GoneError

TOKEN = "0123456789abcdef"
WITHIN_S = 20.0


def until(condition, words="it"):
    """Wait for what must come."""
    end = time.monotonic() + WITHIN_S
    while not (found := condition()):
        assert time.monotonic() < end, f"{words} did not come"
        time.sleep(0.01)
    return found


class Place:
    """An agent with a folder of its own, and a connection with it from a folder here."""

    def __init__(self, folder, patience=30.0):
        self.there, self.here = folder / "there", folder / "here"
        self.there.mkdir()
        self.here.mkdir()
        self.errors = folder / "errors"
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, agent.__file__, "--run", str(self.there), "--port", "0", "--patience", str(patience)],
                env=os.environ | {"DILOCO_CHAOS_TOKEN": TOKEN}, stdout=subprocess.PIPE, stderr=errors, text=True)
        self.port = int(self.process.stdout.readline().split()[-1])
        self.connections = []

    def connect(self, token=TOKEN, node="worker"):
        made = AgentConnection(node, self.here, token, lambda: socket.create_connection(("127.0.0.1", self.port), 1.0))
        self.connections.append(made)
        return made

    def close(self):
        for one in self.connections:
            one.close()
        self.process.terminate()
        self.process.wait(WITHIN_S)


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    made.close()


@pytest.fixture
def there(place):
    connection = place.connect()
    assert connection.wait(WITHIN_S)
    return connection


def python(source):
    return [sys.executable, "-c", source]


def test_it_needs_nothing_but_an_old_python():
    source = Path(agent.__file__).read_text()
    tree = ast.parse(source, feature_version=(3, 8))
    imported = {name.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import)
                for name in node.names} | {node.module.split(".")[0] for node in ast.walk(tree)
                                           if isinstance(node, ast.ImportFrom) and node.module}
    assert imported <= sys.stdlib_module_names
    assert not re.search(r"\.removeprefix|\.removesuffix|\bmatch \w+:", source)  # 3.9 and 3.10
    assert not re.search(r"(?<!asyncio\.)\bTimeoutError", source)  # asyncio's is another one before 3.11


def test_what_a_process_writes_is_here_by_the_time_that_its_end_is(place, there):
    write = ("import os\nos.makedirs('tape')\n"
             "with open('tape/worker.0.jsonl', 'w') as f:\n    f.write('x\\n' * 20000)\nprint('said')\nexit(3)")
    there.ask("spawn", name="worker.0", argv=python(write), cwd=str(place.there))
    exit = until(lambda: there.exits.get("worker.0"))
    assert (exit.status, exit.oom) == (3, False)
    assert (place.here / "tape/worker.0.jsonl").read_text() == "x\n" * 20000
    assert (place.here / "logs/worker.0.log").read_text() == "said\n"


def test_a_lost_connection_loses_nothing_and_doubles_nothing(place, there):
    write = ("import os, time\nos.makedirs('tape')\nf = open('tape/worker.0.jsonl', 'w', buffering=1)\n"
             "for n in range(3000):\n    f.write(f'{n}\\n')\n    time.sleep(0.0005)")
    there.ask("spawn", name="worker.0", argv=python(write), cwd=str(place.there))
    while "worker.0" not in there.exits:
        time.sleep(0.1)
        if (connected := there._socket) is not None:
            connected.shutdown(socket.SHUT_RDWR)
    assert (place.here / "tape/worker.0.jsonl").read_text() == "".join(f"{n}\n" for n in range(3000))


def test_what_is_asked_while_nobody_is_connected_is_done_after_that(place):
    place.process.send_signal(signal.SIGSTOP)
    connection = place.connect()
    time.sleep(0.2)
    place.process.send_signal(signal.SIGCONT)
    connection.ask("put", b"content", path="state/file")
    assert (place.there / "state/file").read_bytes() == b"content"


def test_an_agent_that_does_not_answer_is_told_of(place, there):
    place.process.send_signal(signal.SIGSTOP)
    with pytest.raises(AgentError, match=r"worker: its agent was asked to look and did not answer within 0\.3 s"):
        there.ask("look", within=0.3)
    place.process.send_signal(signal.SIGCONT)


def test_nobody_is_let_in_with_another_token(place):
    connection = place.connect("another")
    assert not connection.wait(0.8)


def test_a_kill_reaches_what_it_has_started_too(place, there):
    source = ("import subprocess, sys, time\nchild = subprocess.Popen([sys.executable, '-c', 'import time; "
              "time.sleep(600)'], start_new_session=True)\nprint(child.pid, flush=True)\ntime.sleep(600)")
    there.ask("spawn", name="worker.0", argv=python(source))
    log = place.here / "logs/worker.0.log"
    child = int(until(lambda: log.exists() and log.read_text().strip(), "its child"))
    there.ask("signal", name="worker.0", number=int(signal.SIGKILL))
    assert until(lambda: there.exits.get("worker.0")).status == -signal.SIGKILL
    until(lambda: not Path(f"/proc/{child}").exists(), "the end of its child")


def test_a_stopped_one_is_seen_to_be_and_goes_on(there):
    there.ask("spawn", name="worker.0", argv=python("import time; time.sleep(600)"))
    there.ask("signal", name="worker.0", number=int(signal.SIGSTOP))
    until(lambda: there.ask("stat", name="worker.0")["state"] == "T")
    there.ask("signal", name="worker.0", number=int(signal.SIGCONT))
    until(lambda: there.ask("stat", name="worker.0")["state"] == "S")
    there.ask("signal", name="worker.0", number=int(signal.SIGKILL))


def test_what_is_done_to_one_that_has_ended_is_done_to_nobody(there):
    there.ask("spawn", name="worker.0", argv=python(""))
    until(lambda: "worker.0" in there.exits)
    there.ask("signal", name="worker.0", number=int(signal.SIGKILL))
    with pytest.raises(GoneError):
        there.ask("stat", name="worker.0")


def test_one_is_started_once_however_often_that_is_asked(there):
    first = there.ask("spawn", name="worker.0", argv=python("import time; time.sleep(600)"))["pid"]
    assert there.ask("spawn", name="worker.0", argv=python(""))["pid"] == first
    there.ask("signal", name="worker.0", number=int(signal.SIGKILL))


def test_files_are_put_listed_read_and_removed(place, there):
    there.ask("put", b"one", path="state/a/b")
    assert there.ask("list", path="state")["files"] == {"a/b": 3}
    assert there.fetch("get", path="state/a/b")[1] == b"one"
    there.ask("remove", path="state/a/b")
    with pytest.raises(GoneError):
        there.fetch("get", path="state/a/b")


def test_files_that_are_whole_are_sent_as_such(place, there):
    (place.there / "snapshots").mkdir()
    (place.there / "snapshots/000.safetensors.partial").write_bytes(b"half")
    (place.there / "snapshots/000.safetensors").write_bytes(b"whole")
    until(lambda: (place.here / "snapshots/000.safetensors").exists(), "the snapshot")
    (place.there / "snapshots/000.safetensors").write_bytes(b"another")
    until(lambda: (place.here / "snapshots/000.safetensors").read_bytes() == b"another", "the next")
    assert [path.name for path in (place.here / "snapshots").iterdir()] == ["000.safetensors"]


def test_the_size_of_files_can_be_limited(place, there):
    source = ("import time\nwhile True:\n    with open('big', 'wb') as f:\n        f.write(bytes(1 << 20))\n"
              "    time.sleep(0.01)")
    there.ask("spawn", name="worker.0", argv=python(source), cwd=str(place.there))
    soft, hard = there.ask("limit", name="worker.0", limits=None)["before"]
    there.ask("limit", name="worker.0", limits=(1000, hard))
    assert until(lambda: there.exits.get("worker.0")).status in (1, -signal.SIGXFSZ)
    assert soft == hard


def test_who_is_not_heard_of_is_waited_for_so_long_and_then_all_ends(tmp_path):
    place = Place(tmp_path, patience=1.0)
    try:
        connection = place.connect()
        assert connection.wait(WITHIN_S)
        child = connection.ask("spawn", name="worker.0", argv=python("import time; time.sleep(600)"))["pid"]
        connection.close()
        assert place.process.wait(WITHIN_S) == 0
        until(lambda: not Path(f"/proc/{child}").exists(), "its end")
    finally:
        place.close()


def test_whoever_removes_its_container_hears_the_last_words(place, there):
    source = ("import signal, sys, time\ndef end(*_):\n    print('told', flush=True)\n    sys.exit(0)\n"
              "signal.signal(signal.SIGTERM, end)\nprint('there', flush=True)\ntime.sleep(600)")
    there.ask("spawn", name="worker.0", argv=python(source))
    log = place.here / "logs/worker.0.log"
    until(lambda: log.exists() and "there" in log.read_text())
    place.process.terminate()
    assert until(lambda: there.exits.get("worker.0")).status == 0
    assert log.read_text() == "there\ntold\n"
    assert place.process.wait(WITHIN_S) == 0


@pytest.mark.parametrize(("name", "patterns"), [
    ("tape/other.0.jsonl", GROWING), ("../tape/worker.0.jsonl", GROWING), ("/etc/passwd", GROWING),
    ("tape/../x/worker.0.jsonl", GROWING), ("report.json", WHOLE), ("snapshots/../report.json", WHOLE),
    ("tape/worker.0.jsonl", WHOLE), ("checkpoints/x", WHOLE)])
def test_a_node_that_was_taken_over_writes_no_files_but_its_own(place, name, patterns):
    with pytest.raises(ValueError, match="sent a file that is none of its own"):
        place.connect()._own(name, patterns)


def test_links_in_the_run_s_folder_here_are_not_followed(place, there):
    (place.here / "tape").mkdir()
    (place.here / "tape/worker.0.jsonl").symlink_to(place.here / "elsewhere")
    (place.there / "tape").mkdir()
    (place.there / "tape/worker.0.jsonl").write_text("x\n")
    until(lambda: "OSError" in there._why, "a refusal")
    assert not (place.here / "elsewhere").exists()


def test_garbage_costs_a_connection_and_nothing_else(place, there):
    for garbage in (b"\n", b"{}\n", b"[1]\n", b"x" * 100_000, b'{"token": 5}\n', b'{"token": "' + TOKEN.encode(),
                    b'{"token": "x", "bytes": 4000000000}\n' + b"x" * 100_000, b'{"bytes": -1}\n', b'{"bytes": "x"}\n',
                    b'{"bytes": 1e999}\n', b'{"bytes": []}\n', b"[" * 60_000 + b"\n",
                    '{"token": "\u00e9"}\n'.encode()):
        with socket.create_connection(("127.0.0.1", place.port), 5.0) as stranger:
            stranger.sendall(garbage)
    until(lambda: there.ask("look")["at"] > 0)
    place.close()
    assert place.errors.read_text() == ""


@pytest.mark.parametrize("garbage", [
    b"\n", b"null\n", b"{}", b"[" * 60_000 + b"\n", b'{"bytes": 1e999}\n', b'{"began": "x"}\n', b'{"began": []}\n',
    b"{}\n" + b'{"push": "exit"}\n', b"{}\n" + b'{"push": "exit", "name": "a", "status": []}\n',
    b"{}\n" + b'{"push": "more", "path": "tape/worker.0.jsonl", "at": {}}\n', b"{}\n" + b'{"id": [1]}\n',
    b"{}\n" + b'{"push": []}\n', b"{}\n" + b'{"push": "file", "path": 5}\n'], ids=lambda garbage: str(garbage[:40]))
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_node_that_was_taken_over_and_sends_garbage_is_connected_with_again(tmp_path, garbage):
    answers = [garbage, b'{"boot": "here", "began": 1.5}\n']
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WITHIN_S)
        one = AgentConnection("worker", tmp_path, TOKEN, lambda: socket.create_connection(server.getsockname(), 5.0))
        for answer in answers:
            taken, _ = server.accept()
            taken.makefile("rb").readline()
            taken.sendall(answer)
            if answer is garbage:
                taken.shutdown(socket.SHUT_WR)
        until(lambda: one.began == 1.5, "the agent")
        assert one.wait(WITHIN_S)
        one.close()


def test_strangers_who_say_nothing_keep_nobody_out(place):
    strangers = [socket.create_connection(("127.0.0.1", place.port), 5.0) for _ in range(300)]
    assert place.connect().wait(WITHIN_S)
    until(lambda: len(os.listdir(f"/proc/{place.process.pid}/fd")) < 100, "the end of the oldest")
    for one in strangers:
        one.close()


def test_who_waits_for_an_answer_gets_none_once_nothing_more_is_asked(place, there):
    place.process.send_signal(signal.SIGSTOP)
    closing = threading.Timer(0.2, there.close)
    closing.start()
    began = time.monotonic()
    with pytest.raises(AgentError, match="nothing more is asked of its agent"):
        there.ask("look")
    closing.join()
    assert time.monotonic() - began < WITHIN_S
    with pytest.raises(AgentError):
        there.ask("look")
    place.process.send_signal(signal.SIGCONT)


def test_words_of_a_file_are_replaced_in_place_for_who_has_mapped_it(place, there):
    page = place.there / "page"
    page.write_bytes(bytes(range(16)))
    with open(page, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        there.ask("patch", b"wordmore", path="page", at=[8, 0])
        assert mapped[:] == b"more\x04\x05\x06\x07word\x0c\x0d\x0e\x0f"
    with pytest.raises(GoneError):
        there.ask("patch", b"word", path="no-page", at=[0])


def test_a_signal_that_a_process_does_not_catch_is_not_sent(place, there):
    catches = python("import signal, time\nsignal.signal(61, lambda *_: print('caught', flush=True))\n"
                     "print('on', flush=True)\ntime.sleep(0.2)\ntime.sleep(600)")
    there.ask("spawn", name="worker.0", argv=catches)
    there.ask("spawn", name="worker.1", argv=python("import time; time.sleep(600)"))
    until(lambda: there.ask("catches", name="worker.0", number=61)["catches"])
    assert not there.ask("catches", name="worker.1", number=61, send=True)["catches"]
    there.ask("stat", name="worker.1")  # it lives
    answer = there.ask("catches", name="worker.0", number=61, send=True)
    assert (answer["catches"], answer["pid"]) == (True, there.ask("spawn", name="worker.0", argv=[])["pid"])
    log = place.here / "logs/worker.0.log"
    until(lambda: log.exists() and "caught" in log.read_text())


def test_it_says_what_kind_of_machine_it_is_on(there):
    assert there.machine == os.uname().machine
