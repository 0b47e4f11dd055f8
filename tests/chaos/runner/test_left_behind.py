"""What is left when the harness, its reaper, or both are killed in the middle of a fault: nothing, within 5 seconds."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from diloco_chaos.chaos.runner.cleanup import clean
from diloco_chaos.faults import FAULTS, Composite
from diloco_chaos.harness.base.processes import identity, state, with_token
from diloco_chaos.harness.places.base import EVERYWHERE
from diloco_chaos.harness.places.local import link_server
from diloco_chaos.harness.places.local.link_server import LocalLinkServer
from diloco_chaos.harness.record.undo_log import read, undo_logs_folder

WITHIN_S = 5.0
MARK = "DILOCO_CHAOS_TEST_MARK"

HARNESS = '''
"""A harness with three stub nodes, one fault that it injects, and nothing else."""
import json, os, sys, time
from pathlib import Path

STUB = """
import json, os, socket, sys, time
name, run, tied, port, incarnation, parent = *sys.argv[1:6], int(sys.argv[-1])
if tied == "tied":
    from diloco_chaos.harness.base.parent_death import die_with_parent
    die_with_parent(parent)
server = socket.create_server(("127.0.0.1", int(port or 0)))
with open(f"{run}/tape/{name}.{incarnation}.jsonl", "a") as tape:
    tape.write(json.dumps({"t": 0, "node": name, "inc": int(incarnation), "event": "listening",
                           "port": server.getsockname()[1]}) + chr(10))
while True:
    try:
        link, _ = server.accept()
        link.close()
    except OSError:
        pass
"""


def main(run, settings, tied, toxiproxy):
    from diloco_chaos.chaos.runner.cleanup import clean, cleanup_guard
    from diloco_chaos.harness.places.base import NodeSpec
    from diloco_chaos.harness.places.cluster import Cluster
    from diloco_chaos.harness.places.local.site import LocalSite
    (run / "tape").mkdir(parents=True)
    (run / "state").mkdir()
    for name in ("fragment-00.safetensors", "fragment-00.mirror.safetensors"):
        (run / "state" / name).write_bytes(b"x" * 100_000)

    def node(name, port, **more):
        return NodeSpec(name, (sys.executable, "-c", STUB, name, str(run), tied, port, "{incarnation}"), **more)
    clean()
    with cleanup_guard() as undo_log:
        site = LocalSite(run, lambda event: None, undo_log, toxiproxy=toxiproxy)
        cluster = Cluster(site)
        nodes = [node("syncer", "{listen}", listens=True, state="state"),
                 *(node(f"learner-{number}", "", connects_to="syncer") for number in (1, 2, 3))]
        cluster.start(nodes[:3])
        sensing = None
        if settings:
            settings = {settings.pop("kind"): settings.pop("targets"), **settings}
            from diloco_chaos.chaos.scenario.plan import freeze
            from diloco_chaos.chaos.scenario.loading import parse
            from diloco_chaos.chaos.runner.probing import Sensing
            from diloco_chaos.chaos.runner.runtime import LiveProber
            learners = 2 + bool({"join", "replace"} & settings.keys())
            plan = freeze(parse(json.dumps({"diloco_chaos": 1, "name": "left-behind", "cluster": {"learners": learners},
                                            "faults": [settings]})), 0)
            sensing = Sensing(plan, cluster, LiveProber(undo_log.token),
                              {each.name: each for each in nodes}, undo_log.token)
            planned = plan.faults[0]
            undo_log.cause = planned.id
            planned.fault.inject(sensing.hit(planned))
            sensing.observe(planned)
        print(json.dumps({
            "token": undo_log.token, "undo_log": str(undo_log.path), "api": site.server.server.api,
            "links": [cluster.address(link) for link in ("learner-1", "learner-2")],
            "pids": [site.server.pid, *(one.pid for one in cluster.states().values() if one.pid)]}),
            flush=True)
        while True:
            cluster.poll()
            time.sleep(0.01)


main(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3], sys.argv[4])
'''


@dataclass
class Harness:
    """A running one, and what it told."""

    process: subprocess.Popen
    mark: str
    told: dict

    @property
    def undo_log(self):
        return Path(self.told["undo_log"])

    def nodes(self):
        return with_token(self.told["token"])

    def reapers(self):
        return [who for who in marked(self.mark) if b"diloco_chaos.harness.record.reaper" in command_line(who)]

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


def command_line(who):
    try:
        return Path(f"/proc/{who.pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def marked(mark):
    """Everything that a harness started, in whatever way: the mark is in the environment that it hands down."""
    found, entry_of = [], f"{MARK}={mark}".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if entry_of in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(identity(int(pid)))
        except OSError:
            continue
    return [who for who in found if who]


@pytest.fixture(autouse=True)
def _homes(tmp_path, monkeypatch):
    """Folders for state, cache and temporary files, all empty."""
    for name in ("state", "cache", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))


def heed_ctrl_c():
    """As from a terminal, even where these tests run in the background of a shell, which ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def launch(tmp_path):
    """launch(command) -> the process, its mark; all that it started is ended at the end."""
    marks = []

    def start(*command):
        marks.append(f"{tmp_path}/{len(marks)}")
        process = subprocess.Popen([sys.executable, *command], env=os.environ | {MARK: marks[-1]}, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=heed_ctrl_c)
        return process, marks[-1]
    yield start
    for mark in marks:
        for who in marked(mark):
            os.kill(who.pid, signal.SIGKILL)


@pytest.fixture
def harness(tmp_path, launch):
    """harness(fault) -> a harness in the middle of this fault; several at once with `count`."""
    def start(fault=None, tied="free", toxiproxy="", count=1):
        started = [launch("-c", HARNESS, str(tmp_path / f"run-{number}"), json.dumps(fault), tied, toxiproxy)
                   for number in range(count)]
        made = []
        for process, mark in started:
            line = process.stdout.readline()
            if not line.startswith('{"token"'):
                pytest.fail(line + process.stdout.read())
            made.append(Harness(process, mark, json.loads(line)))
        return made if count > 1 else made[0]
    return start


def listens(address):
    host, port = address.split(":")
    try:
        with socket.create_connection((host, int(port)), 1):
            return True
    except OSError:
        return False


def temporary(tmp_path):
    """Files outside a run's folder that are nobody's but a run's."""
    return [path for path in tmp_path.rglob("*") if not path.relative_to(tmp_path).parts[0].startswith("run")
            and (path.suffix in (".work", ".partial", ".tmp") or path.parent == tmp_path / "tmp")]


def left_of(one, tmp_path):
    """What is still there of a harness that is dead, in words."""
    alive = marked(one.mark)
    return ([f"process {who.pid} {b' '.join(command_line(who)[1:4])}" for who in alive]
            + [f"process {who.pid} with the token" for who in one.nodes()]
            + [f"process {who.pid} is stopped" for who in alive if state(who.pid) == "T"]
            + [f"{address} listens" for address in (one.told["api"], *one.told["links"]) if listens(address)]
            + ([f"{one.undo_log}"] if one.undo_log.exists() else [])
            + [str(path) for path in temporary(tmp_path)])


def gone(one, tmp_path, within=WITHIN_S):
    """Wait until nothing is left; what is left after that."""
    end = time.monotonic() + within
    while (left := left_of(one, tmp_path)) and time.monotonic() < end:
        time.sleep(0.03)
    return left


def until(condition, seconds=WITHIN_S):
    end = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return value


# -- in the middle of every fault ----------------------------------------------------------------------------------

SETTINGS = {
    "kill": {"targets": ["learner-1", "syncer"], "restart_after": "300ms"},
    "terminate": {"targets": ["learner-1", "syncer"], "restart_after": "300ms"},
    "restart": {"targets": ["learner-1", "syncer"]},
    "pause": {"targets": ["learner-1", "syncer"]},
    "straggler": {"targets": ["learner-1", "learner-2"], "factor": 0.05},
    "latency": {"targets": ["syncer"], "profile": "transatlantic"},
    "partition": {"targets": ["syncer"]},
    "join": {"targets": ["learner-3"]},
    "replace": {"targets": ["learner-1"], "with": "learner-3"},
}
"""Where more than one target is to be hit, or not just any."""
OWED = {"pause": "continue", "zombie": "continue", "straggler": "continue", "write_limit": "lift",
        "partition": "enable"}


SINGLE = sorted(kind for kind, fault in FAULTS.items()
                if not issubclass(fault, Composite) and fault.needs <= EVERYWHERE)


def settings(kind):
    return SETTINGS.get(kind, {"targets": ["syncer" if FAULTS[kind].target_role == "syncer" else "learner-1"]})


@pytest.mark.parametrize("kind", SINGLE)
def test_a_harness_that_is_killed_in_the_middle_of_a_fault_leaves_nothing(harness, tmp_path, kind):
    lasts = {"for": "60s"} if FAULTS[kind].reversible else {}
    one = harness({"kind": kind, "at": "0s", **settings(kind), **lasts})
    owed = read(one.undo_log).undos
    if FAULTS[kind].reversible:
        assert {undo.entry for undo in owed} == {OWED.get(kind, "toxic")}
        assert {undo.cause for undo in owed} == {"f1"}
    assert identity(one.process.pid)
    one.kill()
    assert gone(one, tmp_path) == []


@pytest.mark.skipif(not os.environ.get(link_server.VARIABLE), reason="DILOCO_CHAOS_TOXIPROXY names no toxiproxy-server")
def test_the_real_toxiproxy_server_goes_with_its_harness(harness, tmp_path):
    one = harness({"kind": "latency", "at": "0s", "for": "60s", "targets": ["syncer"]},
                  toxiproxy=os.environ[link_server.VARIABLE])
    one.kill()
    assert gone(one, tmp_path) == []


# -- harness and reaper --------------------------------------------------------------------------------------------

PAUSE = {"kind": "pause", "at": "0s", "for": "60s", "targets": ["learner-1", "syncer"]}


def test_killing_the_reaper_alone_disturbs_nothing(harness):
    one = harness(PAUSE)
    before = one.nodes()
    (reaper,) = until(one.reapers)
    os.kill(reaper.pid, signal.SIGKILL)
    (other,) = until(lambda: [who for who in one.reapers() if who != reaper])
    assert other != reaper
    assert one.nodes() == before
    assert one.process.poll() is None


def test_the_reaper_is_killed_and_then_the_harness_once_there_is_another(harness, tmp_path):
    one = harness(PAUSE)
    (reaper,) = until(one.reapers)
    os.kill(reaper.pid, signal.SIGKILL)
    assert until(lambda: [who for who in one.reapers() if who != reaper])
    one.kill()
    assert gone(one, tmp_path) == []


def both_killed(one):
    (reaper,) = until(one.reapers)
    os.kill(one.process.pid, signal.SIGSTOP)  # so that none of them sees the other's end
    os.kill(reaper.pid, signal.SIGKILL)
    one.kill()


def test_both_are_killed_in_the_same_instant_and_the_kernel_ends_what_is_tied(harness, tmp_path):
    one = harness(PAUSE, tied="tied")
    both_killed(one)
    assert until(lambda: marked(one.mark) == []), left_of(one, tmp_path)
    assert left_of(one, tmp_path) == [str(one.undo_log)]
    clean()
    assert left_of(one, tmp_path) == []


@pytest.mark.parametrize("kind", ["pause", "partition", "write_limit"])
def test_both_are_killed_in_the_same_instant_and_clean_does_what_the_kernel_can_not(harness, tmp_path, kind):
    one = harness({"kind": kind, "at": "0s", "for": "60s", "targets": ["syncer"]})
    both_killed(one)
    assert one.nodes(), "these are not tied to their harness"
    assert clean()
    assert gone(one, tmp_path, 1.0) == []
    assert clean() == []


def test_both_are_killed_in_the_same_instant_and_the_next_start_does_the_rest(harness, tmp_path, launch):
    one = harness(PAUSE)
    both_killed(one)
    process, _ = launch("-c", HARNESS, str(tmp_path / "run-next"), "null", "free", "")
    assert process.stdout.readline().startswith('{"token"')
    assert [line for line in left_of(one, tmp_path) if "listens" not in line] == []


# -- several at once -----------------------------------------------------------------------------------------------


def test_twenty_that_are_started_in_parallel_do_not_see_each_other(harness, tmp_path):
    twenty = harness(count=20)
    assert len({one.told["token"] for one in twenty}) == 20
    assert len({port for one in twenty for port in (one.told["api"], *one.told["links"])}) == 60
    pids = {one.told["token"]: {who.pid for who in one.nodes()} for one in twenty}
    assert pids == {one.told["token"]: set(one.told["pids"]) for one in twenty}
    assert set(undo_logs_folder().glob("*")) == {one.undo_log for one in twenty}
    first, *others = twenty
    first.kill()
    assert gone(first, tmp_path) == []
    clean()
    for one in others:
        assert one.process.poll() is None
        assert {who.pid for who in one.nodes()} == pids[one.told["token"]]
        assert all(listens(address) for address in (one.told["api"], *one.told["links"]))
    for one in others:
        one.kill()
    assert [left for one in others for left in gone(one, tmp_path)] == []


def test_a_real_server_whose_port_another_one_took_first_is_not_mistaken_for_ours(tmp_path, monkeypatch):
    """Two starts may choose the same free port; whoever answers there first need not be the process just started."""
    address, started = tmp_path / "address", []

    def spawn(argv):
        started.append(subprocess.Popen(argv))
        return started[-1]
    try:
        spawn([sys.executable, "-m", "diloco_chaos.harness.links.server", "--port", "0",
               "--address-file", str(address)])
        assert until(address.exists, 15)
        taken = int(address.read_text().rpartition(":")[2])
        ports = iter([taken, *(link_server.free_port() for _ in range(5))])
        monkeypatch.setattr(link_server, "free_port", lambda: next(ports))
        slow = tmp_path / "toxiproxy-server"
        slow.write_text(f"#!/bin/sh\nsleep 0.3\nexec {sys.executable} -m diloco_chaos.harness.links.server --port $4\n")
        slow.chmod(0o755)
        server = LocalLinkServer(tmp_path, spawn, lambda: "", binary=str(slow))
        assert server.api != f"127.0.0.1:{taken}"
        assert server.identity.pid == started[-1].pid
    finally:
        for process in started:
            process.kill()
            process.wait()


# -- real runs -----------------------------------------------------------------------------------------------------


def real_run(tmp_path, launch, text):
    file = tmp_path / "small.yaml"
    file.write_text(text)
    return launch("-m", "diloco_chaos", "run", str(file), "--runs-dir", str(tmp_path / "runs"))


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_leaves_nothing_but_the_runs_folder(tmp_path, launch, scenario_text, times):
    process, mark = real_run(tmp_path, launch, scenario_text(
        "{straggler: learner-1, at: 0s, for: 60s, id: slow}", "{partition: learner-2, at: 0s, for: 60s}",
        "{pause: syncer, at: 200ms, for: 60s}", budget=3000, deadline="100s", learners=2))
    assert any("pause syncer" in line for line in process.stdout)
    assert len(marked(mark)) >= 5
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    rest = process.stdout.read()
    assert process.wait(WITHIN_S) == 130, rest
    assert "INTERRUPTED" in rest
    assert marked(mark) == []
    assert list(undo_logs_folder().glob("*")) == []
    assert temporary(tmp_path) == []


def test_the_folder_in_which_a_reference_is_trained_goes_with_the_harness(tmp_path, launch, scenario_text):
    text = scenario_text(budget=2000, learners=2).replace("heartbeat_timeout: 2s",
                                                          "heartbeat_timeout: 2s, warm_start: 100")
    process, mark = real_run(tmp_path, launch, text)
    references = tmp_path / "cache" / "diloco-chaos" / "references"
    assert until(lambda: list(references.glob("*.work/tape/learner-1.0.jsonl")), 30), process.stdout.read()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert until(lambda: marked(mark) == [])
    assert until(lambda: not temporary(tmp_path)), temporary(tmp_path)
    assert until(lambda: not list(undo_logs_folder().glob("*")))
    for lock in references.glob("*.lock"):
        with open(lock) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody holds it


KILLED_AT = """
import os, signal, sys
from pathlib import Path
from diloco_chaos.chaos.cli import main

where, call, *sys.argv[1:] = sys.argv[1:]
before = getattr(Path, call)

def deadly(path, *arguments, **options):
    if where in str(path):
        os.kill(os.getpid(), signal.SIGKILL)
    return before(path, *arguments, **options)

setattr(Path, call, deadly)
main()
"""


@pytest.mark.parametrize(("path", "call"), [
    ("corpora/", "replace"),  # the corpus is written, and not yet in its place
    (".work/tape", "mkdir"),  # the folder is about to be made
], ids=["corpus", "reference"])
def test_what_was_just_begun_in_the_cache_goes_with_the_harness(tmp_path, launch, scenario_text, path, call):
    file = tmp_path / "small.yaml"
    file.write_text(scenario_text(learners=2).replace("heartbeat_timeout: 2s", "heartbeat_timeout: 2s, warm_start: 20"))
    process, _ = launch("-c", KILLED_AT, path, call, "run", str(file), "--runs-dir", str(tmp_path / "runs"))
    assert process.wait(30) == -signal.SIGKILL, process.stdout.read()
    assert until(lambda: not list(undo_logs_folder().glob("*")))
    assert until(lambda: not temporary(tmp_path), 2), temporary(tmp_path)
