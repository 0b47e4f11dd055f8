"""Which trainer this is: a changed one has no references yet, and an image that holds another one is out of date."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

HARNESS = Path(__file__).parent
TRAINER = HARNESS / "trainer"


def source_digest() -> str:
    """Digest of the trainer's Python files."""
    return _digest(TRAINER.rglob("*.py"))


def node_digest() -> str:
    """Digest of everything that a node's process is made of."""
    return _digest([*TRAINER.rglob("*.py"), *HARNESS.glob("*.py"), *(HARNESS / "cleanup").glob("*.py")])


def _digest(files: Iterable[Path]) -> str:
    hasher = hashlib.sha256()
    for path in sorted(files):
        hasher.update(str(path.relative_to(HARNESS)).encode() + b"\0" + path.read_bytes())
    return hasher.hexdigest()


if __name__ == "__main__":
    print(node_digest())
