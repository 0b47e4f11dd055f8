"""How long `make check` and `make test` take, and of what: parts that add up to the whole, and processor time."""

from __future__ import annotations

import resource
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

MAKE = shutil.which("make") or "make"
REPORTS = Path("build/tests")
PARTS = ("unit", "paired", "alone", "scenarios")


def measure(say: Callable[[str], None]) -> dict[str, Any]:
    """Run both, from the root of a clone, with nothing beside them."""
    figures = {target: _timed(target, say) for target in ("check", "test")}
    parts = {part: _wall(REPORTS / f"{part}.xml") for part in PARTS}
    return {"check": figures["check"], "test": figures["test"] | {
        "parts_s": parts, "rest_s": round(figures["test"]["wall_s"] - sum(parts.values()), 1)}}


def _timed(target: str, say: Callable[[str], None]) -> dict[str, Any]:
    subprocess.run([MAKE, "setup"], check=True, stdout=subprocess.DEVNULL)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([MAKE, target], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    say(f"  make {target}: exit {done.returncode}, {wall:.0f} s\n{done.stdout[-500:]}")
    return {"exit": done.returncode, "wall_s": round(wall, 1),
            "processor_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)}


def _wall(report: Path) -> float:
    """Return the seconds that a part took, as its report has it."""
    suites = ElementTree.parse(report).iter("testsuite")  # noqa: S314 - pytest has just written it
    return round(sum(float(suite.get("time", 0)) for suite in suites), 1)
