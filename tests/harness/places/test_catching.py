"""What goes through the C library's connect() is caught, in whatever way it is asked for."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress

import pytest

from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.catching import Catcher
from diloco_chaos.harness.trainers.core.programs import NODE

CLIENT = """
import errno, select, socket, sys
family, host, port, blocking = sys.argv[1:]
link = socket.socket(getattr(socket, family))
if blocking == "no":
    link.setblocking(False)
    assert link.connect_ex((host, int(port))) in (0, errno.EINPROGRESS)
    assert select.select([], [link], [], 5)[1]
    assert link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    link.setblocking(True)
else:
    link.connect((host, int(port)))
print(link.recv(100).decode())
"""


class Greeter:
    """Says who it is to everybody."""

    def __init__(self, words, family=socket.AF_INET, host="127.0.0.1"):
        self.server, self.words = socket.socket(family), words
        self.server.bind((host, 0))
        self.server.listen()
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                taken, _ = self.server.accept()
            except OSError:
                return
            with taken:
                taken.sendall(self.words.encode())

    def close(self):
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()


@pytest.fixture
def greeters():
    made = [Greeter("direct"), Greeter("direct", socket.AF_INET6, "::1"), Greeter("link")]
    yield made
    for each in made:
        each.close()


@pytest.fixture
def catching(tmp_path):
    made = []

    def catch(way, token="a-token"):
        made.append(Catcher(tmp_path, token, way))
        return made[-1]
    yield catch
    for catcher in made:
        catcher.close()


def ask(environment, family, host, port, blocking="yes"):
    done = subprocess.run([sys.executable, "-c", CLIENT, family, host, str(port), blocking], text=True,
                          capture_output=True, env=os.environ | environment, timeout=20, check=False)
    return done.stdout.strip() or done.stderr


@pytest.mark.parametrize("blocking", ["yes", "no"])
@pytest.mark.parametrize(("family", "host", "which"), [
    ("AF_INET", "127.0.0.1", 0), ("AF_INET6", "::1", 1), ("AF_INET6", "::ffff:127.0.0.1", 0)])
def test_a_connection_is_led_where_the_harness_says(greeters, catching, family, host, which, blocking):
    asked, port = [], greeters[which].port

    def way(node, host, port):
        asked.append((node, host, port))
        return f"127.0.0.1:{greeters[2].port}"
    environment = catching(way).environment("") | {NODE: "worker-1.3"}
    assert ask(environment, family, host, port, blocking) == "link"
    assert asked == [("worker-1", host.removeprefix("::ffff:"), port)]


def test_where_the_harness_knows_no_link_everything_is_as_asked(greeters, catching):
    environment = catching(lambda *_: "").environment("") | {NODE: "worker-1.0"}
    assert ask(environment, "AF_INET", "127.0.0.1", greeters[0].port) == "direct"
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        assert "Connection refused" in ask(environment, "AF_INET", "127.0.0.1", bound.getsockname()[1])


def test_where_nobody_answers_everything_is_as_asked(greeters, catching):
    catcher = catching(lambda *_: f"127.0.0.1:{greeters[2].port}")
    environment = catcher.environment("") | {NODE: "worker-1.0"}
    catcher.close()
    assert ask(environment, "AF_INET", "127.0.0.1", greeters[0].port) == "direct"


def test_what_goes_wrong_is_kept_and_the_connection_is_made(greeters, catching):
    def way(*_):
        raise ValueError("no way")
    catcher = catching(way)
    assert ask(catcher.environment("") | {NODE: "a.0"}, "AF_INET", "127.0.0.1", greeters[0].port) == "direct"
    assert str(catcher.failure) == "no way"


@pytest.mark.parametrize("sent", [b"", b"\n", b"a-token a.0 127.0.0.1\n", b"a-token a.0 127.0.0.1 9x\n", b"\xff" * 400])
def test_questions_that_are_none_get_no_answer(catching, sent):
    catcher = catching(lambda *_: "127.0.0.1:1")
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(catcher.server_address)
        link.sendall(sent)
        link.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            assert link.recv(100) == b""
    assert catcher.failure is None


def test_a_stranger_is_told_of_no_link(catching):
    catcher = catching(lambda *_: "127.0.0.1:1")
    for token, answer in (("a-token", b"127.0.0.1:1\n"), ("another", b"\n")):
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(catcher.server_address)
            link.sendall(f"{token} a.0 127.0.0.1 9\n".encode())
            assert link.recv(100) == answer


def test_with_a_socket_that_is_a_file_it_is_known_who_has_loaded_the_library(tmp_path, greeters):
    """As in a container, which finds the folder under a short name."""
    here = tmp_path / ("long" * 30) / "with space"
    here.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as short:
        os.symlink(here, f"{short}/there")
        catcher = Catcher(here, "a-token", lambda *_: f"127.0.0.1:{greeters[2].port}", mounted_at=f"{short}/there")
        environment = catcher.environment("") | {NODE: "worker-1.3"}
        subprocess.run(["true"], env=os.environ | environment, check=True)
        assert ask(environment, "AF_INET", "127.0.0.1", greeters[0].port) == "link"
    assert catcher.loaded == {"worker-1"}
    catcher.close()
    assert [path.name for path in here.iterdir()] == ["connect.so"]


OTHER_LIBRARY = r"""
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to)) return 1;
    char text[100];
    ssize_t got = read(fd, text, sizeof text);
    return fwrite(text, 1, got, stdout) != got;
}
"""


@pytest.mark.skipif(not shutil.which("musl-gcc") and not os.environ.get("DILOCO_CHAOS_REQUIRE_MUSL"),
                    reason="there is no musl (Debian: musl-tools)")
def test_a_program_with_another_c_library_is_caught_as_well(greeters, catching, tmp_path):
    (tmp_path / "client.c").write_text(OTHER_LIBRARY)
    subprocess.run(["musl-gcc", "-o", "client", "client.c"], cwd=tmp_path, check=True)
    environment = catching(lambda *_: f"127.0.0.1:{greeters[2].port}").environment("") | {NODE: "worker-1.0"}
    done = subprocess.run([tmp_path / "client", str(greeters[0].port)], capture_output=True, text=True, check=True,
                          env=os.environ | environment, timeout=20)
    assert done.stdout == "link"


def test_what_a_command_preloads_itself_stays(catching):
    mine, yours = catching(lambda *_: "").environment("libother.so")["LD_PRELOAD"].split()
    assert yours == "libother.so"
    assert mine.endswith("connect.so")


def test_two_runs_do_not_meet(greeters, catching):
    first = catching(lambda *_: f"127.0.0.1:{greeters[2].port}", "one").environment("") | {NODE: "a.0"}
    second = catching(lambda *_: "", "two").environment("") | {NODE: "a.0"}
    assert ask(first, "AF_INET", "127.0.0.1", greeters[0].port) == "link"
    assert ask(second, "AF_INET", "127.0.0.1", greeters[0].port) == "direct"


def test_many_connections_at_once_are_all_caught(greeters, catching):
    def way(*_):
        time.sleep(0.01)
        return f"127.0.0.1:{greeters[2].port}"
    port = greeters[0].port
    environment = catching(way).environment("") | {NODE: "worker-1.0"}
    many = (f"import socket, threading\ndef one():\n    with socket.create_connection(('127.0.0.1', {port}))"
            " as link: print(link.recv(9).decode() + '\\n', end='')\n"
            "all = [threading.Thread(target=one) for _ in range(100)]\n[each.start() for each in all]\n"
            "[each.join() for each in all]")
    done = subprocess.run([sys.executable, "-c", many], text=True, capture_output=True, timeout=30,
                          env=os.environ | environment, check=True)
    assert done.stdout.split() == ["link"] * 100


def test_without_a_compiler_it_is_said_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(ClusterError, match="needs a C compiler, and there is none: install gcc or clang, or name one"):
        Catcher(tmp_path, "token", lambda *_: "")


def test_a_compiler_that_fails_is_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "false")
    with pytest.raises(ClusterError, match="false could not build the library"):
        Catcher(tmp_path, "token", lambda *_: "")


@pytest.mark.parametrize("name", ["with space", "with:colon"])
def test_a_folder_from_which_nothing_can_be_preloaded_is_refused(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(ClusterError, match="there is a space or a colon"):
        Catcher(tmp_path / name, "token", lambda *_: "")
