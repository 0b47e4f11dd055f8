"""What a compose file comes to: `docker compose` reads it, with variables, env_file, extends and all syntaxes.

It needs no engine. A file may be anybody's: time, memory and output are bounded, and nothing is fetched.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.record.storage.files import bytes_of

NEEDED = ("runs in containers need Docker Compose 2.13 or newer as `docker compose`: install Docker's package "
          "docker-compose-plugin")
OLDEST = (2, 13)
"""The first that skips the checks of what a run does not take over, such as networks."""
_MOST_BYTES = 1 << 20
"""Of a file: people write less."""
_WITHIN_S = 20
"""It takes a tenth of a second."""
_LIMITED = ("sh", "-c", 'ulimit -d 2097152; ulimit -f 32768; exec "$@"', "sh")
"""At most 2 GiB of memory, and 16 MiB of output."""
_NO_ROOM = rb"out of memory|pthread_create failed"
"""What a Go program says then: the second where there is no room for a thread's stack."""
_LONGEST = 1000
"""What is said of an error, in characters."""
_DOCKER = ("docker", "compose")
_READ = ("--profile", "*", "config", "--no-consistency", "--format", "json")
_NOTHING_FETCHED = {"COMPOSE_EXPERIMENTAL_GIT_REMOTE": "false", "COMPOSE_EXPERIMENTAL_OCI_REMOTE": "false"}
_NOISE = re.compile(r"^time=.*$|^(goroutine|runtime stack)\b[\s\S]*|\b(validating|failed to parse) -: ", re.MULTILINE)
"""Warnings, stacks, and the file's name, which is `-`."""


def version() -> tuple[int, ...]:
    """Return the version of `docker compose`, as (2, 40); empty where there is none."""
    try:
        done = subprocess.run([*_DOCKER, "version", "--short"], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=_WITHIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(map(int, re.findall(r"\d+", done.stdout)[:2])) if done.returncode == 0 else ()


def services(path: Path) -> Mapping[str, Any]:
    """Return the file's services in Compose's canonical form. The same file is read once in a process, as long as the
    environment stays the same.

    Raises:
        ClusterError: the file can't be read, or there is no `docker compose` that could read it.
    """
    try:
        return _services(path.parent.absolute(), bytes_of(path, _MOST_BYTES), frozenset(os.environ.items()))
    except (OSError, ValueError) as error:
        raise ClusterError(f"{path}: can't be read: {error}") from error
    except RecursionError as error:
        raise ClusterError(f"{path}: can't be read: it is nested too deeply") from error


@lru_cache(maxsize=64)
def _services(folder: Path, content: bytes, environment: frozenset[tuple[str, str]]) -> Mapping[str, Any]:
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [*_LIMITED, *_DOCKER, "--project-directory", str(folder), "--file", "-", *_READ],
            stdin=subprocess.PIPE, stdout=output, stderr=subprocess.PIPE, env=dict(environment) | _NOTHING_FETCHED,
            process_group=0)
        try:
            _, errors = process.communicate(content, _WITHIN_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise ValueError(f"docker compose takes more than {_WITHIN_S} s for it") from None
        if process.returncode:
            if version() < OLDEST:
                raise ClusterError(NEEDED)
            if re.search(_NO_ROOM, errors):
                raise ValueError("docker compose was out of memory for it, of which it gets 2 GiB, or of threads")
            said = _NOISE.sub("", errors.decode(errors="replace")).split()
            raise ValueError(" ".join(said)[:_LONGEST] or f"docker compose ended with {process.returncode}")
        output.seek(0)
        # what it prints is a compose file again, in which every dollar stands twice
        return json.loads(output.read().replace(b"$$", b"$")).get("services") or {}
