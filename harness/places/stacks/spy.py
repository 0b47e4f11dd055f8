"""Frames of Python processes, by py-spy where it is installed. It reads their memory, and neither stops nor changes
them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_NAME = "py-spy"
MISSING = f"py-spy is not installed: pip install {_NAME}"
_REFUSED = ("py-spy was refused: it needs the right to trace processes (root, sysctl kernel.yama.ptrace_scope=0, or "
            "--cap-add SYS_PTRACE for a container)")
_NO_RIGHT = ("permission denied", "operation not permitted")
_NOT_PYTHON = "failed to find python"
_MOST_FRAMES = 40
_IMPORTING = "<frozen importlib"
"""Frames of the import system say nothing beside those of the modules."""


def binary() -> str:
    """Return where py-spy is: on the PATH, or beside this Python; empty: it is not installed."""
    beside = Path(sys.executable).with_name(_NAME)
    return shutil.which(_NAME) or (str(beside) if beside.is_file() else "")


def frames(pids: Sequence[int], until: float, program: str) -> dict[int, list[str]]:
    """Return for each process its threads and their frames, the innermost first, or why there are none.

    Args:
        until: when whoever has not answered is given up, in seconds as `time.monotonic` counts them.
        program: py-spy.
    """
    asked = {pid: subprocess.Popen([program, "dump", "--nonblocking", "--json", "--pid", str(pid)],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
             for pid in pids}
    return {pid: _answer(process, until) for pid, process in asked.items()}


def _answer(process: subprocess.Popen[bytes], until: float) -> list[str]:
    try:
        out, error = process.communicate(timeout=max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return ["not told: py-spy did not answer in time"]
    if process.returncode:
        said = error.decode(errors="replace").strip().lower()
        if any(words in said for words in _NO_RIGHT):
            return [f"not told: {_REFUSED}"]
        return [] if _NOT_PYTHON in said else [f"not told: py-spy: {said.splitlines()[0] if said else 'it failed'}"]
    try:
        return [line for thread in json.loads(out) for line in _thread(thread)]
    except (ValueError, KeyError, TypeError):
        return ["not told: what py-spy answered can't be understood"]


def _thread(thread: dict[str, Any]) -> list[str]:
    name = thread.get("thread_name") or f"thread {thread['thread_id']}"
    doing = [words for key, words in (("active", "running"), ("owns_gil", "holds the GIL")) if thread.get(key)]
    shown = [frame for frame in thread["frames"] if not frame["filename"].startswith(_IMPORTING)][:_MOST_FRAMES]
    return [f"{name}{' (' + ', '.join(doing) + ')' if doing else ''}",
            *(f"  {frame['name']}  {frame.get('short_filename') or frame['filename']}:{frame['line']}"
              for frame in shown)]
