"""A process that has imported what nodes need, and becomes one for each request:
`python -m diloco_chaos.harness.places.local.fork_server PARENT SOCKET`.

An interpreter takes a quarter of a second to import a syncer and more than a second to import torch; a fork of one that
has imported them takes a hundredth. The server has one thread, since a fork takes no other thread along: where an
import has started one, it refuses, and nodes get interpreters of their own. Its children die with it, and it dies with
the harness (prctl(2), PR_SET_PDEATHSIG). All of them have the run's token in their environment, since the server was
started with it. (multiprocessing's own fork server has one environment and one log for a whole program.)

Messages are msgpack, one a packet of a socket pair (unix(7), SOCK_SEQPACKET); descriptors travel beside them:
`ImportRequest` and `ForkRequest` from the harness, `ForkReply`, `ForkRefusal` and `EndNotice` to it.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

import msgspec

from diloco_chaos.harness.base.parent_death import die_with_parent
from diloco_chaos.harness.base.process_name import rename

PACKET = 1 << 16
"""Bytes of the longest message."""


class ImportRequest(msgspec.Struct, frozen=True, tag=True):
    """ImportRequest these modules now; what can't be imported is told by the node that wants it."""

    modules: tuple[str, ...]


class ForkRequest(msgspec.Struct, frozen=True, tag=True):
    """Fork a process that calls `main(arguments)` of this module. The file of its output comes beside it."""

    name: str
    module: str
    arguments: tuple[str, ...]


class ForkReply(msgspec.Struct, frozen=True, tag=True):
    """The fork was made: its pid. A pidfd comes beside it, opened before anything could wait for the process."""

    pid: int


class ForkRefusal(msgspec.Struct, frozen=True, tag=True):
    """There is no fork: the error number of fork(2), or 0, because an import has started threads."""

    error: int


class EndNotice(msgspec.Struct, frozen=True, tag=True):
    """A process has ended: its exit status, negative: the signal that ended it."""

    pid: int
    status: int


Message = ImportRequest | ForkRequest | ForkReply | ForkRefusal | EndNotice
_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Message)


def send(control: socket.socket, message: Message, descriptors: Sequence[int] = ()) -> None:
    """Send a message, with descriptors beside it.

    Raises:
        OSError: the other side is gone.
    """
    socket.send_fds(control, [_encode(message)], descriptors)


def receive(control: socket.socket) -> tuple[Message | None, Sequence[int]]:
    """Return the next message, and the descriptors beside it; None: the other side is gone.

    Raises:
        BlockingIOError, TimeoutError: there is none (yet), where the socket does not wait.
    """
    packet, descriptors, _, _ = socket.recv_fds(control, PACKET, 1)
    return _decoder.decode(packet) if packet else None, descriptors


class ForkServer:
    """See the module."""

    def __init__(self, control: socket.socket) -> None:
        """`control`: the server's end of the socket pair."""
        self._control = control
        self._poller = select.poll()
        self._poller.register(control, select.POLLIN)
        self._children: dict[int, int] = {}  # pidfd -> pid

    def serve(self) -> ForkRequest | None:
        """Fork whatever is asked for. Returns in each child what it was started as, and in the server None, once the
        harness has closed its end."""
        while True:
            for descriptor, _ in self._poller.poll():
                if descriptor != self._control.fileno():
                    self._see_end(descriptor)
                    continue
                with suppress(ConnectionResetError):
                    message, files = receive(self._control)
                    if isinstance(message, ImportRequest):
                        _import(message.modules)
                        continue
                    if isinstance(message, ForkRequest):
                        if self._fork(message, files[0]):
                            return message
                        continue
                return None

    def _fork(self, start: ForkRequest, log: int) -> bool:
        """Return whether this is the child."""
        pid, error = -1, 0
        if len(os.listdir("/proc/self/task")) == 1:
            try:
                pid = os.fork()
            except OSError as refused:
                error = refused.errno or 0
        if pid == 0:
            self._become(start, log)
            return True
        os.close(log)
        if pid < 0:
            send(self._control, ForkRefusal(error))
            return False
        descriptor = os.pidfd_open(pid)
        self._children[descriptor] = pid
        self._poller.register(descriptor, select.POLLIN)
        send(self._control, ForkReply(pid), [descriptor])
        return False

    def _become(self, start: ForkRequest, log: int) -> None:
        """In the child: hold nothing of the server's, and be in a process group of its own."""
        os.setpgid(0, 0)
        self._control.close()
        for descriptor in self._children:
            os.close(descriptor)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        rename(start.name, [sys.executable, "-m", start.module, *start.arguments])

    def _see_end(self, descriptor: int) -> None:
        pid = self._children.pop(descriptor)
        self._poller.unregister(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        send(self._control, EndNotice(pid, os.waitstatus_to_exitcode(status)))


def _import(modules: Sequence[str]) -> None:
    if not set(modules) - set(sys.modules):
        return
    for module in modules:
        with suppress(Exception):  # whatever it raises, it raises again in the node, where somebody reads it
            import_module(module)
    gc.freeze()  # what is there now is looked at by no collection of a child's, and stays shared


def main(arguments: Sequence[str]) -> int:
    """Serve, and return the exit code: the server's, or in each child the node's."""
    parent, control = map(int, arguments)
    gc.disable()  # imports make a million objects that stay
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the harness, which ends the run
    rename("fork-server", [sys.executable, "-m", __spec__.name])
    here = os.getpid()
    start = ForkServer(socket.socket(fileno=control)).serve()
    if start is None:
        return 0
    gc.enable()
    module = import_module(start.module)
    return int(module.main([*start.arguments, "--parent", str(here)]))


if __name__ == "__main__":
    status = main(sys.argv[1:3])
    gc.freeze()  # else torch's many objects are looked through once more before the process ends
    sys.exit(status)
