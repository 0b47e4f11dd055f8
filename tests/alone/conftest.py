"""Tests that need the machine for themselves: `make test` runs them one after the other, after all others."""

import shutil
import subprocess

import pytest

from engines import refuse


@pytest.fixture(params=[["docker", "compose"], ["docker-compose"]], ids=["compose-2", "compose-1"])
def compose(request, engine_there):
    """The command line of Compose, both generations."""
    command = request.param
    if shutil.which(command[0]) is None or subprocess.run([*command, "version"], capture_output=True).returncode:
        refuse(f"{' '.join(command)} is not installed")
    return command
