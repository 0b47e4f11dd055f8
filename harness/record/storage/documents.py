"""YAML that a user wrote for something else than a scenario: where runs are performed, and what Compose brings up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from diloco_chaos.harness.record.storage.files import bytes_of

_MOST_BYTES, _MOST_PARTS = 1 << 20, 20_000
"""People write less."""


def yaml_of(path: Path) -> Any:
    """The plain values in a file.

    Raises:
        OSError: it can't be read.
        ValueError: it is no YAML, or more than anybody writes, with everything in its place that an alias stands for.
    """
    text = bytes_of(path, _MOST_BYTES).decode()
    try:
        found = YAML(typ="safe").load(text)
    except YAMLError as error:
        raise ValueError(str(error)) from error
    except RecursionError as error:
        raise ValueError("too many brackets are opened and never closed") from error
    left, parts = [found], 0
    while left:
        parts += 1
        if parts > _MOST_PARTS:
            raise ValueError(f"more than {_MOST_PARTS:,} values")
        one = left.pop()
        left += [*one, *one.values()] if isinstance(one, dict) else one if isinstance(one, list) else []
    return found
