"""From a scenario's file, or its name in the library, to a `Scenario`: what it extends, and every problem at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from diloco_chaos.chaos.registry import CHECKS
from diloco_chaos.chaos.scenario.bounds import Bounds
from diloco_chaos.chaos.scenario.document import annotated, plain, text_of
from diloco_chaos.chaos.scenario.model import Scenario, named
from diloco_chaos.chaos.scenario.problems import Numbers, Problem, ScenarioError, place
from diloco_chaos.chaos.scenario.renamed import renamed_key, renamed_value
from diloco_chaos.chaos.scenario.validation import Objection, strangers, validate_semantics
from diloco_chaos.faults import FAULTS, Fault
from diloco_chaos.harness.base.errors import nearest
from diloco_chaos.harness.places.base import ABILITIES
from diloco_chaos.harness.trainers.api.registry import BUILT_IN, TRAINERS
from diloco_chaos.scenarios import find


def load(name: str) -> tuple[Scenario, Path]:
    """A scenario by its file's path, or by its name from the library.

    Raises:
        ScenarioError: there is no such scenario, or it has problems.
    """
    path = _found(name)
    return parse(text_of(path), path), path


def parse(text: str, file: Path | str = "scenario", abilities: Sequence[str] = ABILITIES) -> Scenario:
    """A scenario from YAML, to be run at a place with these abilities.

    Raises:
        ScenarioError: with every problem and its place.
    """
    return _read(text, file, abilities, ())[0]


def _read(text: str, file: Path | str, abilities: Sequence[str],
          above: tuple[Path, ...]) -> tuple[Scenario, dict[str, Any]]:
    """The scenario, and the document that it was made from; `above` are the files that extend it."""
    raw = annotated(text, file)
    document = settled(_extended(raw, file, abilities, above))
    problems: list[Problem] = []
    try:
        scenario: Scenario | None = Scenario.model_validate(document)
        numbers = _numbers(document, range(len(document.get("faults") or ())))
    except ValidationError as error:
        details: list[dict[str, Any]] = [dict(detail) for detail in error.errors()]
        problems = list(dict.fromkeys(_problem(raw, one) for detail in details for one in _apart(detail)))
        scenario, numbers = _salvaged(document, [detail["loc"] for detail in details])
        if scenario is None:
            problems += [Problem(message, *_placed(raw, where)) for where, message in _strangers(document, details)]
    if scenario is not None:
        problems += [Problem(message, *_placed(raw, where))
                     for where, message in validate_semantics(scenario, abilities, numbers)]
    if problems or scenario is None:
        raise ScenarioError(file, problems)
    return scenario, document


def settled(document: dict[str, Any]) -> dict[str, Any]:
    """`trainer: {kind: commands, nodes: ...}` says both which trainer it is and what its settings are, as `trainer:
    commands` and `cluster: {nodes: ...}` do."""
    trainer = document.get("trainer")
    if not isinstance(trainer, dict):
        return document
    return document | {"trainer": trainer.get("kind", BUILT_IN),
                       "cluster": {key: item for key, item in trainer.items() if key != "kind"}
                       | (document.get("cluster") or {})}


def _found(name: str, beside: Path | None = None) -> Path:
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


def _extended(raw: Any, file: Path | str, abilities: Sequence[str], above: tuple[Path, ...]) -> dict[str, Any]:
    """The document with what it extends beneath it: `cluster` and `checks` key by key, `trainer` at all
    depths unless it is of another kind, everything else as a whole.

    Raises:
        ScenarioError: what it extends can't be found, or has problems of its own.
    """
    document = {key: item for key, item in plain(raw, file).items() if item is not None}  # said nothing
    name = document.get("extends")
    if not isinstance(name, str) or not name:
        return document
    here = Path(file).resolve()
    try:
        path = _found(name, here.parent).resolve()
        if path in (*above, here):
            raise ScenarioError(file, [Problem("it extends this file in turn")])
        below = _read(text_of(path), path, abilities, (*above, here))[1]
    except ScenarioError as error:
        problem = error.problems[0]
        at = f" (line {problem.line})" if problem.line else ""
        raise ScenarioError(file, [Problem(f"extends {name[:80]}: {problem.message}{at}",
                                           *place(raw, ["extends"]))]) from error
    merged = {key: item for key, item in below.items() if key not in ("name", "description", "extends")} | document
    for key in ("cluster", "checks"):
        if isinstance(below.get(key), dict) and isinstance(document.get(key, {}), dict):
            merged[key] = below[key] | document.get(key, {})
    return merged | _trainer_over(document, below)


def _trainer_over(document: dict[str, Any], below: dict[str, Any]) -> dict[str, Any]:
    """`trainer` and `cluster`, where the document says both as `trainer: {nodes: ...}`: over those of what it extends,
    at all depths, unless that has another trainer."""
    said, known = document.get("trainer"), below.get("cluster")
    if not isinstance(said, dict):
        return {}
    kind = below.get("trainer", BUILT_IN)
    found = settled(document | {"trainer": {"kind": kind} | said})
    trainer, cluster = found["trainer"], found["cluster"]
    if trainer == kind and isinstance(known, dict):
        cluster = _over(known, cluster)
    return {"trainer": trainer, "cluster": cluster}


def _over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Both, at all depths; what is above counts."""
    return below | {key: _over(below[key], item) if isinstance(item, dict) and isinstance(below.get(key), dict)
                    else item for key, item in above.items()}


def _numbers(document: dict[str, Any], kept: Iterable[int]) -> Numbers:
    """Where the faults that are left stand in the file, and what all of them are called."""
    listed = document.get("faults")
    entries = listed if isinstance(listed, list) else []
    names = [str(entry.get("id") or "") if isinstance(entry, dict) else "" for entry in entries]
    return Numbers(list(kept), [name or f"f{number}" for number, name in enumerate(names, 1)])


def _salvaged(document: dict[str, Any], locations: list[tuple[Any, ...]]) -> tuple[Scenario | None, Numbers]:
    """The scenario without its wrong parts, and which of its faults are left: what is beyond the schema is looked for
    in the rest. None where too little is left to tell."""
    rest = dict(document) | {"diloco_chaos": 1, "name": "salvaged"}
    nothing = None, Numbers([], [])
    bad = {where[1] for where in locations if len(where) > 1 and where[0] == "faults"}
    for where in locations:
        if not where or where[0] == "cluster":
            return nothing  # names depend on it
        if where == ("faults",):
            rest["faults"] = []
        elif where[0] not in ("faults", "diloco_chaos", "name"):
            rest.pop(where[0], None)
    faults = rest.get("faults")
    kept = [index for index in range(len(faults)) if index not in bad] if isinstance(faults, list) else []
    if isinstance(faults, list):
        rest["faults"] = [faults[index] for index in kept]
    try:
        return Scenario.model_validate(rest), _numbers(document, kept)
    except ValidationError:
        return nothing


def _strangers(document: dict[str, Any], details: Sequence[dict[str, Any]]) -> list[Objection]:
    """Of a cluster that is wrong: whom faults name that is not in it, where its learners are known all the same."""
    locations = [detail["loc"] for detail in details]
    cluster, only = document.get("cluster"), "learners"
    wrong = [where for where in locations if where[:1] == ("cluster",)]
    if not wrong or ("cluster", only) in wrong or not isinstance(cluster, dict):
        return []
    rest = document | {"cluster": {only: cluster[only]} if only in cluster else {}}
    rest.pop("checks", None)
    others = [where for where in locations if where and where[0] not in ("cluster", "checks")]
    scenario, numbers = _salvaged(rest, others)
    return [] if scenario is None else strangers(scenario, numbers)


def _apart(detail: dict[str, Any]) -> list[dict[str, Any]]:
    """What is wrong with a cluster as a whole, one by one, each at the key that its sentence begins with."""
    *where, = detail["loc"]
    if where != ["cluster"]:
        return [detail]
    told = str(detail["msg"]).removeprefix("Value error, ").split("\n")
    return [detail | {"msg": line, "at": line.split(maxsplit=1)[0].rstrip(":")} for line in told]


def _placed(raw: Any, where: Sequence[Any]) -> tuple[int, int]:
    """Where in the file; at `extends` for what is not in this one."""
    if where and where[0] == "cluster" and isinstance(raw.get("trainer"), dict) and "cluster" not in raw:
        where = ["trainer", *where[1:]]
    if where and where[0] not in map(str, raw) and "extends" in raw:
        return place(raw, ["extends"])
    return place(raw, where)


def _problem(raw: Any, detail: dict[str, Any]) -> Problem:
    """A pydantic error as a problem with a place and, where a key is unknown, the nearest valid one."""
    where = list(detail["loc"])
    message = str(detail["msg"]).removeprefix("Value error, ")
    message = re.sub(r"a valid dictionary( or (instance of \w+|object to extract fields from))?", "a mapping", message)
    message = message.replace("a valid tuple", "a list")
    message = re.sub(r"^(Input|String|List|Tuple|Dictionary|Value) should ", "it must ", message)
    if detail["type"] in ("int_type", "float_type") and isinstance(detail["input"], str):
        message += f"; {detail['input']!r} is text" + (
            " (leave the quotes out)" if re.fullmatch(r"[\d.]+", detail["input"]) else "")
    key = str(where[-1]).removesuffix("_") if where else ""
    if detail["type"] == "extra_forbidden":
        now = renamed_key(where)
        kind = named(raw["faults"][where[1]], ())["kind"] if where[0] == "faults" else ""
        known = _known_keys(detail["loc"], settled(raw).get("trainer"), FAULTS.get(kind))
        keys = f" (keys here are {', '.join(sorted(known))})" if where[0] == "faults" else ""
        message = f"unknown key {key!r}" + (f": it is called {now!r} now" if now else nearest(key, known) + keys)
    elif detail["type"] == "unknown_fault":
        kind = detail["ctx"]["kind"]
        message = (f"no fault {kind!r}{nearest(kind, list(FAULTS)) or '.'} A fault begins with its kind and target, as "
                   f"in `- kill: learner-1`; kinds are {'. '.join([', '.join(sorted(FAULTS)), *FAULTS.broken()])}")
    elif where == ["diloco_chaos"] and detail["type"] == "literal_error":
        message = f"diloco_chaos: this version reads scenarios of format 1, and this one is of {detail['input']!r}"
    elif detail["type"] == "missing":
        message = f"{key} is missing"
    elif where:
        said = ["trainer", *where[1:]] if where[0] == "cluster" and isinstance(raw.get("trainer"), dict) else where
        message = f"{'.'.join(map(str, said))}: {message[:1].lower() + message[1:]}"
        if now := renamed_value(where, detail["input"]):
            message += f"; {detail['input']!r} is called {now!r} now"
    return Problem(message, *_placed(raw, [*where, detail["at"]] if "at" in detail else where))


def _known_keys(location: Sequence[Any], trainer: Any, fault: type[Fault] | None) -> list[str]:
    """The keys that are valid where an unknown one was found. `fault`: the one that it is in."""
    model: type[BaseModel] = Scenario if fault is None else fault
    for part in location[:-1]:
        if model is Scenario and part == "cluster":
            under_test = TRAINERS.get(trainer) if isinstance(trainer, str) else None
            model = (under_test or TRAINERS[BUILT_IN]).settings
            continue
        if model is Bounds and part in CHECKS.foreign():
            model = next(iter(_models(CHECKS[part].bound)), BaseModel)
            continue
        for candidate in _models(model.model_fields[part].annotation) if part in model.model_fields else []:
            model = candidate
    foreign = CHECKS.foreign() if model is Bounds else ()
    return [*(field.alias or name for name, field in model.model_fields.items() if name not in ("kind", "targets")),
            *foreign]


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models that an annotation like `When | None` names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in _models(part)]
