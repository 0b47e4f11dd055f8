"""What this machine can do, and what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import psutil

from chaos.folder import cache_folder, environment
from harness.ledger import in_charge, ledgers_folder

LEAST_CORES = 2
LEAST_DISK = 1 << 30


class Line(NamedTuple):
    """One thing that was looked at."""

    name: str
    state: Literal["ok", "missing", "optional"]
    found: str
    advice: str = ""


def examine() -> list[Line]:
    """Look at everything that a run may need."""
    return [_platform(), _cores(), _torch(), _corpus(), _cache(), _ledgers(), _docker(), _toxiproxy()]


def _platform() -> Line:
    good = sys.platform == "linux"
    return Line("platform", "ok" if good else "missing", sys.platform, "" if good else "diloco-chaos needs Linux")


def _cores() -> Line:
    cores, load = len(os.sched_getaffinity(0)), psutil.getloadavg()[0]
    found = f"{cores}, load {load:.1f}"
    if cores < LEAST_CORES:
        return Line("cores", "missing", found, "four learners at step_time 60ms need two cores: raise step_time")
    if load > cores * 0.5:
        return Line("cores", "optional", found, "this machine is busy: runs may be inconclusive")
    return Line("cores", "ok", found)


def _torch() -> Line:
    version = environment()["torch"]
    if version == "not installed":
        return Line("torch", "missing", version, "pip install torch (the CPU build will do)")
    return Line("torch", "ok", version)


def _corpus() -> Line:
    folder = Path(sysconfig.get_paths()["stdlib"])
    count = sum("site-packages" not in path.parts for path in folder.rglob("*.py"))
    good = count > 100
    return Line("corpus stdlib", "ok" if good else "missing", f"{count} source files in {folder}",
                "" if good else "this Python comes without its sources: use --corpus PATH")


def _cache() -> Line:
    folder = cache_folder()
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    good = os.access(existing, os.W_OK) and free > LEAST_DISK
    return Line("cache", "ok" if good else "missing", f"{folder}, {free / 1e9:.0f} GB free",
                "" if good else "set XDG_CACHE_HOME to a writable place with a gigabyte to spare")


def _ledgers() -> Line:
    dead = 0
    for path in ledgers_folder().glob("*.jsonl"):
        with suppress(OSError), in_charge(path) as ours:
            dead += ours
    if dead:
        return Line("left behind", "optional", f"{dead} ledgers of runs that died", "diloco-chaos clean undoes it")
    return Line("left behind", "ok", "nothing")


def _docker() -> Line:
    if shutil.which("docker") is None:
        return Line("docker", "optional", "not installed", "not needed on local")
    try:
        done = subprocess.run(["docker", "info", "--format", "{{.ServerVersion}}"], capture_output=True, text=True,  # noqa: S607
                              timeout=5, check=False)
    except subprocess.TimeoutExpired:
        return Line("docker", "optional", "the engine does not answer", "not needed on local")
    if done.returncode != 0 or not done.stdout.strip():
        return Line("docker", "optional", "a client, but no engine runs", "not needed on local")
    return Line("docker", "ok", f"engine {done.stdout.strip()}")


def _toxiproxy() -> Line:
    path = os.environ.get("DILOCO_CHAOS_TOXIPROXY") or shutil.which("toxiproxy-server")
    return (Line("toxiproxy-server", "ok", path) if path else
            Line("toxiproxy-server", "optional", "not installed", "not needed: links are embedded on local"))
