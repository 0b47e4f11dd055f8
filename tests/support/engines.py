"""What tests say that need a Docker engine where there is none."""

import os

import pytest


def refuse(reason):
    """Skip the test; with DILOCO_CHAOS_REQUIRE_ENGINE set it fails."""
    if os.environ.get("DILOCO_CHAOS_REQUIRE_ENGINE"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
