"""The engine: errors say what to do next; what carries a run's label is found and removed, and nothing else."""

import os
import secrets
import socket
import subprocess
import threading
import types

import pytest

from diloco_chaos.harness.base.processes import identity
from diloco_chaos.harness.places.compose import engine as engines
from diloco_chaos.harness.places.compose.engine import (
    HARNESS,
    RUN,
    DockerEngine,
    EngineError,
    Labels,
    dead_runs,
    run_label,
)

IMAGE = "python:3.11-slim"


def refused(url=""):
    with pytest.raises(EngineError) as error:
        DockerEngine(url)
    return str(error.value)


@pytest.fixture
def nobody_listens(tmp_path):
    """A socket's file whose listener is gone."""
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
    return path


@pytest.mark.parametrize("url", ["tcp://10.0.0.1:2375", "ssh://me@there", "npipe:////./pipe/docker_engine"])
def test_an_engine_elsewhere_is_refused_with_what_to_do(monkeypatch, url):
    monkeypatch.setenv("DOCKER_HOST", url)
    words = refused()
    assert words.startswith(f"DOCKER_HOST is {url}: the engine must run on this machine")
    assert "unset it, or name a Unix socket" in words


def test_an_engine_that_is_not_there_is_named_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    words = refused()
    assert f"no Docker engine runs: there is no {tmp_path}/docker.sock; start it" in words
    assert "--on local" in words


def test_an_engine_that_does_not_listen_is_named_with_what_to_do(nobody_listens):
    words = refused(f"unix://{nobody_listens}")
    assert f"no Docker engine answers at {nobody_listens}" in words
    assert "start it (sudo systemctl start docker), or run with --on local" in words


def test_an_engine_that_may_not_be_used_says_who_may(nobody_listens, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode, **more: False)
    words = refused(f"unix://{nobody_listens}")
    assert f"you may not use the Docker engine at {nobody_listens}" in words
    assert "sudo usermod -aG docker" in words


def test_somebody_who_is_no_engine_is_an_error_and_no_crash(tmp_path):
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer():
            while True:
                try:
                    link, _ = listener.accept()
                except OSError:
                    return
                with link:
                    link.recv(4096)
                    link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        words = refused(f"unix://{path}")
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    assert str(path) in words


@pytest.mark.parametrize(("info", "words"), [
    ({"KernelVersion": "5.15.49-linuxkit"}, "runs in a machine of its own"),
    ({"KernelVersion": os.uname().release, "SecurityOptions": ["name=seccomp", "name=rootless"]}, "is rootless"),
    ({"KernelVersion": os.uname().release, "SecurityOptions": None, "ServerVersion": "1"}, "")])
def test_an_engine_that_cant_share_this_machine_is_refused(monkeypatch, info, words):
    class Client:
        def info(self):
            return info
    monkeypatch.setattr(engines, "_connected", lambda url: Client())
    if words:
        assert words in refused("unix:///x")
    else:
        assert DockerEngine("unix:///x").version == "1"


def test_an_image_that_is_missing_is_named_with_how_to_get_it(engine):
    with pytest.raises(EngineError, match=r"^image no-such:1 is not there: build it$"):
        engine.image("no-such:1", "build it")
    engine.image(IMAGE, "")


def test_an_image_with_an_impossible_name_is_an_error_that_names_it(engine):
    with pytest.raises(EngineError, match="No Such: x"):
        engine.image("No Such: x", "build it")


def test_a_file_is_read_out_of_an_image_that_is_never_run(engine):
    assert engine.file_of(IMAGE, "/etc/debian_version").startswith(b"12")
    assert engine.file_of(IMAGE, "/no/such") is None
    assert engine.file_of(IMAGE, "/etc") is None
    with pytest.raises(EngineError, match=r"^look into no-such:1: "):
        engine.file_of("no-such:1", "/etc/debian_version")
    assert engine.labelled(Labels(f"look{os.getpid()}", "").run) == []


# -- what carries a label ----------------------------------------------------------------------------------------------


class Things:
    """A container, a network and a volume, with labels or without."""

    def __init__(self, engine, name, labels):
        self.name, self.client = name, engine.client
        self.container = self.client.containers.create(IMAGE, ["sleep", "60"], name=name, labels=labels, network=None)
        self.network = self.client.networks.create(name, labels=labels)
        self.volume = self.client.volumes.create(name, labels=labels)

    def there(self):
        kinds = {"container": self.client.containers.list(all=True), "network": self.client.networks.list(),
                 "volume": self.client.volumes.list()}
        return {kind for kind, found in kinds.items() if self.name in {one.name for one in found}}

    def remove(self):
        for one in (self.container, self.network, self.volume):
            try:
                one.remove(force=True) if one is not self.network else one.remove()
            except engines.NotFound:
                pass


@pytest.fixture
def make(engine):
    made = []

    def things(labels):
        made.append(Things(engine, f"test-engine-{secrets.token_hex(4)}", labels))
        return made[-1]
    yield things
    for one in made:
        one.remove()


ALL = {"container", "network", "volume"}


def test_exactly_what_carries_a_runs_label_is_listed_and_removed(engine, make):
    token = secrets.token_hex(16)
    run, other = run_label(token), run_label(secrets.token_hex(16))
    me = identity(os.getpid())
    alive = f"{me.pid}-{me.start}"  # what a dead harness left, any other test may remove
    ours, theirs, nobodys = make(Labels(token, "p").of()), make({RUN: other, HARNESS: alive}), make({"app": run})
    ours.container.start()
    found = engine.labelled(run)
    assert {(thing.kind, thing.name, thing.run) for thing in found} == {(kind, ours.name, run) for kind in ALL}
    assert {thing.harness for thing in found} == {alive}
    assert {thing.name for thing in engine.labelled()} >= {ours.name, theirs.name}
    assert nobodys.name not in {thing.name for thing in engine.labelled()}
    assert set(engine.remove(run)) == {f"{kind} {ours.name} removed" for kind in ALL}
    assert (ours.there(), theirs.there(), nobodys.there()) == (set(), ALL, ALL)
    assert engine.remove(run) == []
    assert engine.labelled(run) == []


def test_what_somebody_removes_at_the_same_time_is_no_error(engine, make):
    token = secrets.token_hex(16)
    ours, failed = make(Labels(token, "p").of("worker")), []
    ours.container.start()

    def remove():
        try:
            engine.remove(run_label(token))
        except Exception as error:
            failed.append(error)
    threads = [threading.Thread(target=remove) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    engine.remove(run_label(token))
    assert ours.there() == set()


def test_a_volume_that_somebody_else_uses_is_an_error_that_names_it(engine, make):
    token = secrets.token_hex(16)
    ours = make(Labels(token, "p").of())
    user = engine.client.containers.create(IMAGE, ["true"], name=f"{ours.name}-user",
                                           volumes={ours.name: {"bind": "/x", "mode": "rw"}})
    try:
        with pytest.raises(EngineError, match="volume is in use"):
            engine.remove(run_label(token))
    finally:
        user.remove(force=True)
    assert engine.remove(run_label(token)) == [f"volume {ours.name} removed"]


def test_a_run_without_a_label_is_refused_and_nothing_is_looked_for(monkeypatch):
    asked = []
    nothing = types.SimpleNamespace(list=lambda **filters: asked.append(filters) or [])
    client = types.SimpleNamespace(containers=nothing, networks=nothing, volumes=nothing,
                                   info=lambda: {"KernelVersion": os.uname().release})
    monkeypatch.setattr(engines, "_connected", lambda url: client)  # never a real one: it would remove all runs
    with pytest.raises((EngineError, ValueError)):
        DockerEngine("unix:///x").remove("")
    assert asked == []


def test_runs_whose_harness_is_gone_are_told_from_those_that_live(engine, make):
    gone = subprocess.Popen(["sleep", "60"])
    who = identity(gone.pid)
    me = identity(os.getpid())
    runs = {what: run_label(secrets.token_hex(16)) for what in ("living", "gone", "reused", "strange")}
    make({RUN: runs["living"], HARNESS: f"{me.pid}-{me.start}"})
    make({RUN: runs["gone"], HARNESS: f"{who.pid}-{who.start}"})
    make({RUN: runs["reused"], HARNESS: f"{me.pid}-{me.start - 1}"})
    make({RUN: runs["strange"], HARNESS: "what-ever"})
    mine = set(runs.values())
    assert mine & set(dead_runs(engine)) == {runs["reused"], runs["strange"]}
    gone.kill()
    gone.wait()
    dead = dead_runs(engine)
    assert mine & set(dead) == {runs["gone"], runs["reused"], runs["strange"]}
    assert dead == sorted(set(dead))


def test_labels_are_composes_too_and_no_secret():
    token = secrets.token_hex(16)
    labels = Labels(token, "my-run").of("learner-1")
    assert labels[RUN] == token[:12]
    assert labels["com.docker.compose.project"] == "my-run"
    assert labels["com.docker.compose.service"] == "learner-1"
    assert token not in str(labels)
    assert "com.docker.compose.service" not in Labels(token, "my-run").of()
