"""How the library is built, by this machine's compiler, and preloaded: each concern is a file, and is loaded alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Literal

from diloco_chaos.harness.base.errors import UserError

Concern = Literal["connect", "io", "hang", "unsynced", "cuda"]
"""Connections that no command names, calls on files, main threads that stand, writes that no fsync followed, and calls
of the CUDA runtime."""
PRELOADED = "LD_PRELOAD"
_BUILD_S = 60
_FLAGS = ("-O2", "-shared", "-fPIC", "-nostdlib", "-fno-stack-protector", "-U_FORTIFY_SOURCE")
_SOURCES: dict[Concern, tuple[str, ...]] = {"cuda": ("cuda.c", "nvml.c", "lookup.c")}
"""Of a concern that has more than the file of its name."""
_LINKED: dict[Concern, tuple[str, ...]] = {
    "connect": (), "io": ("-ldl",), "hang": ("-ldl",), "unsynced": ("-ldl",), "cuda": ("-ldl",)}


class PreloadError(UserError):
    """The library can't be built, or not be preloaded; the message says why, and what to do."""


def compiler() -> str:
    """Return the system's C compiler, or what CC names; empty: there is none."""
    return shutil.which(os.environ.get("CC") or "cc") or ""


def no_compiler(what: str) -> str:
    """Return why something of a scenario needs a compiler, and what to do."""
    return f"{what} needs a C compiler, and there is none: install gcc or clang, or name one in CC"


def built(folder: Path, concern: Concern, what: str) -> Path:
    """Build the part of the library for a concern into a folder, which is there, and return its path.

    `what`: what of a scenario needs it, for messages.

    Raises:
        PreloadError: there is no compiler, or it could not.
    """
    library = folder.resolve() / f"{concern}.so"
    sources = [str(Path(__file__).with_name(name)) for name in _SOURCES.get(concern, (f"{concern}.c",))]
    if not compiler():
        raise PreloadError(no_compiler(what))
    argv = [compiler(), *_FLAGS, "-o", str(library), *sources, *_LINKED[concern]]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_BUILD_S, check=False)
    if done.returncode != 0:
        raise PreloadError(f"{what}: {compiler()} could not build the library:\n{done.stderr.strip()}")
    library.chmod(0o755)
    return library


def must_be_preloadable(folder: Path, what: str) -> None:
    """Check that a library in this folder can be named in LD_PRELOAD.

    Raises:
        PreloadError: the path has a space or a colon, which end a name there.
    """
    if any(mark in str(folder.resolve()) for mark in " :"):
        raise PreloadError(f"{what}: there is a space or a colon in {str(folder)!r}, and no library can be "
                           f"preloaded from there: run it in another one")


def preloading(library: str, before: str) -> dict[str, str]:
    """Return the environment variable by which a process loads it, before what it would preload anyway."""
    return {PRELOADED: " ".join(filter(None, [library, before]))}
