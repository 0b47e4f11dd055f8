"""Files that hold tensors: written whole or not at all, and checked when they are read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from harness.trainer.tensors import Tensors, digest


class CheckpointError(Exception):
    """A checkpoint that is missing, torn or altered."""


def save(path: Path, tensors: Tensors, meta: dict[str, Any], before_rename: Callable[[], None] = lambda: None) -> None:
    """Write tensors and metadata so that a crash at any moment leaves the old file or the new one, whole.

    A temporary file beside the target is written, fsynced and renamed, and the folder fsynced.

    Raises:
        OSError: the file could not be written; the old one is untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    data = to_bytes(tensors, {"digest": digest(tensors), "meta": json.dumps(meta)})
    temporary = path.with_name(path.name + ".partial")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    before_rename()
    os.replace(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def load(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """Read a checkpoint and check it against its digest.

    Raises:
        CheckpointError: it is missing, torn, or its content does not match its digest.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            stored = file.metadata() or {}
            tensors: Tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: can't be read as a checkpoint: {error}") from error
    if stored.get("digest") != digest(tensors):
        raise CheckpointError(f"{path}: the content does not match its digest; it was altered after it was written")
    return tensors, json.loads(stored["meta"])
