"""Which trainer this is: a changed one has no references yet, and an image that holds another one is out of date."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

HARNESS = Path(__file__).parents[1]
_TRAINING = ("trainer", "trainers/api", "trainers/core", "trainers/node", "trainers/storage", "trainers/wire",
             "record/storage")
"""The rooms that what is trained depends on."""


def source_digest() -> str:
    """Digest of the Python files of the built-in trainer and of what runs it."""
    return _digest(_training())


def node_digest() -> str:
    """Digest of everything that a node's process is made of."""
    return _digest([*_training(), *(HARNESS / "base").rglob("*.py"), *(HARNESS / "record").rglob("*.py")])


def _training() -> list[Path]:
    return [path for room in _TRAINING for path in (HARNESS / room).rglob("*.py")]


def _digest(files: Iterable[Path]) -> str:
    hasher = hashlib.sha256()
    for path in sorted(set(files)):
        hasher.update(str(path.relative_to(HARNESS)).encode() + b"\0" + path.read_bytes())
    return hasher.hexdigest()


if __name__ == "__main__":
    print(node_digest())
