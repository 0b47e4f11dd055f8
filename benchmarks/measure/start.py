"""How long a run takes to its first merge, and a killed learner's replacement to its first contribution; what a node
holds in memory. Forked from one process, and an interpreter each, in turns."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure.recovery import reintegrations
from diloco_chaos.harness.base.processes import identity
from diloco_chaos.harness.record.tape.events import Merge, Spawn
from diloco_chaos.harness.record.tape.reading import Tape

METHODS = ("forkserver", "spawn")
_LOOK_S, _GIVE_UP_S = 0.005, 120.0


def measure(runs: Path, pairs: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the medians of both ways, and of their ratios."""
    taken: dict[str, list[dict[str, float]]] = {method: [] for method in METHODS}
    for number in range(pairs):
        for method in METHODS if number % 2 else METHODS[::-1]:
            taken[method].append(one_run(runs, method))
            say(f"  {method}: {taken[method][-1]}")
    figures = taken[METHODS[0]][0]
    return {"pairs": pairs, **{
        figure: {**{method: round(median(run[figure] for run in taken[method]), 3) for method in METHODS},
                 "ratio": round(median(forked[figure] / spawned[figure] for forked, spawned in zip(
                     *(taken[method] for method in METHODS), strict=True)), 3)} for figure in figures}}


def one_run(runs: Path, method: str) -> dict[str, float]:
    """Start `kill-one` as a user does, and end it when the learner that was killed counts again."""
    before = set(runs.iterdir())
    began = time.monotonic()
    with subprocess.Popen([sys.executable, "-m", "diloco_chaos", "run", "kill-one", "--step-time", "100ms",
                           "--start-method", method, "--runs-dir", str(runs)],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as command:
        folder = _awaited(lambda: next(iter(sorted(
            path for path in set(runs.iterdir()) - before if (path / "tape").is_dir())), None))
        _awaited(lambda: _tape(folder).of(Merge))
        first = time.monotonic() - began
        memory = sum(map(_proportional, _awaited(lambda: _nodes(folder))))
        back, *_ = _awaited(lambda: reintegrations(tape := _tape(folder), tape.of(Merge)))
        command.send_signal(signal.SIGINT)
    return {"enter_to_first_merge_s": round(first, 3), "start_to_reintegrated_s": round(back, 3),
            "memory_per_node_mb": round(memory / 5 / 1e6, 1)}


def _awaited(look: Callable[[], Any]) -> Any:
    """Look until there is something."""
    until = time.monotonic() + _GIVE_UP_S
    while not (found := look()):
        if time.monotonic() > until:
            raise TimeoutError("nothing came of the run")
        time.sleep(_LOOK_S)
    return found


def _tape(folder: Path) -> Tape:
    return Tape.read(folder / "tape")


def _nodes(folder: Path) -> list[int]:
    """Return the pids of all five nodes, once each learner has been merged."""
    tape = _tape(folder)
    merged = set(chain.from_iterable((part.learner for part in merge.contributions) for merge in tape.of(Merge)))
    pids = [event.pid for event in tape.of(Spawn) if event.pid and identity(event.pid)]
    return pids if len(merged) == 4 and len(pids) == 5 else []


def _proportional(pid: int) -> int:
    """Bytes of memory of a process, of which those that it shares count in part (PSS, proc_pid_smaps(5))."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
