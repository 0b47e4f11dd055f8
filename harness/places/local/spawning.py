"""Starts a run's processes on this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from diloco_chaos.harness.base.processes import TOKEN
from diloco_chaos.harness.places.nodes.nodes import log_of

LOOPBACK = "127.0.0.1"
OURS = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
"""In the environment of processes of ours."""


def spawned(run: Path, token: str, argv: Sequence[str], name: str, number: int, env: Mapping[str, str],
            cwd: str | None = None, pass_fds: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """A process with the run's token and a log, in a process group of its own: Ctrl-C in a terminal reaches the harness
    alone."""
    with open(log_of(run, name, number), "wb") as log:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=cwd,
                                env=os.environ | env | {TOKEN: token}, process_group=0, pass_fds=pass_fds)
