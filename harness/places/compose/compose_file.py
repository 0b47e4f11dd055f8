"""What docker-compose.yml says about a service, for docker-py: runs use the images and limits that people see there.

Commands, networks, volumes, ports and restarts are the run's own; a key that can't be taken over is an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from docker.types import Mount

from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.record.storage.documents import yaml_of
from diloco_chaos.harness.trainers.core.programs import Service

_VARIABLE = re.compile(r"\$(?:\$|(?P<bare>\w+)|\{(?P<name>\w+)(?::?-(?P<default>[^}]*))?\})")
PERIOD_US = 100_000
"""Period of a CPU quota, in microseconds: the kernel's default."""
_FOR_COMMANDS: dict[str, Any] = {"cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"]}
_OWN = frozenset({"command", "networks", "volumes", "ports", "restart", "depends_on", "build", "healthcheck",
                  "environment", "stop_grace_period", "container_name"})


def _cpus(value: Any) -> dict[str, Any]:
    """As quota and period, which can be changed later: `NanoCPUs` can't."""
    return {"cpu_period": PERIOD_US, "cpu_quota": round(float(value) * PERIOD_US)}


def _tmpfs(value: Any) -> dict[str, Any]:
    """Return Docker's argument for `/tmp` or `/tmp:size=64m`, or a list of them."""
    mounts = (str(mount).partition(":") for mount in (value if isinstance(value, list) else [value]))
    return {"tmpfs": {path: options for path, _, options in mounts}}


def _sysctls(value: Any) -> dict[str, Any]:
    """Return Docker's argument for `{name: value}`, or a list of `name=value`."""
    pairs = value.items() if isinstance(value, dict) else (str(pair).split("=", 1) for pair in value)
    return {"sysctls": {str(name): str(setting) for name, setting in pairs}}


_TAKEN: dict[str, Callable[[Any], dict[str, Any]]] = {
    "cpus": _cpus,
    "tmpfs": _tmpfs,
    "sysctls": _sysctls,
    "pids_limit": lambda value: {"pids_limit": int(value)},
    "mem_limit": lambda value: {"mem_limit": value, "memswap_limit": value}}
_AS_THEY_ARE = frozenset({"image", "init", "read_only", "cap_drop", "cap_add", "security_opt", "user",
                          "shm_size", "working_dir"})


def _environment(value: Any) -> dict[str, Any]:
    """Return Docker's argument for `{NAME: value}`, or a list of `NAME=value`."""
    pairs = value.items() if isinstance(value, dict) else (str(pair).split("=", 1) for pair in value)
    return {"environment": {str(name): "" if setting is None else str(setting) for name, setting in pairs}}


def _folders(path: Path, value: Any) -> dict[str, Any]:
    """Return Docker's argument for `SOURCE:TARGET` or `SOURCE:TARGET:ro`, where the source is a path: a run has no
    volumes but its own.

    Raises:
        ValueError: the source is no path, or does not exist.
    """
    mounts = []
    for bind in value:
        source, target, *mode = str(bind).split(":")
        if not source.startswith(("/", "./", "../", "~")) or mode not in ([], ["ro"], ["rw"]):
            raise ValueError(f"{bind!r} is no folder of this machine: write ./SOURCE:TARGET or ./SOURCE:TARGET:ro")
        folder = (path.parent / Path(source).expanduser()).resolve()
        if not folder.exists():
            raise ValueError(f"there is no {folder}")
        mounts.append(Mount(target, str(folder), type="bind", read_only=mode == ["ro"]))
    return {"mounts": mounts}


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
    services = _read(path).get("services")
    stated = services.get(name) if isinstance(services, dict) else None
    if not isinstance(stated, dict):
        raise ClusterError(f"{path}: there is no service {name}")
    taken = _TAKEN | ({"environment": _environment, "volumes": partial(_folders, path)} if foreign else {})
    unknown = sorted(set(stated) - (_OWN - set(taken)) - set(taken) - _AS_THEY_ARE)
    if unknown:
        raise ClusterError(f"{path}: services.{name}: a run can't take over {', '.join(unknown)}; remove it there, or "
                           f"run with --on local")
    arguments: dict[str, Any] = {key: stated[key] for key in sorted(set(stated) & _AS_THEY_ARE)}
    for key in sorted(set(stated) & set(taken)):
        try:
            arguments |= taken[key](stated[key])
        except (TypeError, ValueError) as error:
            raise ClusterError(f"{path}: services.{name}.{key}: {stated[key]!r} is wrong: {error}") from error
    return arguments


def of_command(image: str, wanted: Service | None) -> dict[str, Any]:
    """What the container of a command is made with, beside the command."""
    if wanted is None:
        return {"image": image, **_FOR_COMMANDS}
    stated = service(Path(wanted.file), wanted.name, foreign=True)
    return stated | ({"image": image} if image else {})


def _read(path: Path) -> Mapping[str, Any]:
    try:
        content = yaml_of(path)
    except (OSError, ValueError) as error:
        raise ClusterError(f"{path}: can't be read: {error}") from error
    if not isinstance(content, dict):
        raise ClusterError(f"{path}: not a compose file")
    filled = _filled(content)
    assert isinstance(filled, dict), "variables stand in strings only"
    return filled


def _filled(value: Any) -> Any:
    """Return the value with every $VARIABLE, ${VARIABLE} and ${VARIABLE:-default} filled in from the environment; $$ is
    a dollar.

    Raises:
        ClusterError: the value has another kind of ${...}.
    """
    if isinstance(value, str):
        if "${" in _VARIABLE.sub("", value):
            raise ClusterError(f"docker-compose.yml: {value!r}: only ${{NAME}} and ${{NAME:-default}} can be taken "
                               f"over")
        return _VARIABLE.sub(_variable, value)
    if isinstance(value, dict):
        return {key: _filled(entry) for key, entry in value.items()}
    return [_filled(entry) for entry in value] if isinstance(value, list) else value


def _variable(match: re.Match[str]) -> str:
    name = match["name"] or match["bare"]
    return "$" if name is None else os.environ.get(name) or match["default"] or ""
