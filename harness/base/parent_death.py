"""Ties a process to the one that started it, so that nothing outlives a killed harness.

For programs that are not ours: `python -m diloco_chaos.harness.base.parent_death PARENT_PID PROGRAM ARGUMENTS...`
ties itself and becomes the program. `--preload LIBRARIES` before the program is for what the program loads and this
process does not: it is none of the processes that count what they meet.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1
_PRELOAD = "--preload"


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel to SIGKILL this process when its parent ends (prctl(2), PR_SET_PDEATHSIG).

    The signal is sent when the *thread* that started this process exits, so a harness must start its nodes from a
    thread that lives as long as the run. A parent that died before the call is noticed here.

    Raises:
        OSError: the kernel refused.
        SystemExit: the parent is gone already.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) was refused")
    if os.getppid() != parent_pid:
        raise SystemExit(f"the harness (pid {parent_pid}) is gone; not starting without it")


def tied(argv: Sequence[str], preload: str = "") -> list[str]:
    """Return the command that becomes this one once it is tied to this process. `preload`: what that one loads first,
    as LD_PRELOAD has it; empty: what its environment says."""
    return [sys.executable, "-m", __name__, str(os.getpid()), *([_PRELOAD, preload] if preload else []), *argv]


def _become(argv: list[str]) -> None:
    if argv[0] == _PRELOAD:
        os.environ["LD_PRELOAD"], argv = argv[1], argv[2:]
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - prctl's setting survives an exec
    except OSError as error:
        sys.exit(f"{argv[0]} can't be started: {error.strerror}")


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    _become(sys.argv[2:])
