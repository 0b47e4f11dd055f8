"""Tests that need the machine for themselves: `make test` runs them one after the other, after all others."""

import os
import shutil
import subprocess

import pytest


@pytest.fixture(scope="session")
def engine_there():
    """Without an engine and its images these tests are skipped; with DILOCO_CHAOS_REQUIRE_ENGINE set they fail."""
    from diloco_chaos.harness.places.base import ClusterError
    from diloco_chaos.harness.places.compose.readiness import must_be_ready
    try:
        must_be_ready()
    except ClusterError as error:
        refuse(str(error))


def refuse(reason):
    if os.environ.get("DILOCO_CHAOS_REQUIRE_ENGINE"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(params=[["docker", "compose"], ["docker-compose"]], ids=["compose-2", "compose-1"])
def compose(request, engine_there):
    """The command line of Compose, both generations."""
    command = request.param
    if shutil.which(command[0]) is None or subprocess.run([*command, "version"], capture_output=True).returncode:
        refuse(f"{' '.join(command)} is not installed")
    return command
