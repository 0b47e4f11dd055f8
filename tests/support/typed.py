"""`diloco-chaos` as a user types it, in a process of its own that is forked from one which has imported it: the second
that an interpreter takes for that is spent once for a whole test session."""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

PACKET = 1 << 17
MODULES = ("diloco_chaos.chaos.report.live", "diloco_chaos.chaos.report.saved", "diloco_chaos.chaos.runner.run",
           "diloco_chaos.harness.places.local.site", "diloco_chaos.harness.trainer.runtime.cores")
"""What most commands import beside what is registered."""


def typed(*arguments, cwd=None, env=None, timeout=60):
    """Return what `diloco-chaos ARGUMENTS` says, and how it ends (a CompletedProcess with text). `env`: all variables;
    those of this process, if none are given."""
    words = ["diloco-chaos", *map(str, arguments)]
    request = {"argv": words, "cwd": str(cwd or Path.cwd()), "env": dict(os.environ if env is None else env)}
    control = _server()
    control.settimeout(timeout)
    with (open(os.devnull, "rb") as nothing, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err):
        socket.send_fds(control, [json.dumps(request).encode()], [file.fileno() for file in (nothing, out, err)])
        pid = json.loads(control.recv(PACKET))
        try:
            status = json.loads(control.recv(PACKET))
        except TimeoutError as error:
            os.kill(pid, signal.SIGKILL)
            control.settimeout(None)
            control.recv(PACKET)
            raise subprocess.TimeoutExpired(words, timeout) from error
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(words, status, out.read(), err.read())


@cache
def _server():
    """Return the socket of this process's own server, which ends when the socket is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen([sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()],
                         env=os.environ | {"OMP_NUM_THREADS": "1"})
    return ours


def serve(control):
    """Fork for each request, one at a time; return in the child."""
    while packet := (received := socket.recv_fds(control, PACKET, 3))[0]:
        files = received[1]
        if (pid := os.fork()) == 0:
            request = json.loads(packet)
            os.chdir(request["cwd"])
            os.environ.clear()
            os.environ.update(request["env"])
            for number, file in enumerate(files):
                os.dup2(file, number)
            os.closerange(3, 3 + PACKET)
            sys.argv = request["argv"]
            return
        for file in files:
            os.close(file)
        control.send(json.dumps(pid).encode())
        control.send(json.dumps(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
    sys.exit()


if __name__ == "__main__":
    del sys.path[0]  # this folder is no part of what a user has
    from diloco_chaos.chaos import cli
    for group in ("commands", "backends", "checks", "faults", "reports", "trainers"):
        for point in entry_points(group=f"diloco_chaos.{group}"):
            point.load()
    for module in MODULES:
        import_module(module)
    gc.freeze()  # what is there now is looked at by no child, not even at its end
    assert len(os.listdir("/proc/self/task")) == 1, "a fork takes no other thread along"
    serve(socket.socket(fileno=int(sys.argv[1])))
    cli.main()
