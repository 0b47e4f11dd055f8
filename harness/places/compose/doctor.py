"""What a machine has of what containers need."""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import suppress

from diloco_chaos.harness.base.extras import lacking
from diloco_chaos.harness.places.place import Requirement

_OLDEST_COMPOSE = (1, 29)
_ASK_S = 5


def engine() -> Requirement:
    """A Docker engine that can be used, with the images."""
    if why := lacking("docker", "compose", "--on compose"):
        return Requirement("docker", "missing", "docker-py is not installed", why)
    from diloco_chaos.harness.places.compose.cluster import must_be_ready
    from diloco_chaos.harness.places.compose.engine import Engine, EngineError, dead_runs
    try:
        engine = Engine()
    except EngineError as error:
        return Requirement("docker", "missing", "unusable", str(error))
    try:
        if dead := dead_runs(engine):
            return Requirement("docker", "optional", f"engine {engine.version}, containers of {len(dead)} runs that "
                                                     f"died", "diloco-chaos clean removes them")
        must_be_ready()
    except EngineError as error:
        return Requirement("docker", "missing", f"engine {engine.version}", str(error))
    finally:
        engine.close()
    return Requirement("docker", "ok", f"engine {engine.version}, images there")


def by_hand() -> Requirement:
    """Compose, which is only for `docker compose up` by hand: runs need none."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is None:
            continue
        with suppress(subprocess.TimeoutExpired):
            done = subprocess.run([*command, "version", "--short"], capture_output=True, text=True, timeout=_ASK_S,
                                  check=False)
            found = re.match(r"v?(\d+)\.(\d+)", done.stdout.strip())
            if done.returncode == 0:
                old = found is not None and (int(found[1]), int(found[2])) < _OLDEST_COMPOSE
                return Requirement("compose", "optional" if old else "ok",
                                   f"{' '.join(command)} {done.stdout.strip()}",
                                   "too old for docker-compose.yml: it must be 1.29, or 2" if old else "")
    return Requirement("compose", "optional", "not installed",
                       "not needed for runs; for `docker compose up` install it")
