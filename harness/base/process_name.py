"""The name and the command line by which ps(1), top(1) and other tools know this process."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

_PR_SET_NAME = 15
ROOM = "-" * 1024
"""As a last argument of an interpreter: room for the command line that it is to show later."""


def rename(name: str, argv: Sequence[str]) -> None:
    """Show this name (15 bytes of it), and this command line, cut to what the process was started with.

    The kernel shows the memory that held the arguments at the start (proc_pid_cmdline(5)): it is overwritten.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NAME, name.encode()[:15] + b"\0", 0, 0, 0)
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, fields 48 and 49 of proc_pid_stat(5)
    if 0 < begin < end:  # else the kernel keeps it from us
        text = b"\0".join(word.encode() for word in argv)[:end - begin - 1]
        ctypes.memmove(begin, text.ljust(end - begin, b"\0"), end - begin)
