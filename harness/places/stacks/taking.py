"""Takes the stacks of processes: of Python by py-spy, of the kernel by /proc, and what a flight recorder has."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from diloco_chaos.harness.base.errors import printable
from diloco_chaos.harness.base.processes import Identity, carries, identity, own_name, state
from diloco_chaos.harness.base.units import shortened
from diloco_chaos.harness.places.stacks.flights import flights
from diloco_chaos.harness.places.stacks.spy import MISSING, binary, frames

FOLDER = "stacks"
"""In a run's folder."""
_WITHIN_S = 2.0
"""The end of a run does not wait longer for all of them together."""
_MOST_PROCESSES, _MOST_DEEP, _LONGEST = 16, 12, 160
_BY_ROOT = "the kernel's stack is not told: root alone may read /proc/PID/stack"


def take(nodes: Mapping[str, Sequence[Identity]], token: str, spy: str | None = None,
         unseen: str = "") -> dict[str, list[str]]:
    """Return in lines where the processes of each node stand. Only those that carry the run's token are looked at.

    Args:
        nodes: by name and number of incarnation, the first process first.
        token: of the run.
        spy: py-spy; looked for if not given, empty: there is none.
        unseen: the line of a node of which no process can be looked at; empty: it has none.
    """
    until = time.monotonic() + _WITHIN_S
    program = binary() if spy is None else spy
    ours = {name: [process for process in processes if identity(process.pid) == process
                   and carries(process.pid, token)] for name, processes in nodes.items()}
    looked_at = [process.pid for processes in ours.values() for process in processes][:_MOST_PROCESSES]
    python = frames(looked_at, until, program) if program else {}
    return {name: [*([] if program else [f"frames of Python are not told: {MISSING}"]),
                   *(line for process in processes for line in _of(process.pid, python.get(process.pid, [])))]
            if processes or not unseen else [unseen] for name, processes in ours.items()}


def write(run: Path, stacks: Mapping[str, Sequence[str]]) -> None:
    """Write the stacks of each node to a file in a run's folder.

    Raises:
        OSError: it can't be written.
    """
    for name, lines in stacks.items():
        if lines:
            (run / FOLDER).mkdir(exist_ok=True)
            (run / FOLDER / f"{name}.txt").write_text("\n".join(map(printable, lines)) + "\n")


def _of(pid: int, python: Sequence[str]) -> list[str]:
    kernel = _kernel(pid)
    return [f"pid {pid}  {shortened(_command(pid), _LONGEST)}  ({state(pid) or 'gone'})",
            *(f"  {line}" for line in (*python, *kernel, *flights(_environment(pid))))]


def _kernel(pid: int) -> list[str]:
    """Return where the main thread is in the kernel, the innermost first; nothing where it runs outside of it."""
    try:
        lines = Path(f"/proc/{pid}/stack").read_text().splitlines()
        calls = [line.partition("] ")[2].partition("+")[0] for line in lines]
        return [f"kernel: {' < '.join(calls[:_MOST_DEEP])}"] if calls else []
    except OSError:
        channel = _read(pid, "wchan")
        return [f"kernel: {channel}"] if channel not in ("", "0") else [_BY_ROOT]


def _command(pid: int) -> str:
    return " ".join(_read(pid, "cmdline").replace("\0", " ").split()) or own_name(pid)


def _environment(pid: int) -> dict[str, str]:
    return {name: value for name, _, value in (entry.partition("=") for entry in _read(pid, "environ").split("\0"))}


def _read(pid: int, file: str) -> str:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
