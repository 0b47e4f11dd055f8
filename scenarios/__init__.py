"""The scenario library: every `*.yaml` beside this file, by name."""

from __future__ import annotations

from pathlib import Path


def find() -> dict[str, Path]:
    """Name -> file of every scenario in the library, in the order of names."""
    return {path.stem: path for path in sorted(Path(__file__).parent.glob("*.yaml"))}
