"""Starts one node's processes where the harness is not, and tells it what becomes of them.

This file is sent to where it runs, which may be an image that has nothing of ours: it needs Python 3.8 and nothing
else. It listens on loopback, knows the harness by the run's token, and speaks in frames: a line of JSON, and after it
as many bytes as the line says in `bytes`; `--bridge` leads to it from standard input. What nodes write is kept on its
disk and sent as it grows, from wherever the harness has it up to, so that a lost connection loses nothing. Where the
harness is not heard of for longer than `--patience`, it ends everything and itself.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import json
import mmap
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOKEN = "DILOCO_CHAOS_TOKEN"  # noqa: S105 - the name of a variable
NODE = "DILOCO_CHAOS_NODE"
"""A variable that all processes of a command have: whose it is."""
LOOPBACK = "127.0.0.1"
GROWING = ("tape/*.jsonl", "logs/*.log", "workings/*.bin", "progress/*.jsonl")
"""Files that only grow, below the run's folder: each is sent on as it does."""
WHOLE = ("snapshots/*", "checkpoints/*/*")
"""Files that are there as a whole: each is sent once it is."""
UNFINISHED = (".partial", ".tmp")
"""What the name of a file ends with that is not whole yet."""
_LOOK_S, _LOOK_WHOLE_S = 0.03, 0.3
_CHUNK = 1 << 20
_LONGEST_LINE, _LARGEST = 1 << 16, 1 << 31
_HELLO_S = 5.0
_MOST_STRANGERS = 64
"""Connections that have not said hello; then the oldest has to go. All who are on its machine can reach its port."""
_LAST_WORDS_S, _SPARED_S, _COUNT_S = 1.5, 0.5, 0.5
"""Of the two seconds that a pod has where nothing else was said; of more, all but half a second."""
_MOST_STACKS, _LONGEST_COMMAND = 16, 160
"""Processes of a node whose stacks are sent, and characters of their commands."""
_ZEROS = bytes(1 << 16)
_NO_FRAME = (ValueError, TypeError, OverflowError, RecursionError)
"""What comes of reading something else."""


class StartedProcesses:
    """The processes that an agent has started."""

    def __init__(self, shared: bool) -> None:
        """`shared`: others use what they run in, too; then what they use is counted one by one."""
        self.exits: dict[str, dict[str, Any]] = {}
        """Name -> how it ended."""
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._pids_in: dict[str, Path] = {}  # name -> the file with the pid, where a launcher starts the process
        self._spent: dict[int, float] = {}  # process -> seconds of processor that it was seen to have used
        self._out_of_memory = _out_of_memory()
        self._cgroup = None if shared else _cgroup_cpu()
        self._shared, self._counted = shared, 0.0

    def start(self, name: str, argv: list[str], log: Path, cwd: str | None, env: dict[str, str],
              pid_in: Path | None) -> int:
        """Start a process in a session of its own; one of that name that was started already is left as it is.
        `pid_in`: where the process' own pid is written to, if this is only what launches it. Return the pid of what was
        started."""
        if name not in self._children:
            if pid_in is not None:
                self._pids_in[name] = pid_in
                pid_in.parent.mkdir(parents=True, exist_ok=True)
            log.parent.mkdir(parents=True, exist_ok=True)
            with open(log, "wb") as file:
                self._children[name] = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=cwd, env={**os.environ, **env},
                    start_new_session=True)
        return self._children[name].pid

    @property
    def all_over(self) -> bool:
        """Return whether every process has ended."""
        return len(self.exits) == len(self._children)

    def pid(self, name: str) -> int:
        """Return the pid of a process that goes on.

        Raises:
            ProcessLookupError: it does not, or was not launched yet.
        """
        if name in self.exits or name not in self._children:
            raise ProcessLookupError(name)
        if name not in self._pids_in:
            return self._children[name].pid
        try:
            return int(self._pids_in[name].read_text().split()[0])
        except (OSError, ValueError, IndexError):  # it was not launched yet
            raise ProcessLookupError(name) from None

    def send(self, name: str, number: signal.Signals) -> None:
        """Signal a process. SIGKILL, SIGSTOP and SIGCONT reach all its descendants, too. A process that has ended gets
        no signal."""
        if name in self.exits or name not in self._children:
            return
        try:
            pid = self.pid(name)
        except ProcessLookupError:
            pid = self._children[name].pid  # what would launch it, then
        descendants_too = number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT)
        for target in [pid, *(_below(pid) if descendants_too else ())]:
            try:
                os.kill(target, number)
            except ProcessLookupError:
                continue

    def send_all(self, number: signal.Signals) -> None:
        """Signal all processes that go on."""
        for name in self._children:
            self.send(name, number)

    def used(self) -> float:
        """Seconds of processor, of all that what they run in has had."""
        if not self._shared:
            return _number(self._cgroup) / 1e9 if self._cgroup else 0.0
        if time.monotonic() > self._counted + _COUNT_S:
            self._counted = time.monotonic()
            for name in self._children:
                try:
                    first = self.pid(name)
                except ProcessLookupError:
                    continue
                for pid in [first, *_started_by(first)]:
                    self._spent[pid] = max(self._spent.get(pid, 0.0), _processor(pid))
        return time.process_time() + sum(self._spent.values())

    def reap(self) -> None:
        """Children have ended: those that were asked for, and what they left to this process."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            name = next((name for name, child in self._children.items() if child.pid == pid), "")
            if name:
                code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                oom = code == -signal.SIGKILL and _out_of_memory() > self._out_of_memory
                self._out_of_memory += oom  # it has been told whom the kernel killed that time
                self.exits[name] = {"status": code, "oom": oom}


class Agent:
    """See the module."""

    def __init__(self, run: Path, token: str, patience: float, *, shared: bool = False) -> None:
        """`shared`: others use what it runs in, too; then what its own processes use is counted one by one."""
        self.run, self.patience = run, patience
        self._token = token
        self._processes = StartedProcesses(shared)
        self._heard, self._began = time.monotonic(), time.time()
        self._writer: asyncio.StreamWriter | None = None
        self._strangers: list[asyncio.StreamWriter] = []  # the oldest first
        self._sending = asyncio.Lock()
        self._over, self._last_words_s = asyncio.Event(), _LAST_WORDS_S
        self._ending: asyncio.Future[None] | None = None

    async def serve(self, port: int, port_file: Path | None = None) -> None:
        """Serve until the harness says that it is over, or is not heard of any more. `port_file`: gets the port,
        once."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._processes.reap)
        loop.add_signal_handler(signal.SIGTERM, self._on_sigterm)
        server = await asyncio.start_server(self._connected, LOOPBACK, port, limit=_LONGEST_LINE)
        port = server.sockets[0].getsockname()[1]
        print(f"the agent listens on {port}", flush=True)
        if port_file is not None:
            port_file.with_suffix(UNFINISHED[0]).write_text(str(port))
            port_file.with_suffix(UNFINISHED[0]).replace(port_file)
        while not self._over.is_set():
            left = self.patience - (time.monotonic() - self._heard)
            if left <= 0:
                print(f"the harness was not heard of for {self.patience:g} s", flush=True)
                break
            try:
                await asyncio.wait_for(self._over.wait(), left)
            except asyncio.TimeoutError:  # noqa: UP041 - another one than the built-in before Python 3.11
                continue
        server.close()
        self._processes.send_all(signal.SIGKILL)

    def _on_sigterm(self) -> None:
        """Pass SIGTERM on to the processes, as container engines do, and send for a moment what they say last."""
        self._processes.send_all(signal.SIGTERM)
        self._ending = asyncio.ensure_future(self._end())

    async def _end(self) -> None:
        until = time.monotonic() + self._last_words_s
        while time.monotonic() < until and not self._processes.all_over:
            await asyncio.sleep(_LOOK_S)
        await asyncio.sleep(_LOOK_S * 3)  # what follows the growth of files has seen it by then
        self._over.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of the harness; a newer one replaces it."""
        sender: asyncio.Task[None] | None = None
        try:
            hello = await self._hello(reader, writer)
            if not hmac.compare_digest(str(hello.get("token", "")), self._token):
                return
            if self._writer is not None:
                self._writer.close()
            self._writer, self._heard = writer, time.monotonic()
            await self._send(writer, {"id": hello.get("id"), "boot": boot(), "began": self._began,
                                      "machine": os.uname().machine})
            sender = asyncio.ensure_future(self._follow(writer, dict(hello.get("have", {}))))
            while True:
                asked, data = await _read(reader)
                self._heard = time.monotonic()
                await self._answer(writer, asked, data)
        except (asyncio.TimeoutError, OSError, asyncio.IncompleteReadError,  # noqa: UP041 - as above
                asyncio.LimitOverrunError, *_NO_FRAME):
            pass  # it comes again, or it never was the harness
        finally:
            if sender is not None:
                sender.cancel()
            writer.close()
            if self._writer is writer:
                self._writer = None

    async def _hello(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[str, Any]:
        """Return the first frame of a connection, which has to come soon."""
        self._strangers.append(writer)
        if len(self._strangers) > _MOST_STRANGERS:
            self._strangers.pop(0).close()
        try:
            return (await asyncio.wait_for(_read(reader, 0), _HELLO_S))[0]
        finally:
            if writer in self._strangers:
                self._strangers.remove(writer)

    async def _answer(self, writer: asyncio.StreamWriter, asked: dict[str, Any], data: bytes) -> None:
        """Do what is asked for and send the answer; where it can't be done, the answer says why."""
        payload = b""
        try:
            answer, payload = getattr(self, f"do_{asked['do']}")(asked, data)
        except (OSError, KeyError, ValueError, AttributeError) as error:
            gone = isinstance(error, (ProcessLookupError, FileNotFoundError))
            answer = {"error": f"{type(error).__name__}: {error}", "gone": gone}
        await self._send(writer, {"id": asked.get("id"), **answer}, payload)

    async def _send(self, writer: asyncio.StreamWriter, header: dict[str, Any], data: bytes = b"") -> None:
        async with self._sending:
            writer.write(json.dumps({**header, "bytes": len(data)}).encode() + b"\n")
            writer.write(data)
            await writer.drain()

    # -- what can be asked for -----------------------------------------------------------------------------------------

    def do_look(self, asked: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """Return what this machine's clock shows (CLOCK_MONOTONIC, in seconds), what the machine did since it began,
        and how many seconds of processor this container has used, and of these the agent itself."""
        at = time.monotonic()
        return {"at": at, "machine": _machine(), "used": self._processes.used(), "own": time.process_time()}, b""

    def do_port(self, asked: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """A port that is free now on all addresses of this machine."""
        with socket.socket() as held:
            held.bind(("", 0))
            return {"port": held.getsockname()[1]}, b""

    def do_fill(self, asked: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """Fill the disk that a file is to lie on, until nothing fits any more; bytes that were written."""
        with open(self._path(asked["path"]), "wb", 0) as file:
            try:
                while True:
                    file.write(_ZEROS)
            except OSError:  # no space left
                pass
            return {"filled": file.tell()}, b""

    def do_put(self, asked: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """Write a file; it is there as a whole."""
        path = self._path(asked["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + UNFINISHED[0])
        partial.write_bytes(data)
        partial.chmod(0o644)
        partial.replace(path)
        return {}, b""

    def do_patch(self, asked: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """Write words of four bytes into a file, one after the other, `at` each where it belongs. It stays the same
        file: who has mapped it sees them, and each as a whole."""
        with open(self._path(asked["path"]), "r+b") as file, mmap.mmap(file.fileno(), 0) as content:
            for number, at in enumerate(asked["at"]):
                content[at:at + 4] = data[number * 4:number * 4 + 4]
        return {}, b""

    def do_get(self, asked: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """A file's content."""
        return {}, self._path(asked["path"]).read_bytes()

    def do_remove(self, asked: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """Remove a file."""
        self._path(asked["path"]).unlink()
        return {}, b""

    def do_list(self, asked: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """Files in a folder and below it, with their sizes, the newest first; links are none of them."""
        folder = self._path(asked["path"])
        files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
        files.sort(key=lambda path: -path.stat().st_mtime_ns)
        return {"files": {str(path.relative_to(folder)): path.stat().st_size for path in files}}, b""

    def do_spawn(self, asked: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """Start a process, in a session of its own; one of that name that was started already is left as it is. Where
        it is only what launches the process, `pid_in` is the file that the process' own pid is written to."""
        name, pid_in = asked["name"], self._path(asked["pid_in"]) if asked.get("pid_in") else None
        log = self.run / "logs" / (name + ".log")
        return {"pid": self._processes.start(name, asked["argv"], log, asked.get("cwd") or None,
                                             asked.get("env", {}), pid_in)}, b""

    def do_last_words(self, asked: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """Let processes have so many seconds from SIGTERM until all of this is killed."""
        self._last_words_s = max(_LAST_WORDS_S, asked["seconds"] - _SPARED_S)
        return {}, b""

    def do_signal_inner(self, asked: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """Signal one of the processes that it has started, and not what that has started in turn; a pause is taken back
        from all of that name. Return the pids that were signalled."""
        number, sent = signal.Signals(asked["number"]), []
        called = self._called(asked, data)
        for pid in called if number == signal.SIGCONT else called[:1]:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
            sent.append(pid)
        return {"pids": sent}, b""

    def do_signal(self, asked: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """Signal it. What ends it, stops it and lets it go on reaches all that it has started, too."""
        self._processes.send(asked["name"], signal.Signals(asked["number"]))
        return {}, b""

    def do_catches(self, asked: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """Return whether a process, or one that it has started, catches a signal, and its pid; where `send` is true and
        it does, it gets it: one that does not catch it would die of it."""
        called = self._called(asked, data) if asked.get("which") else [self._processes.pid(asked["name"])]
        if not called:
            raise ProcessLookupError(asked["which"])
        pid, number = called[0], asked["number"]
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
        caught = next((line for line in status if line.startswith("SigCgt:")), "SigCgt: 0")
        catches = bool(int(caught.split()[1], 16) >> (number - 1) & 1)
        if catches and asked.get("send"):
            os.kill(pid, number)
        return {"catches": catches, "pid": pid}, b""

    def do_limit(self, asked: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """RLIMIT_FSIZE of a process, set where `limits` are given; as it was before."""
        pid, limits = self._processes.pid(asked["name"]), asked.get("limits")
        before = (resource.prlimit(pid, resource.RLIMIT_FSIZE, tuple(limits)) if limits
                  else resource.prlimit(pid, resource.RLIMIT_FSIZE))
        return {"before": before}, b""

    def do_stacks(self, asked: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """Where it and all that it has started stand in the kernel, in lines: nothing is stopped or changed by that."""
        first = self._processes.pid(asked["name"])
        return {"lines": [line for pid in [first, *_below(first)][:_MOST_STACKS] for line in _standing(pid)]}, b""

    def do_stat(self, asked: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """A process' state, as proc(5) names it; in bytes its own memory, and that which its container has and may
        have, files that the kernel keeps included."""
        pid = self._processes.pid(asked["name"])
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        own = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("RssAnon:")]
        return {"state": state, "memory": int(own[0].split()[1]) << 10 if own else 0, "used": _memory("usage"),
                "limit": _memory("limit")}, b""

    def do_expose(self, asked: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """Let the kernel choose this process first where memory is short."""
        Path(f"/proc/{self._processes.pid(asked['name'])}/oom_score_adj").write_text("1000")
        return {}, b""

    def _called(self, asked: dict[str, Any], data: bytes) -> list[int]:
        """Return the processes that a node's has started and that the scenario calls so. `data`: the module that tells
        them apart, which comes from the harness, as this file does."""
        module: dict[str, Any] = {}
        exec(compile(data, "called.py", "exec"), module)  # noqa: S102
        first, own = self._processes.pid(asked["name"]), {f"{NODE}={asked['name']}", f"{TOKEN}={self._token}"}
        found: list[int] = module["called"](asked["expression"], asked["which"], first,
                                            {*_below(first), *_carrying(own)})
        return found

    def _path(self, name: str) -> Path:
        """Below the run's folder where it is not absolute."""
        return self.run / name

    # -- what is sent unasked ------------------------------------------------------------------------------------------

    async def _follow(self, writer: asyncio.StreamWriter, have: dict[str, int]) -> None:
        """Send what files have grown by, and each process's exit, after all that the process wrote."""
        whole: dict[str, tuple[int, int]] = {}
        reported: set[str] = set()
        at = 0.0
        try:
            while True:
                ended = [name for name in self._processes.exits if name not in reported]
                await self._send_growth(writer, have)
                if time.monotonic() >= at or ended:
                    await self._send_whole(writer, whole)
                    at = time.monotonic() + _LOOK_WHOLE_S
                for name in ended:
                    await self._send(writer, {"push": "exit", "name": name, **self._processes.exits[name]})
                    reported.add(name)
                await asyncio.sleep(_LOOK_S)
        except OSError:
            writer.close()  # it comes again, and says what it has

    async def _send_growth(self, writer: asyncio.StreamWriter, have: dict[str, int]) -> None:
        for path in self._files(GROWING):
            name = str(path.relative_to(self.run))
            at = have.get(name, 0)
            if path.stat().st_size <= at:
                continue
            with open(path, "rb") as file:
                file.seek(at)
                while data := file.read(_CHUNK):
                    await self._send(writer, {"push": "more", "path": name, "at": at}, data)
                    at += len(data)
            have[name] = at

    async def _send_whole(self, writer: asyncio.StreamWriter, sent: dict[str, tuple[int, int]]) -> None:
        for path in self._files(WHOLE):
            try:
                about = path.stat()
                version = (about.st_mtime_ns, about.st_size)
                name = str(path.relative_to(self.run))
                if name.endswith(UNFINISHED) or sent.get(name) == version:
                    continue
                data = path.read_bytes()
            except FileNotFoundError:
                continue  # it was replaced just now
            await self._send(writer, {"push": "file", "path": name}, data)
            sent[name] = version

    def _files(self, patterns: tuple[str, ...]) -> list[Path]:
        return [path for pattern in patterns for path in sorted(self.run.glob(pattern))
                if path.is_file() and not path.is_symlink()]


async def _read(reader: asyncio.StreamReader, most: int = _LARGEST) -> tuple[dict[str, Any], bytes]:
    """One frame, with so many bytes at most."""
    line = await reader.readline()
    if not line.endswith(b"\n"):
        raise asyncio.IncompleteReadError(line, None)
    header = json.loads(line)
    if not isinstance(header, dict):
        raise ValueError("not a frame")
    size = int(header.get("bytes", 0))
    if not 0 <= size <= most:
        raise ValueError("too much for a frame")
    return header, await reader.readexactly(size)


def _below(root: int) -> list[int]:
    """Return the pids of all processes that a process has started, and those that these have."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            parents.setdefault(parent, []).append(int(entry))
    return _walked(root, lambda pid: parents.get(pid, []))


def _standing(pid: int) -> list[str]:
    """Return a process' command and state, and where its main thread waits in the kernel."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").replace("\0", " ").strip()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        waits = Path(f"/proc/{pid}/wchan").read_text()
    except (OSError, IndexError):  # it is gone
        return []
    return [f"pid {pid}  {command[:_LONGEST_COMMAND]}  ({state})",
            *([f"  kernel: {waits}"] if waits.strip("0") else [])]


def _carrying(entries: set[str]) -> list[int]:
    """Return the pids of all processes with these entries in their environment: some have left their parents."""
    pids = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = Path(f"/proc/{name}/environ").read_bytes()
        except OSError:  # it is gone, or not ours
            continue
        if entries <= set(environment.decode("utf-8", "replace").split("\0")):
            pids.append(int(name))
    return pids


def _started_by(root: int) -> list[int]:
    """Return the same where it need not be exact, and without looking at every process where the kernel lists them."""
    if not Path("/proc/thread-self/children").exists():
        return _below(root)
    return _walked(root, _listed)


def _listed(pid: int) -> list[int]:
    pids: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            pids += map(int, children.read_text().split())
        except OSError:
            continue  # that thread has ended
    return pids


def _walked(root: int, children: Callable[[int], list[int]]) -> list[int]:
    pids: list[int] = []
    left = [root]
    while left:
        below = children(left.pop())
        pids += below
        left += below
    return pids


def _processor(pid: int) -> float:
    """Seconds of processor that one process has used; 0 where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def bridge(port_file: Path) -> None:
    """Copy standard input to the agent, and what the agent sends to standard output, until the agent hangs up. The
    bridge ignores SIGTERM, which reaches its whole job: so the agent can still send what it says last.

    Raises:
        OSError: there is no agent.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with socket.create_connection((LOOPBACK, int(port_file.read_text()))) as agent:
        def to_agent() -> None:
            while data := os.read(0, _CHUNK):
                agent.sendall(data)
            agent.shutdown(socket.SHUT_RDWR)
        threading.Thread(target=to_agent, daemon=True).start()
        while data := agent.recv(_CHUNK):
            _write_all(1, data)


def _write_all(to: int, data: bytes) -> None:
    while data:
        data = data[os.write(to, data):]


def _machine() -> dict[str, Any]:
    """Return running totals of the machine: ticks of all processors, and microseconds in which something waited."""
    totals: dict[str, Any] = {"cores": os.cpu_count() or 1, "ticks": os.sysconf("SC_CLK_TCK")}
    try:
        totals["stat"] = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        pass
    for what in ("cpu", "io", "memory"):
        try:
            some = Path("/proc/pressure/" + what).read_text().split("\n", 1)[0]
            totals[what] = int(some.rpartition("total=")[2])
        except (OSError, ValueError):
            continue  # a kernel without pressure stall information
    return totals


def _cgroup_cpu() -> Path | None:
    """Return the file that counts this container's use of processors, in nanoseconds (cgroup v1), or None."""
    for path in (Path("/sys/fs/cgroup/cpuacct/cpuacct.usage"), Path("/sys/fs/cgroup/cpu,cpuacct/cpuacct.usage"),
                 Path("/sys/fs/cgroup/cpu.stat")):
        if path.exists():
            return path
    return None


def _number(path: Path) -> int:
    """Nanoseconds in such a file; one of cgroup v2 has microseconds, and their name before them."""
    try:
        words = path.read_text().split()
        return int(words[0]) if words[0].isdigit() else int(words[1]) * 1000
    except (OSError, ValueError, IndexError):
        return 0


def _memory(what: str) -> int:
    """Bytes of memory that this container has, or may have; 0 where that is not known, or not limited."""
    for path in (f"/sys/fs/cgroup/memory/memory.{what}_in_bytes",
                 "/sys/fs/cgroup/memory." + {"usage": "current", "limit": "max"}[what]):
        try:
            return int(Path(path).read_text())
        except (OSError, ValueError):
            continue
    return 0


def boot() -> str:
    """Return which start of which machine this is: the clocks of two that differ in it have nothing in common."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return os.uname().nodename


def _out_of_memory() -> int:
    """Return how often the kernel has killed something in this container for want of memory (cgroup v2, or v1)."""
    for file in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        try:
            counts = dict(line.split() for line in Path(file).read_text().splitlines())
        except (OSError, ValueError):
            continue
        return int(counts.get("oom_kill", 0))
    return 0


def main() -> int:
    """The command line; the token is in the environment."""
    parser = argparse.ArgumentParser(description="Starts one node's processes for a harness elsewhere.")
    parser.add_argument("--run", type=Path, required=True, help="the folder that nodes find the run in")
    parser.add_argument("--port", type=int, default=0, help="on loopback; 0: any")
    parser.add_argument("--port-file", type=Path, help="is written once it listens")
    parser.add_argument("--bridge", action="store_true", help="lead to the agent whose port that file has")
    parser.add_argument("--shared", action="store_true", help="others use what it runs in, too")
    parser.add_argument("--patience", type=float, default=90.0, help="seconds without the harness until all is ended")
    given = parser.parse_args()

    if given.bridge:
        bridge(given.port_file)
        return 0

    async def served() -> None:
        made = Agent(given.run, os.environ[TOKEN], given.patience, shared=given.shared)
        await made.serve(given.port, given.port_file)
    asyncio.run(served())
    return 0


if __name__ == "__main__":
    sys.exit(main())
