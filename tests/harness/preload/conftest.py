"""What is preloaded, a module's own `library`, and the page that it shares with a test."""

import os

import pytest

from diloco_chaos.harness.preload.page import Page


@pytest.fixture
def page(tmp_path):
    return Page(tmp_path / "page", "0123456789abcdef")


@pytest.fixture
def environment(library, tmp_path):
    return os.environ | {"LD_PRELOAD": str(library), "DILOCO_CHAOS_PAGE": str(tmp_path / "page")}
