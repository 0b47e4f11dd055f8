"""What docker-compose.yml says about a service, for docker-py: runs use the images and limits that people see there.

Commands, networks, volumes, ports and restarts are the run's own; a key that can't be taken over is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from docker.types import Mount

from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.compose import compose_cli
from diloco_chaos.harness.trainers.core.programs import Service

PERIOD_US = 100_000
"""Period of a CPU quota, in microseconds: the kernel's default."""
_FOR_COMMANDS: dict[str, Any] = {"cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"]}
_OWN = frozenset({"command", "networks", "volumes", "ports", "restart", "depends_on", "build", "healthcheck",
                  "environment", "stop_grace_period", "container_name"})


def _cpus(value: Any) -> dict[str, Any]:
    """Return the processors as quota and period, which can be changed later: `NanoCPUs` can't."""
    return {"cpu_period": PERIOD_US, "cpu_quota": round(float(value) * PERIOD_US)}


def _tmpfs(value: list[str]) -> dict[str, Any]:
    """Return Docker's argument for `/tmp` and `/tmp:size=64m`."""
    return {"tmpfs": {path: options for path, _, options in (mount.partition(":") for mount in value)}}


def _sysctls(value: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings as they are.

    Raises:
        ValueError: one has no value.
    """
    if empty := sorted(name for name, setting in value.items() if not setting):
        raise ValueError(f"{', '.join(empty)}: no value: write NAME=VALUE")
    return {"sysctls": value}


def _environment(value: Mapping[str, str | None]) -> dict[str, Any]:
    """Return Docker's argument without variables that are taken from this environment, and are not set there."""
    return {"environment": {name: setting for name, setting in value.items() if setting is not None}}


def _folders(value: list[dict[str, Any]]) -> dict[str, Any]:
    """Return Docker's argument for folders of this machine: a run has no volumes but its own.

    Raises:
        ValueError: a source is no path, or does not exist, or there are other options.
    """
    mounts = []
    for volume in value:
        source, target = volume.get("source", ""), volume["target"]
        if volume["type"] != "bind" or {*volume, *(volume.get("bind") or ())} - _OF_FOLDERS:
            raise ValueError(f"'{source}:{target}' is no folder of this machine: write ./SOURCE:TARGET or "
                             f"./SOURCE:TARGET:ro, without other options")
        if not Path(source).exists():
            raise ValueError(f"there is no {source}")
        mounts.append(Mount(target, source, type="bind", read_only=volume.get("read_only", False)))
    return {"mounts": mounts}


_TAKEN: dict[str, Callable[[Any], dict[str, Any]]] = {
    "cpus": _cpus,
    "tmpfs": _tmpfs,
    "sysctls": _sysctls,
    "mem_limit": lambda value: {"mem_limit": value, "memswap_limit": value}}
_TAKEN_OF_FOREIGN: dict[str, Callable[[Any], dict[str, Any]]] = {"environment": _environment, "volumes": _folders}
_AS_THEY_ARE = frozenset({"image", "init", "read_only", "cap_drop", "cap_add", "security_opt", "user", "pids_limit",
                          "shm_size", "working_dir"})
_OF_FOLDERS = frozenset({"type", "source", "target", "read_only", "bind", "create_host_path"})


def find() -> Path:
    """The file: at the root of a checkout, and in the package where it was installed.

    Raises:
        ClusterError: there is none.
    """
    path = Path(__file__).resolve().parents[3] / "docker-compose.yml"
    if not path.is_file():
        raise ClusterError("docker-compose.yml is missing from this installation: install diloco-chaos again")
    return path


def service(path: Path, name: str, *, foreign: bool = False) -> dict[str, Any]:
    """Arguments for `docker.models.containers.create` that the file states for a service. `foreign`: of a file that is
    somebody else's, of which the environment and folders of this machine are taken over, too.

    Raises:
        ClusterError: the file can't be read, or says something that a run can't take over.
    """
    services = compose_cli.services(path)
    if name not in services:
        raise ClusterError(f"{path}: there is no service {name}")
    stated = {key: value for key, value in services[name].items() if value is not None}
    taken = _TAKEN | (_TAKEN_OF_FOREIGN if foreign else {})
    if unknown := sorted(set(stated) - _OWN - set(taken) - _AS_THEY_ARE):
        raise ClusterError(f"{path}: services.{name}: a run can't take over {', '.join(unknown)}; remove it there, or "
                           f"run with --on local")
    arguments: dict[str, Any] = {key: stated[key] for key in sorted(set(stated) & _AS_THEY_ARE)}
    for key in sorted(set(stated) & set(taken)):
        try:
            arguments |= taken[key](stated[key])
        except ValueError as error:
            raise ClusterError(f"{path}: services.{name}.{key}: {error}") from error
    return arguments


def of_command(image: str, wanted: Service | None) -> dict[str, Any]:
    """Return what the container of a command is made with, beside the command."""
    if wanted is None:
        return {"image": image, **_FOR_COMMANDS}
    stated = service(Path(wanted.file), wanted.name, foreign=True)
    return stated | ({"image": image} if image else {})
