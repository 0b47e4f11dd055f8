"""What calls on files cost with the library preloaded, and how soon a rule that was armed hits a living process.

Each sample is a process of its own; bare, unarmed, and armed with a rule that means none of its files, in turn. Times
are of the processor.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from diloco_chaos.harness.places.local.preloads import PAGE
from diloco_chaos.harness.preload.library import built, preloading
from diloco_chaos.harness.preload.page import CALLS, Page, Rule

_TOKEN = "0" * 32
_LOOPS = {"writes of 4 kB": (20_000, "os.write(file, block)"), "reads of 64 bytes": (100_000, "os.pread(file, 64, 0)")}
_LOOP = """
import os, sys, time
file, block = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), bytes(4096)
began = time.process_time()
for _ in range({count}):
    {call}
print(time.process_time() - began)
"""
_VICTIM = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
while True:
    try:
        os.write(file, b"x")
    except OSError:
        os.write(1, b"%r\\n" % time.monotonic())
        time.sleep(.05)
    time.sleep(.0005)
"""
_TOGGLES = 40


def measure(rounds: int) -> dict[str, Any]:
    """Ratios to bare calls over so many rounds, and the toggles in ms."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        library = str(built(folder, "io", "io"))
        return {"ratios": {what: _ratios(folder, library, rounds, *loop) for what, loop in _LOOPS.items()},
                "toggles_ms": _toggles(folder, library)}


def _environment(folder: Path, library: str, name: str) -> dict[str, str]:
    return {**os.environ, **preloading(library, ""), PAGE: str(folder / name)}


def _ratios(folder: Path, library: str, rounds: int, count: int, call: str) -> dict[str, float]:
    code = _LOOP.format(count=count, call=call)
    pages = {name: Page(folder / f"{name}-{count}", _TOKEN) for name in ("unarmed", "armed")}
    pages["armed"].arm(Rule("/nowhere/*", CALLS, "error", "EIO"))
    kinds = {"bare": dict(os.environ)} | {name: _environment(folder, library, f"{name}-{count}") for name in pages}
    taken: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(rounds):
        for name in [*kinds][number % 3:] + [*kinds][:number % 3]:
            (folder / "file").unlink(missing_ok=True)
            done = subprocess.run([sys.executable, "-c", code, folder / "file"], env=kinds[name], capture_output=True,
                                  text=True, check=True)
            taken[name].append(float(done.stdout))
    return {name: round(median(after / before for after, before in zip(taken[name], taken["bare"], strict=True)), 3)
            for name in pages}


def _toggles(folder: Path, library: str) -> dict[str, float]:
    """From the moment in which a rule is armed to the first error in a process that writes every half of a millisecond.
    """
    page = Page(folder / "toggled", _TOKEN)
    took = []
    with subprocess.Popen([sys.executable, "-c", _VICTIM, folder / "victim"], stdout=subprocess.PIPE,
                          env=_environment(folder, library, "toggled")) as victim:
        while not page.loaded:
            time.sleep(0.01)
        for _ in range(_TOGGLES):
            time.sleep(0.1)
            armed = time.monotonic()
            rule = page.arm(Rule(str(folder / "victim"), ("write",), "error", "EIO"))
            assert victim.stdout is not None
            took.append((float(victim.stdout.readline()) - armed) * 1e3)
            page.disarm(rule)
        victim.kill()
    return {"median": round(median(took), 2), "longest": round(max(took), 2)}
