"""Files that hold tensors: written whole or not at all, and checked when they are read.

What must not be lost is written twice, one copy after the other: a crash leaves at least one of them whole, and a
damaged one is made good from the other. Where a crash came between the two writes, they differ by one version that
nobody has seen yet.
"""

from __future__ import annotations

import hashlib
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
    text = json.dumps(meta)
    data = to_bytes(tensors, {"digest": digest(tensors), "meta": text, "meta_digest": _digest_of(text)})
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


def copies(path: Path) -> tuple[Path, Path]:
    """Where the two copies lie."""
    return path, path.with_name(f"{path.stem}.mirror{path.suffix}")


def save_both(path: Path, tensors: Tensors, meta: dict[str, Any],
              before_rename: Callable[[], None] = lambda: None) -> None:
    """`save`, twice; `before_rename` is called for the first.

    Raises:
        OSError: as `save`.
    """
    first, mirror = copies(path)
    save(first, tensors, meta, before_rename)
    save(mirror, tensors, meta)


def load_either(path: Path) -> tuple[Tensors, dict[str, Any], dict[str, str]]:
    """The newest whole copy (by its `version`), and why any other was not whole: file name -> reason.

    Raises:
        CheckpointError: no copy is whole; with the reason for each.
    """
    whole: list[tuple[Tensors, dict[str, Any]]] = []
    damaged: dict[str, str] = {}
    for copy in copies(path):
        try:
            whole.append(load(copy))
        except CheckpointError as error:
            damaged[copy.name] = "missing" if not copy.exists() else str(error)
    if not whole:
        raise CheckpointError("; ".join(damaged.values()))
    tensors, meta = max(whole, key=lambda found: int(found[1]["version"]))
    return tensors, meta, damaged


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
    return tensors, _meta(path, stored)


def _meta(path: Path, stored: dict[str, str]) -> dict[str, Any]:
    """The metadata, checked against its own digest."""
    text = stored.get("meta", "")
    if stored.get("meta_digest") != _digest_of(text):
        raise CheckpointError(f"{path}: the metadata does not match its digest; it was altered after it was written")
    meta = json.loads(text)
    assert isinstance(meta, dict), "what was saved is a mapping"
    return meta


def _digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
