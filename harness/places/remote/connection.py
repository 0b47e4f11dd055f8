"""The harness' side of an agent: asks it, keeps what it sends, and comes again where the connection is lost."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from diloco_chaos.harness.base.errors import NOT_UNDERSTOOD
from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.remote.agent import GROWING, WHOLE
from diloco_chaos.harness.places.remote.clocks import Reading

Dial = Callable[[], socket.socket]
"""A connection to the agent's port. Raises OSError, or ClusterError, where there is none now."""

Answer = tuple[dict[str, Any], bytes]
"""Of an agent: what it says, and bytes."""

ANSWER_S = 30.0
"""An agent that does not answer within this time, lost connections included, is told of as gone."""
_AGAIN_S = 0.2
_LONGEST_LINE = 1 << 16
_LARGEST = 1 << 31


class AgentError(ClusterError):
    """An agent can't be reached, or could not do what it was asked for."""


class GoneError(AgentError):
    """What it was asked to do something to is not there."""


@dataclass(frozen=True)
class AgentExit:
    """The end of a process, as its agent reported it."""

    status: int
    """Exit status; negative: the signal that ended it."""
    oom: bool
    """The kernel had killed something for want of memory."""


class AgentConnection:
    """A connection to one agent, which may be restarted; calls may come from any thread."""

    def __init__(self, node: str, run: Path, token: str, dial: Dial) -> None:
        """`node`: whose agent it is; nothing else's files are taken from it. `run`: the run's folder here."""
        self.node, self.boot = node, ""
        self.machine = ""
        """What kind of machine the agent is on, as uname(1) calls it: `x86_64`."""
        self.began = 0.0
        """When the agent began, by its own wall clock: which of several it is."""
        self.exits: dict[str, AgentExit] = {}
        """Process -> how it ended. All that it wrote before is here by then."""
        self._run, self._token, self._dial = run, token, dial
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._connected, self._over = threading.Event(), threading.Event()
        self._socket: socket.socket | None = None
        self._asked: dict[int, tuple[dict[str, Any], bytes, Future[Answer]]] = {}
        self._number = 0
        self._files: dict[str, BinaryIO] = {}
        self._why = "it was not reached yet"
        self._thread = threading.Thread(target=self._live, daemon=True, name=f"agent of {node}")
        self._thread.start()

    def ask(self, do: str, data: bytes = b"", *, within: float = ANSWER_S, **fields: Any) -> dict[str, Any]:
        """Have it do something; it is asked again after a lost connection.

        Raises:
            GoneError: what it is to be done to is not there.
            AgentError: it could not, or does not answer within so many seconds.
        """
        return self.fetch(do, data, within=within, **fields)[0]

    def fetch(self, do: str, data: bytes = b"", *, within: float = ANSWER_S,
              **fields: Any) -> tuple[dict[str, Any], bytes]:
        """Ask the agent; return its answer, and the bytes that came with it.

        Raises:
            GoneError: the process or file that was named is gone.
            AgentError: the agent can't do it, or did not answer within so many seconds.
        """
        number, future = self._begun(do, data, fields)
        try:
            answer, payload = future.result(within)
        except NotInTime:
            with self._lock:
                self._asked.pop(number, None)
            raise AgentError(f"{self.node}: its agent was asked to {do} and did not answer within {within:g} s "
                             f"({self._why or 'it is connected'})") from None
        if "error" in answer:
            raise (GoneError if answer.get("gone") else AgentError)(f"{self.node}: {do}: {answer['error']}")
        return answer, payload

    def soon(self, do: str, **fields: Any) -> None:
        """Have it do something, and don't wait for it."""
        self._begun(do, b"", fields)

    def look(self, within: float = ANSWER_S) -> tuple[Reading, dict[str, Any]]:
        """Return a reading of the clocks, and what the agent reports of its machine and its processes.

        Raises:
            AgentError: the agent does not answer.
        """
        began = time.monotonic()
        answer = self.ask("look", within=within)
        return Reading.of(began, float(answer["at"]), time.monotonic()), answer

    @property
    def connected(self) -> bool:
        """Return whether the agent can be asked now."""
        return self._connected.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait until the agent can be asked, for so many seconds at most; return whether it can."""
        return self._connected.wait(seconds)

    def close(self) -> None:
        """Ask nothing more."""
        self._over.set()
        with self._lock:
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
            unanswered = [future for _, _, future in self._asked.values()]
            self._asked.clear()
        for future in unanswered:
            future.set_exception(AgentError(f"{self.node}: nothing more is asked of its agent"))
        self._thread.join(_AGAIN_S * 10)
        for file in self._files.values():
            file.close()

    # -- its thread ----------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        """Be connected, and be so again."""
        while not self._over.is_set():
            try:
                with self._dial() as connection, connection.makefile("rb") as frames:
                    self._greet(connection, frames)
                    while not self._over.is_set():
                        self._take(*_frame(frames))
            except (OSError, ClusterError, EOFError, *NOT_UNDERSTOOD) as error:
                self._why = f"{type(error).__name__}: {error}"
            finally:
                self._connected.clear()
                with self._lock:
                    self._socket = None
            self._over.wait(_AGAIN_S)

    def _greet(self, connection: socket.socket, frames: Any) -> None:
        """Say who we are and what we have; ask again what was not answered."""
        have = {name: file.tell() for name, file in self._files.items()}
        connection.sendall(json.dumps({"id": 0, "token": self._token, "have": have}).encode() + b"\n")
        greeting, _ = _frame(frames)
        self.boot, self.began = str(greeting.get("boot", "")), float(greeting.get("began", 0.0))
        self.machine = str(greeting.get("machine", ""))
        with self._lock:
            self._socket = connection
            waiting = [(header, data) for header, data, _ in self._asked.values()]
        self._why = ""
        self._connected.set()
        for header, data in waiting:
            self._send(header, data)

    def _begun(self, do: str, data: bytes, fields: Mapping[str, Any]) -> tuple[int, Future[Answer]]:
        future: Future[Answer] = Future()
        with self._lock:
            if self._over.is_set():
                future.set_exception(AgentError(f"{self.node}: nothing more is asked of its agent"))
                return 0, future
            self._number += 1
            number = self._number
            header = {"id": number, "do": do, **fields, "bytes": len(data)}
            self._asked[number] = header, data, future
            connected = self._socket is not None
        if connected:
            self._send(header, data)
        return number, future

    def _send(self, header: Mapping[str, Any], data: bytes) -> None:
        with self._sending, suppress(OSError):  # its thread notices, and what was asked is asked again
            if (connection := self._socket) is not None:
                connection.sendall(json.dumps(header).encode() + b"\n" + data)

    def _take(self, frame: dict[str, Any], data: bytes) -> None:
        what = frame.pop("push", "")
        if not what:
            with self._lock:
                asked = self._asked.pop(int(frame.get("id") or 0), None)
            if asked is not None:
                asked[2].set_result((frame, data))
        elif what == "exit":
            self.exits[str(frame["name"])] = AgentExit(int(frame["status"]), bool(frame.get("oom")))
        elif what == "more":
            self._grown(self._own(str(frame["path"]), GROWING), int(frame["at"]), data)
        elif what == "file":
            self._whole(self._own(str(frame["path"]), WHOLE), data)

    def _own(self, name: str, patterns: tuple[str, ...]) -> str:
        """A file that this node may send: whoever took it over can't write another one's tape.

        Raises:
            ValueError: it may not.
        """
        path = PurePosixPath(name)
        known = any(path.match(pattern) and len(path.parts) == len(PurePosixPath(pattern).parts)
                    for pattern in patterns)
        owner = path.name.rpartition(".")[0].rpartition(".")[0]
        if not known or ".." in path.parts or path.is_absolute() or (patterns is GROWING and owner != self.node):
            raise ValueError(f"{self.node} sent a file that is none of its own: {name!r}")
        return name

    def _grown(self, name: str, at: int, data: bytes) -> None:
        if name not in self._files:
            path = self._run / name
            path.parent.mkdir(parents=True, exist_ok=True)
            self._files[name] = open(_opened(path, os.O_APPEND), "ab", 0)  # noqa: SIM115 - until `close`
        file = self._files[name]
        if at == file.tell():  # else it is what an earlier connection has brought already
            file.write(data)

    def _whole(self, name: str, data: bytes) -> None:
        path = self._run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{self.node}.partial")
        with open(_opened(partial, os.O_TRUNC), "wb") as file:
            file.write(data)
        partial.replace(path)


def _opened(path: Path, how: int) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | how, 0o644)


def _frame(frames: Any) -> tuple[dict[str, Any], bytes]:
    """The next one.

    Raises:
        EOFError: there is none.
        ValueError: it is none.
    """
    line = frames.readline(_LONGEST_LINE)
    if not line.endswith(b"\n"):
        raise EOFError("the agent has closed the connection")
    header = json.loads(line)
    size = header.get("bytes", 0) if isinstance(header, dict) else -1
    if not isinstance(size, int) or not 0 <= size <= _LARGEST:
        raise ValueError("not a frame of an agent")
    data = frames.read(size)
    if len(data) < size:
        raise EOFError("the agent has closed the connection in the middle of a frame")
    return header, data
