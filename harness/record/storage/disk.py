"""Where checkpoints lie: a folder of this machine, or of a simulated one. The steps of a safe write are the same."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from diloco_chaos.harness.base.tensors import Tensors, digest

_ENTRY = "checkpoint"
STATE = "state"
"""The folder, in the run's, of what the node that others connect to must not forget."""


class CheckpointError(Exception):
    """A checkpoint that is missing, torn or altered."""


@dataclass(frozen=True)
class Content:
    """The content of a file."""

    tensors: Tensors
    meta: dict[str, Any]

    def encoded(self) -> bytes:
        """A safetensors file, with digests of tensors and metadata in its header."""
        from safetensors.numpy import save as to_bytes
        text = json.dumps(self.meta)
        stored = {"digest": digest(self.tensors), "meta": text, "meta_digest": _digest_of(text)}
        return bytes(to_bytes(self.tensors, {_ENTRY: json.dumps(stored)}))  # of several the order would be random

    @classmethod
    def decoded(cls, data: bytes, where: str) -> Content:
        """The inverse, checked. `where` is for the message.

        Raises:
            CheckpointError: it is torn, or does not match its digests.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load as from_bytes
        try:
            tensors: Tensors = from_bytes(data)
            header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
            stored = json.loads(header.get("__metadata__", {}).get(_ENTRY, "{}"))
            assert isinstance(stored, dict), "what was saved is a mapping"
        except (SafetensorError, ValueError, KeyError, AttributeError, AssertionError) as error:
            raise CheckpointError(f"{where}: can't be read as a checkpoint: {error}") from error
        if stored.get("digest") != digest(tensors):
            raise CheckpointError(f"{where}: the content does not match its digest; it was altered after it was "
                                  f"written")
        text = stored.get("meta", "")
        if stored.get("meta_digest") != _digest_of(text):
            raise CheckpointError(f"{where}: the metadata does not match its digest; it was altered after it was "
                                  f"written")
        meta = json.loads(text)
        assert isinstance(meta, dict), "what was saved is a mapping"
        return cls(tensors, meta)


class Disk(Protocol):
    """One folder. What is written is safe from a crash of the machine only once it is synced, and so is a new name."""

    def write(self, name: str, content: Content) -> None:
        """Write a file anew.

        Raises:
            OSError: there is no room for it, or it is not allowed.
        """
        ...

    def sync(self, name: str) -> None:
        """Have a file's content on stable storage."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, replacing whatever bore it."""
        ...

    def sync_names(self) -> None:
        """Have all names on stable storage."""
        ...

    def read(self, name: str) -> Content:
        """A file's content.

        Raises:
            CheckpointError: it is missing, torn or altered.
        """
        ...

    def names(self) -> Iterable[str]:
        """Return the names of all files."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file."""
        ...


class FolderDisk:
    """A real folder; implements `Disk`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, content: Content) -> None:
        """Write it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / name, "wb") as file:
            file.write(content.encoded())

    def sync(self, name: str) -> None:
        """fsync(2)."""
        _sync(self.folder / name, os.O_RDWR)

    def rename(self, old: str, new: str) -> None:
        """rename(2)."""
        os.replace(self.folder / old, self.folder / new)

    def sync_names(self) -> None:
        """fsync(2) of the folder."""
        _sync(self.folder, os.O_RDONLY)

    def read(self, name: str) -> Content:
        """Read it."""
        path = self.folder / name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise CheckpointError(f"{path}: can't be read as a checkpoint: {error}") from error
        return Content.decoded(data, str(path))

    def names(self) -> Iterable[str]:
        """Return the names of all files, in order."""
        return sorted(path.name for path in self.folder.glob("*"))

    def remove(self, name: str) -> None:
        """unlink(2)."""
        (self.folder / name).unlink()


def file_digest(path: Path) -> str:
    """Return the digest of a file's content; empty where it can't be read."""
    try:
        return content_digest(path.read_bytes())
    except OSError:
        return ""


def content_digest(data: bytes) -> str:
    """128-bit BLAKE2b."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _sync(path: Path, flags: int) -> None:
    opened = os.open(path, flags)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
