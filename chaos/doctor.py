"""What this machine can do, and what is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from diloco_chaos.chaos.evidence.run_folder import cache_folder, environment
from diloco_chaos.harness.base.extras import lacking
from diloco_chaos.harness.base.registries import OURS, offers
from diloco_chaos.harness.places.base import BY_COMMAND
from diloco_chaos.harness.record.undo_log import in_charge, undo_logs_folder
from diloco_chaos.harness.trainers.core.programs import compiler

if TYPE_CHECKING:
    from diloco_chaos.harness.places.kubernetes.settings import KubernetesSettings
    from diloco_chaos.harness.places.remote.settings import PlaceSettings
    from diloco_chaos.harness.places.slurm.settings import SlurmSettings

LEAST_CORES = 2
LEAST_DISK = 1 << 30
OLDEST_COMPOSE = (1, 29)
_ASK_S = 5


class Line(NamedTuple):
    """One thing that was looked at."""

    name: str
    state: Literal["ok", "missing", "optional"]
    found: str
    advice: str = ""


def examine() -> list[Line]:
    """Look at everything that a run may need."""
    return [_platform(), _cores(), _torch(), _corpus(), _cache(), _undo_logs(), _docker(), _compose(), _toxiproxy(),
            _compiler(),
            *_packages()]


def kubernetes(settings: KubernetesSettings) -> list[Line]:
    """Look at everything that a run on this Kubernetes may need. The client is installed."""
    from diloco_chaos.harness.places.kubernetes.access import lacking as not_allowed
    from diloco_chaos.harness.places.kubernetes.access import rights, too_old
    from diloco_chaos.harness.places.kubernetes.api import Api, KubernetesError
    try:
        api = Api(settings.context)
        version = api.version()
    except KubernetesError as error:
        return [Line("context", "missing", settings.context, str(error))]
    old = too_old(version)
    lines = [Line("context", "ok", settings.context), Line("version", "missing" if old else "ok", version, old),
             Line("namespace", "ok", settings.namespace or "one of its own for each run"),
             Line("images", "optional", f"{settings.image}, {settings.links_image}",
                  f"nobody can tell before a run whether its machines have them (pull_policy: {settings.pull_policy})")]
    missing = dict(not_allowed(api, settings))
    for right in rights(settings):
        words = f"{right.resource}: {', '.join(right.verbs)}"
        lines.append(Line("allowed", "missing" if right in missing else "ok", words,
                          "not allowed; diloco-chaos rbac prints what allows it" if right in missing else ""))
    api.close()
    return lines + _by_command(settings)


def slurm(settings: SlurmSettings) -> list[Line]:
    """Look at everything that a run in this Slurm may need."""
    from diloco_chaos.harness.places.slurm.queue import Slurm, SlurmError, must_be_ready
    try:
        version = Slurm().version()
        machines = must_be_ready(settings.partition)
    except SlurmError as error:
        return [Line("slurm", "missing", settings.partition or "the default partition", str(error))]
    states = Counter(machines.values())
    return [Line("slurm", "ok", version),
            Line("machines", "ok", ", ".join(f"{count} {state}" for state, count in sorted(states.items()))),
            Line("python", "optional", settings.python, "nobody can tell before a run whether the machines have it, "
                                                        "and the trainer with it"), *_by_command(settings)]


def _by_command(settings: PlaceSettings) -> list[Line]:
    return [Line("faults", "ok" if what in settings.commands else "optional", what,
                 "" if what in settings.commands else "only where you say how: `commands` of --place FILE")
            for what in sorted(BY_COMMAND)]


def _platform() -> Line:
    good = sys.platform == "linux"
    return Line("platform", "ok" if good else "missing", sys.platform, "" if good else "diloco-chaos needs Linux")


def _cores() -> Line:
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    found = f"{cores}, load {load:.1f}"
    if cores < LEAST_CORES:
        return Line("cores", "missing", found, "four learners at step_time 60ms need two cores: raise step_time")
    if load > cores * 0.5:
        return Line("cores", "optional", found, "this machine is busy: runs may be inconclusive")
    return Line("cores", "ok", found)


def _torch() -> Line:
    version = environment()["torch"]
    if version == "not installed":
        return Line("torch", "optional", version, lacking("torch", "trainer", "a model other than quadratic"))
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


def _undo_logs() -> Line:
    dead = 0
    for path in undo_logs_folder().glob("*.jsonl"):
        with suppress(OSError), in_charge(path) as ours:
            dead += ours
    if dead:
        return Line("left behind", "optional", f"{dead} undo logs of runs that died", "diloco-chaos clean undoes it")
    return Line("left behind", "ok", "nothing")


def _packages() -> list[Line]:
    """Other packages that provide faults, checks, trainers, scenarios, reports, backends or commands."""
    lines = []
    for what in ("faults", "checks", "trainers", "scenarios", "reports", "backends", "commands"):
        there = offers(f"diloco_chaos.{what}")
        names: dict[str, list[str]] = {}
        for one in there.provided:
            names.setdefault(one.provider, []).append(one.name)
        lines += [Line(what, "ok", f"{', '.join(found)} of {provider}") for provider, found in names.items()
                  if provider.split()[0] != OURS]
        lines += [Line(what, "optional", f"{one.name} of {one.provider}", f"can't be loaded: {one.reason}")
                  for one in there.broken]
    return lines


def _docker() -> Line:
    if why := lacking("docker", "compose", "--on compose"):
        return Line("docker", "optional", "docker-py is not installed", why)
    from diloco_chaos.harness.places.compose.cluster import must_be_ready
    from diloco_chaos.harness.places.compose.engine import Engine, EngineError, dead_runs
    try:
        engine = Engine()
    except EngineError as error:
        return Line("docker", "optional", "unusable", f"{error} (not needed on local)")
    try:
        dead = dead_runs(engine)
        if dead:
            return Line("docker", "optional", f"engine {engine.version}, containers of {len(dead)} runs that died",
                        "diloco-chaos clean removes them")
        must_be_ready()
    except EngineError as error:
        return Line("docker", "optional", f"engine {engine.version}", f"{error} (not needed on local)")
    finally:
        engine.close()
    return Line("docker", "ok", f"engine {engine.version}, images there")


def _compose() -> Line:
    """Only for `docker compose up` by hand: runs need no compose."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is None:
            continue
        with suppress(subprocess.TimeoutExpired):
            done = subprocess.run([*command, "version", "--short"], capture_output=True, text=True, timeout=_ASK_S,
                                  check=False)
            found = re.match(r"v?(\d+)\.(\d+)", done.stdout.strip())
            if done.returncode == 0:
                old = found is not None and (int(found[1]), int(found[2])) < OLDEST_COMPOSE
                return Line("compose", "optional" if old else "ok", f"{' '.join(command)} {done.stdout.strip()}",
                            "too old for docker-compose.yml: it must be 1.29, or 2" if old else "")
    return Line("compose", "optional", "not installed", "not needed for runs; for `docker compose up` install it")


def _compiler() -> Line:
    path = compiler()
    return (Line("C compiler", "ok", path) if path else
            Line("C compiler", "optional", "not installed", "only for `peers: caught` of a trainer of commands"))


def _toxiproxy() -> Line:
    path = os.environ.get("DILOCO_CHAOS_TOXIPROXY") or shutil.which("toxiproxy-server")
    return (Line("toxiproxy-server", "ok", path) if path else
            Line("toxiproxy-server", "optional", "not installed", "not needed: links are embedded on local"))
