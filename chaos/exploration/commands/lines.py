"""Kinds of log lines: a line without its numbers and identifiers, and the expression that finds such lines again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from diloco_chaos.harness.record.storage.files import bytes_of

_VARIABLE = re.compile(r"\d+\.\d+(?:e[-+]?\d+)?|0x[0-9a-fA-F]+|\b(?=[a-f]*\d)[0-9a-f]{6,}\b|\d+(?:e[-+]?\d+)?|"
                       r"\btmp\w{6,}")
_SPECIAL = re.compile(r"([.^$*+?{}\[\]\\|()])")
_ANY = "#"
_LONGEST, _MOST = 160, 400
"""Characters of a kind, and kinds of a node: more is noise."""


def kind_of(line: str) -> str:
    """Return the line with a sign for each number, address and identifier; empty for one that says nothing."""
    kind = _VARIABLE.sub(_ANY, " ".join(line[:4 * _LONGEST].split()))[:_LONGEST]
    return kind if any(character.isalpha() for character in kind) else ""


def expression_of(kind: str) -> str:
    """Return a regular expression for the lines of a kind."""
    return r"\S*".join(_SPECIAL.sub(r"\\\1", part) for part in kind.split(_ANY))


def sizes(run: Path) -> dict[str, int]:
    """Return how long each log of a run is now."""
    return {path.name: path.stat().st_size for path in (run / "logs").glob("*.log")}


def kinds_in(run: Path, before: Mapping[str, int]) -> dict[str, list[str]]:
    """Return the kinds of lines of each node, the first that came first, without what its logs held before."""
    kinds: dict[str, dict[str, None]] = {}
    for path in sorted((run / "logs").glob("*.log")):
        node = path.name.split(".")[0]
        new = kinds.setdefault(node, {})
        for line in bytes_of(path)[before.get(path.name, 0):].decode(errors="replace").splitlines():
            if len(new) < _MOST and (kind := kind_of(line)):
                new[kind] = None
    return {node: list(new) for node, new in kinds.items()}
