"""From a scenario's file, or its name in the library, to a `Scenario`: what it extends, and every problem at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from diloco_chaos.chaos.scenario.document import annotated, plain, settled, text_of
from diloco_chaos.chaos.scenario.messages import mistakes, placed, problems_of
from diloco_chaos.chaos.scenario.model import Scenario
from diloco_chaos.chaos.scenario.problems import Numbers, Problem, ScenarioError, fault_names, place
from diloco_chaos.chaos.scenario.salvage import KnownCluster, Rest, salvaged
from diloco_chaos.chaos.scenario.validation import validate_semantics
from diloco_chaos.harness.base.errors import nearest
from diloco_chaos.harness.places.base import ABILITIES
from diloco_chaos.harness.trainers.api.registry import BUILT_IN
from diloco_chaos.scenarios import find

Change = Callable[[dict[str, Any]], dict[str, Any]]
"""Makes another document of one that has what it extends beneath it, and both `trainer` and `cluster`."""


def load(name: str, change: Change | None = None) -> tuple[Scenario, Path]:
    """A scenario by its file's path, or by its name from the library. `change`: makes another one of it.

    Raises:
        ScenarioError: there is no such scenario, or it has problems.
    """
    path = _located(name)
    return _read(text_of(path), path, ABILITIES, (), change)[0], path


def parse(text: str, file: Path | str = "scenario", abilities: Sequence[str] = ABILITIES) -> Scenario:
    """A scenario from YAML, to be run at a place with these abilities.

    Raises:
        ScenarioError: with every problem and its place.
    """
    return _read(text, file, abilities, ())[0]


def _read(text: str, file: Path | str, abilities: Sequence[str], above: tuple[Path, ...],
          change: Change | None = None) -> tuple[Scenario, dict[str, Any]]:
    """The scenario, and the document that it was made from; `above` are the files that extend it."""
    raw = annotated(text, file)
    document, problems = _extended(raw, file, abilities, above)
    document = change(document) if change is not None and not problems else document
    document = _placed(document, Path(file).resolve().parent)
    known = KnownCluster.NOTHING if problems else KnownCluster.ALL
    scenario, cleared, details = mistakes(document)
    problems += problems_of(raw, document, details)
    rest = (salvaged(cleared, [detail["loc"] for detail in details], known) if scenario is None else
            Rest(scenario, Numbers(list(range(len(scenario.faults))), fault_names(cleared)), known))
    if rest is not None:
        problems += [Problem(message, *placed(raw, where)) for where, message in validate_semantics(rest, abilities)]
    if problems or scenario is None:
        raise ScenarioError(file, problems)
    return scenario, document


def _located(name: str, beside: Path | None = None) -> Path:
    for path in ([beside / name] if beside else []) + [Path(name)]:
        with suppress(OSError, ValueError):  # a name that no file can have
            if path.is_file():
                return path
    in_library = find()
    if name not in in_library:
        with suppress(OSError, ValueError):
            if Path(name).is_dir():
                raise ScenarioError(name[:80], [Problem("this is a folder: name a file in it")])
        near = nearest(name[:80], [*in_library, *(file.name for file in Path().glob("*.yaml"))])
        raise ScenarioError(name[:80], [Problem(
            f"no such file, and no scenario of this name{near}; `diloco-chaos list` shows what there is")])
    return in_library[name]


def _extended(raw: Any, file: Path | str, abilities: Sequence[str],
              above: tuple[Path, ...]) -> tuple[dict[str, Any], list[Problem]]:
    """The document with what it extends beneath it: `cluster` and `checks` key by key, `trainer` at all depths unless
    it is of another kind, everything else as a whole. And the problems of what it extends, at `extends`: where there
    are any, the document says nothing of its trainer, which may be the other file's."""
    document = {key: item for key, item in plain(raw, file).items() if item is not None}  # said nothing
    name = document.get("extends")
    if not isinstance(name, str) or not name:
        return settled(document), []
    here = Path(file).resolve()
    try:
        path = _located(name, here.parent).resolve()
        if path in (*above, here):
            raise ScenarioError(file, [Problem("it extends this file in turn")])
        below = _read(text_of(path), path, abilities, (*above, here))[1]
    except ScenarioError as error:
        own = {key: item for key, item in document.items() if key not in ("trainer", "cluster")}
        return {"diloco_chaos": 1} | own, [_inherited(name, problem, raw) for problem in error.problems]
    merged = {key: item for key, item in below.items() if key not in ("name", "description", "extends")} | document
    for key in ("cluster", "checks"):
        if isinstance(below.get(key), dict) and isinstance(document.get(key, {}), dict):
            merged[key] = below[key] | document.get(key, {})
    return settled(merged | _trainer_over(document, below)), []


def _inherited(name: str, problem: Problem, raw: Any) -> Problem:
    """A problem of the file that this one extends, by its name."""
    where = f" (line {problem.line})" if problem.line else ""
    return Problem(f"extends {name[:80]}: {problem.message}{where}", *place(raw, ["extends"]))


def _trainer_over(document: dict[str, Any], below: dict[str, Any]) -> dict[str, Any]:
    """Return `trainer` and `cluster` where the document says both as `trainer: {nodes: ...}`: over those of what it
    extends, at all depths, unless that has another trainer; else an empty document."""
    said, known = document.get("trainer"), below.get("cluster")
    if not isinstance(said, dict):
        return {}
    kind = below.get("trainer", BUILT_IN)
    completed = settled(document | {"trainer": {"kind": kind} | said})
    trainer, cluster = completed["trainer"], completed["cluster"]
    if trainer == kind and isinstance(known, dict):
        cluster = laid_over(known, cluster)
    return {"trainer": trainer, "cluster": cluster}


def _placed(document: dict[str, Any], here: Path) -> dict[str, Any]:
    """The document with the folder of its file where its commands say `{here}`, and with traces that lie beside it;
    what it extends may have said its own."""
    faults = document.get("faults")
    if isinstance(faults, list):
        document = document | {"faults": [
            fault | {"trace": str(here / fault["trace"])} if isinstance(fault, dict)
            and isinstance(fault.get("trace"), str) and os.path.isfile(here / fault["trace"]) else fault
            for fault in faults]}
    cluster = document.get("cluster")
    if document.get("trainer") != "commands" or not isinstance(cluster, dict) or "{here}" not in repr(cluster):
        return document
    return document | {"cluster": {"here": str(here)} | cluster}


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both documents, at all depths; what is above counts."""
    return {**below} | {key: laid_over(below[key], item) if isinstance(item, dict) and isinstance(below.get(key), dict)
                    else item for key, item in above.items()}


