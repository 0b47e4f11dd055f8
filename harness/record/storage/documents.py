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
    """Return the plain values in a YAML file.

    Raises:
        OSError: it can't be read.
        ValueError: it is no YAML, or has more than 1 MiB or 20,000 values, with every alias expanded.
    """
    text = bytes_of(path, _MOST_BYTES).decode()
    try:
        content = YAML(typ="safe").load(text)
    except YAMLError as error:
        raise ValueError(str(error)) from error
    except RecursionError as error:
        raise ValueError("too many brackets are opened and never closed") from error
    left, parts = [content], 0
    while left:
        parts += 1
        if parts > _MOST_PARTS:
            raise ValueError(f"more than {_MOST_PARTS:,} values")
        value = left.pop()
        left += [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return content
