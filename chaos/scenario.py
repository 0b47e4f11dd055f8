"""Scenario files: what to break, and what must hold. docs/scenarios.md explains every key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from chaos.bounds import Bounds
from chaos.problems import Problem, ScenarioError, nearest, place
from faults import FAULTS, AbortWhen, AnyEntry
from harness.cluster.base import ABILITIES
from harness.trainer.config import TrainerConfig
from harness.units import Seconds, Size
from scenarios import find

HEADER = "diloco_chaos: 1"
SYNCER = "syncer"
LEARNERS = "learners"
"""As a target: every learner."""
_MOST_BYTES = 1 << 20
"""A scenario is written by people."""


class Scenario(BaseModel):
    """A scenario file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    diloco_chaos: Literal[1]
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=80)
    description: str = ""
    extends: str = ""
    """Another scenario, by name or file, whose keys hold where this one says nothing."""
    tier: Literal["ci", "full"] = "full"
    cluster: TrainerConfig = TrainerConfig()
    deadline: Seconds = Field(120.0, gt=0)
    """Wall time after which a run is given up as inconclusive."""
    tape_limit: Size = Field(256_000_000, ge=100_000)
    """Size of the tape, in bytes, at which a run is given up as inconclusive."""
    faults: tuple[AnyEntry, ...] = ()
    abort_when: AbortWhen | None = None
    """When to inject no more, undo everything, and end the run as inconclusive."""
    checks: Bounds = Bounds()

    @field_validator("faults", mode="before")
    @classmethod
    def _by_their_key(cls, value: Any, info: ValidationInfo) -> Any:
        """`{kill: learner-1, at: 3s}` -> `{kind: kill, targets: learner-1, at: 3s}`."""
        if value is None:  # every fault is commented out
            return ()
        if not isinstance(value, (list, tuple)):
            return value
        cluster = info.data.get("cluster")
        everyone = cluster.names if isinstance(cluster, TrainerConfig) else LEARNERS
        return [_named(fault, everyone) if isinstance(fault, dict) and "kind" not in fault else fault
                for fault in value]

    @property
    def nodes(self) -> list[str]:
        """Every node by name."""
        return [SYNCER, *self.cluster.names]


def _named(fault: dict[str, Any], everyone: Any) -> dict[str, Any]:
    kind = next((key for key in fault if key in FAULTS), next(iter(fault), ""))
    rest = {key: item for key, item in fault.items() if key != kind}
    targets = fault.get(kind)
    return {"kind": kind, "targets": everyone if targets == LEARNERS else targets, **rest}


def load(name: str) -> tuple[Scenario, Path]:
    """A scenario by its file's path, or by its name from the library.

    Raises:
        ScenarioError: there is no such scenario, or it has problems.
    """
    path = _found(name)
    return parse(_text(path), path), path


def parse(text: str, file: Path | str = "scenario", abilities: Sequence[str] = ABILITIES) -> Scenario:
    """A scenario from YAML, to be run at a place with these abilities.

    Raises:
        ScenarioError: with every problem and its place.
    """
    from chaos.sense import objections
    raw = _yaml(text, file)
    document = _extended(_plain(raw), file, ())
    problems: list[Problem] = []
    try:
        scenario: Scenario | None = Scenario.model_validate(document)
        kept = list(range(len(scenario.faults))) if scenario else []
    except ValidationError as error:
        details: list[dict[str, Any]] = [dict(detail) for detail in error.errors()]
        problems = list(dict.fromkeys(_problem(raw, detail) for detail in details))
        scenario, kept = _salvaged(document, [detail["loc"] for detail in details])
    if scenario is not None:
        problems += [Problem(message, *place(raw, _in_file(where, kept)))
                     for where, message in objections(scenario, abilities)]
    if problems or scenario is None:
        raise ScenarioError(file, problems)
    return scenario


def _found(name: str, beside: Path | None = None) -> Path:
    for path in ([beside / name] if beside else []) + [Path(name)]:
        if path.is_file():
            return path
    in_library = find()
    if name not in in_library:
        raise ScenarioError(name, [Problem(
            f"no such file, and no scenario of this name{nearest(name, in_library)}; "
            f"`diloco-chaos list` shows what there is")])
    return in_library[name]


def _text(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ScenarioError(path, [Problem(f"more than {_MOST_BYTES >> 20} MB: that is no scenario")])
        return data.decode()
    except UnicodeDecodeError as error:
        raise ScenarioError(path, [Problem(f"not a text file: {error.reason}")]) from error
    except OSError as error:
        raise ScenarioError(path, [Problem(f"can't be read: {error.strerror}")]) from error


def _yaml(text: str, file: Path | str) -> Any:
    try:
        raw = YAML(typ="rt").load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        raise ScenarioError(file, [Problem(f"not valid YAML: {error.problem}", mark.line + 1 if mark else 0,
                                           mark.column + 1 if mark else 0)]) from error
    except (YAMLError, RecursionError) as error:
        raise ScenarioError(file, [Problem(f"not valid YAML: {_first(error)}")]) from error
    except Exception as error:  # ruamel raises whatever its scalars' constructors do: a date that is none, say
        raise ScenarioError(file, [Problem(f"not valid YAML: {_first(error)}")]) from error
    if not isinstance(raw, dict):
        raise ScenarioError(file, [Problem(f"a scenario is a mapping that begins with `{HEADER}`", 1, 1)])
    return raw


def _first(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _extended(document: dict[str, Any], file: Path | str, seen: tuple[Path, ...]) -> dict[str, Any]:
    """The document with what it extends beneath it: `cluster` and `checks` key by key, everything else as a whole."""
    name = document.get("extends")
    if not isinstance(name, str) or not name:
        return document
    path = _found(name, Path(file).parent).resolve()
    if path in seen or path == Path(file).resolve():
        raise ScenarioError(file, [Problem(f"extends: {name} extends this file in turn")])
    below = _extended(_plain(_yaml(_text(path), path)), path, (*seen, path))
    merged = {key: item for key, item in below.items() if key not in ("name", "description", "extends")} | document
    for key in ("cluster", "checks"):
        if isinstance(below.get(key), dict) and isinstance(document.get(key, {}), dict):
            merged[key] = below[key] | document.get(key, {})
    return merged


def _plain(value: Any, depth: int = 0) -> Any:
    """ruamel's annotated containers as plain ones; JSON's types only."""
    if depth > 50:
        return "..."  # an anchor that holds itself, or somebody's joke
    if isinstance(value, dict):
        return {str(key): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)


def _salvaged(document: dict[str, Any], locations: list[tuple[Any, ...]]) -> tuple[Scenario | None, list[int]]:
    """The scenario without its wrong parts, and which of its faults are left: what is beyond the schema is looked for
    in the rest. None where too little is left to tell."""
    rest = dict(document) | {"diloco_chaos": 1, "name": "salvaged"}
    bad = {where[1] for where in locations if where[0] == "faults" and len(where) > 1}
    for where in locations:
        if where[0] == "faults" and len(where) == 1:
            rest["faults"] = []
        elif where[0] == "cluster":
            return None, []  # names depend on it
        elif where[0] != "faults":
            rest.pop(where[0], None) if where[0] not in ("diloco_chaos", "name") else None
    faults = rest.get("faults")
    kept = [index for index in range(len(faults)) if index not in bad] if isinstance(faults, list) else []
    if isinstance(faults, list):
        rest["faults"] = [faults[index] for index in kept]
    try:
        return Scenario.model_validate(rest), kept
    except ValidationError:
        return None, []


def _in_file(where: Sequence[Any], kept: list[int]) -> list[Any]:
    """A location in what was salvaged, as one in the file."""
    if len(where) > 1 and where[0] == "faults":
        return ["faults", kept[where[1]], *where[2:]]
    return list(where)


def _problem(raw: Any, detail: dict[str, Any]) -> Problem:
    """A pydantic error as a problem with a place and, where a key is unknown, the nearest valid one."""
    where = [part for part in detail["loc"] if part not in FAULTS]
    message = str(detail["msg"]).removeprefix("Value error, ")
    message = message.replace("a valid tuple", "a list").replace("a valid dictionary", "a mapping")
    key = str(where[-1]) if where else ""
    if detail["type"] == "extra_forbidden":
        message = f"unknown key {key!r}{nearest(key, _known_keys(detail['loc']))}"
    elif detail["type"] == "union_tag_invalid":
        kind = detail["ctx"]["tag"]
        message = (f"no fault {kind!r}{nearest(kind, FAULTS)} A fault begins with its kind and target, as in "
                   f"`- kill: learner-1`; kinds are {', '.join(sorted(FAULTS))}")
    elif detail["type"] == "missing":
        message = f"{key} is missing"
    elif where:
        message = f"{'.'.join(map(str, where))}: {message[:1].lower() + message[1:]}"
    return Problem(message, *place(raw, where))


def _known_keys(location: Sequence[Any]) -> list[str]:
    """The keys that are valid where an unknown one was found."""
    model: type[BaseModel] = Scenario
    for part in location[:-1]:
        if part in FAULTS:
            fault = FAULTS[part]
            model = fault
            continue
        for candidate in _models(model.model_fields[part].annotation) if part in model.model_fields else []:
            model = candidate
    return [field.alias or name for name, field in model.model_fields.items() if name not in ("kind", "targets")]


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models that an annotation like `When | None` names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in _models(part)]
