"""Packages that are installed for the length of a test: a folder on the path, with metadata as pip leaves it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from unittest import mock

from diloco_chaos.harness.base.registries import forget


@contextmanager
def installed(site: Path, name: str, entry_points: str, version: str = "1.2", **modules: str) -> Iterator[None]:
    """Install a package with these modules under `site`; entry points as in entry_points.txt."""
    metadata = site / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (metadata / "entry_points.txt").write_text(dedent(entry_points))
    for module, source in modules.items():
        (site / f"{module}.py").write_text(dedent(source))
    forget()
    with mock.patch.object(sys, "path", [str(site), *sys.path]):
        try:
            yield
        finally:
            for module in modules:
                sys.modules.pop(module, None)
            forget()


