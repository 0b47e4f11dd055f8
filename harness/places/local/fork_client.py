"""Nodes that are forked from a process which has imported what they need: `harness.places.local.fork_server`."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from diloco_chaos.harness.base.process_name import ROOM
from diloco_chaos.harness.places.base import ClusterError, status_words
from diloco_chaos.harness.places.local import fork_server
from diloco_chaos.harness.places.local.fork_server import (
    EndNotice,
    ForkRefusal,
    ForkReply,
    ForkRequest,
    ImportRequest,
    Message,
)
from diloco_chaos.harness.places.local.spawning import OURS, spawned
from diloco_chaos.harness.places.nodes.nodes import end_of_log, log_of

_ANSWER_S = 30.0
_END_S = 2.0
_NAME = "fork-server"


class ForkedProcess:
    """A process that the fork server has made; to the harness what `subprocess.Popen` is to one of its own."""

    def __init__(self, server: ForkServerProcess, pid: int, descriptor: int) -> None:
        """`descriptor`: a pidfd of it, so that no signal can hit another process."""
        self.pid = pid
        self._server, self._descriptor = server, descriptor
        self._status: int | None = None
        self._closing = threading.Lock()

    def poll(self) -> int | None:
        """Return its exit status, negative: the signal that ended it; None while it is there."""
        if self._status is None:
            status = self._server.status_of(self.pid)
            if status is None and self._server.is_gone and self._has_ended(0):
                status = -signal.SIGKILL  # it died with the server, which was to wait for it
            if status is not None:
                with self._closing:
                    self._status = status
                    os.close(self._descriptor)
        return self._status

    def send_signal(self, sig: int) -> None:
        """Signal it; nothing happens where it is gone."""
        with self._closing, suppress(ProcessLookupError):
            if self._status is None:
                signal.pidfd_send_signal(self._descriptor, sig)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, for so many seconds at most.

        Raises:
            TimeoutExpired: it is still there.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not self._has_ended(left):
                raise subprocess.TimeoutExpired([str(self.pid)], timeout or 0.0)
            self._server.await_message()
        return status

    def _has_ended(self, timeout: float | None) -> bool:
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        return bool(poller.poll(None if timeout is None else timeout * 1e3))


class ForkServerProcess:
    """A run's fork server, which is used by one thread alone."""

    def __init__(self, run: Path, token: str) -> None:
        """`token`: of the run, which every process that is forked carries."""
        self._run = run
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(_ANSWER_S)
        self._statuses: dict[int, int] = {}
        self.is_gone = False
        with theirs:
            argv = [sys.executable, "-m", fork_server.__name__, str(os.getpid()), str(theirs.fileno()), ROOM]
            self._popen = spawned(run, token, argv, _NAME, 0, OURS, pass_fds=(theirs.fileno(),))

    def imports(self, modules: Iterable[str]) -> None:
        """Have these modules imported, and don't wait for it."""
        with suppress(OSError):  # it is gone: the next process that is to be forked tells of it
            fork_server.send(self._control, ImportRequest(tuple(modules)))

    def start(self, node: str, number: int, module: str, arguments: Sequence[str]) -> ForkedProcess | None:
        """Return a process that calls `main` of a module with these arguments, and its parent's pid after them; None:
        none can be forked, since an import has started threads.

        Raises:
            ClusterError: the kernel makes no process, or the server is gone or does not answer.
        """
        with open(log_of(self._run, node, number), "wb") as log:
            self._send(ForkRequest(node, module, tuple(arguments)), log.fileno())
        while True:
            message, descriptors = self._receive()
            match message:
                case ForkReply(pid):
                    return ForkedProcess(self, pid, descriptors[0])
                case ForkRefusal(0):
                    return None
                case ForkRefusal(error):
                    raise ClusterError(f"{node} can't be started: the kernel makes no process more "
                                       f"({os.strerror(error)}); raise `ulimit -u`, or free memory")
                case EndNotice():
                    self._keep(message)
                case _:
                    raise self._lost()

    def status_of(self, pid: int) -> int | None:
        """Return the exit status of a process that has ended, once: its pid may be another's then."""
        self._control.setblocking(False)
        try:
            while not self.is_gone:
                self._keep(self._receive()[0])
        except BlockingIOError:
            pass
        finally:
            self._control.settimeout(_ANSWER_S)
        return self._statuses.pop(pid, None)

    def await_message(self) -> None:
        """Wait until the server tells of an end, or is gone."""
        with suppress(TimeoutError):
            self._keep(self._receive()[0])

    def close(self) -> None:
        """End it; what it has forked and is still there ends with it."""
        self._control.close()
        try:
            self._popen.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()

    def _keep(self, message: Message | None) -> None:
        if isinstance(message, EndNotice):
            self._statuses[message.pid] = message.status
        self.is_gone = self.is_gone or message is None

    def _send(self, message: Message, descriptor: int) -> None:
        try:
            fork_server.send(self._control, message, [descriptor])
        except OSError as error:
            raise self._lost() from error

    def _receive(self) -> tuple[Message | None, Sequence[int]]:
        try:
            return fork_server.receive(self._control)
        except ConnectionResetError:
            return None, ()
        except TimeoutError as error:
            raise ClusterError(f"the process that nodes are forked from (pid {self._popen.pid}) has not answered for "
                               f"{_ANSWER_S:.0f} s") from error

    def _lost(self) -> ClusterError:
        self.is_gone = True
        return ClusterError(f"the process that nodes are forked from is gone ({status_words(self._popen.wait())}); "
                            f"--start-method spawn does without it:\n{end_of_log(self._run, _NAME, 0)}")
