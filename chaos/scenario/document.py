"""Scenario files as documents: from bytes to plain values, and nothing that people would not write."""

from __future__ import annotations

import re
from itertools import accumulate
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError

from diloco_chaos.chaos.scenario.problems import Problem, ScenarioError
from diloco_chaos.chaos.scenario.profiles import as_mapping
from diloco_chaos.harness.base.errors import first
from diloco_chaos.harness.record.storage.files import bytes_of
from diloco_chaos.harness.trainers.api.registry import BUILT_IN

HEADER = "diloco_chaos: 1"
_MOST_BYTES, _MOST_PARTS, _DEEPEST, _MOST_OPEN = 1 << 20, 20_000, 30, 100
"""A scenario is written by people."""


def text_of(path: Path) -> str:
    """A scenario file's text.

    Raises:
        ScenarioError: it can't be read, or is no scenario by its size.
    """
    try:
        return bytes_of(path, _MOST_BYTES).decode()
    except UnicodeDecodeError as error:
        raise ScenarioError(path, [Problem(f"not a text file: {error.reason}")]) from error
    except ValueError as error:
        raise ScenarioError(path, [Problem(f"{error}: that is no scenario")]) from error
    except OSError as error:
        raise ScenarioError(path, [Problem(f"can't be read: {error.strerror}")]) from error


def annotated(text: str, file: Path | str) -> Any:
    """The mapping in a YAML text, of ruamel's containers, which know where everything stands.

    Raises:
        ScenarioError: it is no YAML, or no mapping.
    """
    opened = accumulate((mark in "[{") - (mark in "]}") for mark in text if mark in "[]{}")
    if max(opened, default=0) > _MOST_OPEN:  # the parser takes time that grows with its square
        raise ScenarioError(file, [Problem("not valid YAML: too many brackets are opened and never closed", 1, 1)])
    try:
        raw = YAML(typ="rt").load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        hint = _unquoted(text, mark.line) if mark else ""
        raise ScenarioError(file, [Problem(f"not valid YAML: {error.problem}{hint}", mark.line + 1 if mark else 0,
                                           mark.column + 1 if mark else 0)]) from error
    except Exception as error:  # ruamel raises whatever its scalars' constructors do: a date that is none, say
        raise ScenarioError(file, [Problem(f"not valid YAML: {first(error)}")]) from error
    if not isinstance(raw, dict):
        raise ScenarioError(file, [Problem(f"a scenario is a mapping that begins with `{HEADER}`", 1, 1)])
    return raw


def _unquoted(text: str, line: int) -> str:
    """Return what to do about a command that begins with a placeholder: to YAML that is a mapping."""
    lines = text.splitlines()
    wrong = line < len(lines) and re.search(r":\s+\{[A-Za-z_.-]+\}\s*\S", lines[line])
    return "; a value that begins with { stands in quotes" if wrong else ""


def plain(value: Any, file: Path | str) -> dict[str, Any]:
    """ruamel's annotated containers as plain ones; JSON's types only.

    Raises:
        ScenarioError: an anchor holds itself, or there is more of it than anybody would write.
    """
    left = _MOST_PARTS

    def part(value: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or depth > _DEEPEST:
            raise ScenarioError(file, [Problem("too large, or too deep, for a scenario: is there an alias that holds "
                                               "itself?", 1, 1)])
        if isinstance(value, dict):
            return {_writable(key): part(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            return [part(item, depth + 1) for item in value]
        return value if value is None or isinstance(value, (bool, int, float)) else _writable(value)
    whole = part(value, 0)
    assert isinstance(whole, dict), "looked at when it was read"
    return whole


def settled(document: dict[str, Any]) -> dict[str, Any]:
    """`trainer: {kind: commands, nodes: ...}` says both which trainer it is and what its settings are, as `trainer:
    commands` and `cluster: {nodes: ...}` do; `checks: NAME` is `checks: {profile: NAME}`."""
    document = as_mapping(document)
    trainer = document.get("trainer")
    if not isinstance(trainer, dict):
        return document
    return document | {"trainer": trainer.get("kind", BUILT_IN),
                       "cluster": {key: item for key, item in trainer.items() if key != "kind"}
                       | (document.get("cluster") or {})}


def _writable(value: Any) -> str:
    """Return a value as text that can be written: YAML can name halves of characters."""
    return str(value).encode("utf-8", "backslashreplace").decode()
