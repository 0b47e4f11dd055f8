"""What this machine can do, and what is missing."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from diloco_chaos.chaos.evidence.run_folder import cache_folder, environment
from diloco_chaos.harness.base.extras import lacking
from diloco_chaos.harness.base.registries import Provider, clashes, offers
from diloco_chaos.harness.places.place import Place, Requirement
from diloco_chaos.harness.places.registry import DEFAULT, place_named, places, unusable
from diloco_chaos.harness.record.undo_log import in_charge, undo_logs_folder

LEAST_CORES = 2
LEAST_DISK = 1 << 30


def examine(on: str = DEFAULT, given: Mapping[str, Any] | None = None) -> list[Requirement]:
    """Look at everything that a run may need at a place. `given`: its options. At the default one this machine's other
    places are looked at, too: nothing that they lack is missed there.

    Raises:
        ProviderError: there is no such place.
        OptionError, ClusterError, MissingExtraError: it can't be looked at with these options.
    """
    place = place_named(on)
    lines = _of_machine() if place.here else []
    if on == DEFAULT:
        for other in (other for other in places() if other.here and other.name != on):
            lines += [_not_needed(line) for line in _asked(other)]
    return [*lines, *place.requirements(given or {}), *(_packages() if on == DEFAULT else [])]


def _asked(place: type[Place]) -> list[Requirement]:
    try:
        return place.requirements({})
    except Exception as error:  # another package's code, which must keep nothing else from being looked at
        return [Requirement(place.name, "missing", "can't be looked at", str(error) or type(error).__name__)]


def _of_machine() -> list[Requirement]:
    return [_platform(), _cores(), _torch(), _corpus(), _cache(), _undo_logs()]


def _not_needed(line: Requirement) -> Requirement:
    if line.state != "missing":
        return line
    return line._replace(state="optional", advice=f"{line.advice} (not needed on {DEFAULT})")


def _platform() -> Requirement:
    good = sys.platform == "linux"
    return Requirement("platform", "ok" if good else "missing", sys.platform,
                       "" if good else "diloco-chaos needs Linux")


def _cores() -> Requirement:
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    measured = f"{cores}, load {load:.1f}"
    if cores < LEAST_CORES:
        return Requirement("cores", "missing", measured,
                           "four learners at step_time 60ms need two cores: raise step_time")
    if load > cores * 0.5:
        return Requirement("cores", "optional", measured, "this machine is busy: runs may be inconclusive")
    return Requirement("cores", "ok", measured)


def _torch() -> Requirement:
    version = environment()["torch"]
    if version == "not installed":
        return Requirement("torch", "optional", version, lacking("torch", "trainer", "a model other than quadratic"))
    return Requirement("torch", "ok", version)


def _corpus() -> Requirement:
    folder = Path(sysconfig.get_paths()["stdlib"])
    count = sum("site-packages" not in path.parts for path in folder.rglob("*.py"))
    good = count > 100
    return Requirement("corpus stdlib", "ok" if good else "missing", f"{count} source files in {folder}",
                "" if good else "this Python comes without its sources: use --corpus PATH")


def _cache() -> Requirement:
    folder = cache_folder()
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    good = os.access(existing, os.W_OK) and free > LEAST_DISK
    return Requirement("cache", "ok" if good else "missing", f"{folder}, {free / 1e9:.0f} GB free",
                "" if good else "set XDG_CACHE_HOME to a writable place with a gigabyte to spare")


def _undo_logs() -> Requirement:
    dead = 0
    for path in undo_logs_folder().glob("*.jsonl"):
        with suppress(OSError), in_charge(path) as ours:
            dead += ours
    if dead:
        return Requirement("left behind", "optional", f"{dead} undo logs of runs that died",
                           "diloco-chaos clean undoes it")
    return Requirement("left behind", "ok", "nothing")


def _packages() -> list[Requirement]:
    """Return a line for each other package that provides faults, checks, trainers, scenarios, reports, backends or
    commands, and for what can't be used of what they provide."""
    lines = []
    for what in ("faults", "checks", "trainers", "scenarios", "reports", "backends", "commands"):
        offered = offers(f"diloco_chaos.{what}")
        names: dict[Provider, list[str]] = {}
        for entry in offered.provided:
            names.setdefault(entry.provider, []).append(entry.name)
        lines += [Requirement(what, "ok", f"{', '.join(provided)} of {provider}")
                  for provider, provided in names.items() if not provider.ours]
        lines += [Requirement(what, "optional", f"{broken.name} of {broken.provider}",
                              f"can't be loaded: {broken.reason}")
                  for broken in offered.broken]
    wrong = unusable() + [why for what in ("trainer", "report", "backend", "command")
                          for why in clashes(f"diloco_chaos.{what}s", what)]
    return lines + [Requirement("packages", "optional", "can't be used", why) for why in wrong]
