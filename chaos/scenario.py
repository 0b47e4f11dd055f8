"""Scenario files: what to break, and what must hold. docs/scenarios.md explains every key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from chaos.bounds import Bounds
from chaos.document import annotated, plain, text_of
from chaos.problems import Numbers, Problem, ScenarioError, nearest, place
from faults import FAULTS, AbortWhen, AnyEntry, Fault, Join
from harness.cluster.base import ABILITIES
from harness.trainer.config import SYNCER as SYNCER
from harness.trainer.config import TrainerConfig
from harness.units import Seconds, Size, between
from harness.wording import printable
from scenarios import find

LEARNERS = "learners"
"""As a target: every learner."""


class Scenario(BaseModel):
    """A scenario file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    diloco_chaos: Literal[1]
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=80)
    description: Annotated[str, AfterValidator(printable)] = ""
    extends: str = ""
    """Another scenario, by name or file, whose keys hold where this one says nothing."""
    tier: Literal["ci", "full"] = "full"
    cluster: TrainerConfig = TrainerConfig()
    deadline: Seconds = Field(120.0, gt=0)
    """Wall time after which a run is given up as inconclusive."""
    tape_limit: Annotated[Size, between(1e5, 1e15, "100kB at least")] = 256_000_000
    """Size of the tape, in bytes, at which a run is given up as inconclusive."""
    faults: tuple[AnyEntry, ...] = Field((), max_length=200)
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
        return [_named(fault, everyone) if isinstance(fault, dict) else fault for fault in value]

    @property
    def nodes(self) -> list[str]:
        """Every node by name."""
        return [SYNCER, *self.cluster.names]


def joiners(faults: Sequence[Fault]) -> list[str]:
    """The learners that come later, in the order of the faults that bring them."""
    return [target for fault in faults if isinstance(fault, Join) for target in fault.targets]


def _named(fault: dict[str, Any], everyone: Any) -> dict[str, Any]:
    kind = next((key for key in fault if key in FAULTS), next(iter(fault), ""))
    rest = {f"{key}_" if key in ("kind", "targets") else key: item for key, item in fault.items() if key != kind}
    targets = fault.get(kind)
    return {"kind": kind, "targets": everyone if targets == LEARNERS else targets, **rest}


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
    from chaos.sense import objections
    raw = annotated(text, file)
    document = _extended(raw, file, abilities, above)
    problems: list[Problem] = []
    try:
        scenario: Scenario | None = Scenario.model_validate(document)
        numbers = _numbers(document, range(len(document.get("faults") or ())))
    except ValidationError as error:
        details: list[dict[str, Any]] = [dict(detail) for detail in error.errors()]
        problems = list(dict.fromkeys(_problem(raw, detail) for detail in details))
        scenario, numbers = _salvaged(document, [detail["loc"] for detail in details])
    if scenario is not None:
        problems += [Problem(message, *_placed(raw, where))
                     for where, message in objections(scenario, abilities, numbers)]
    if problems or scenario is None:
        raise ScenarioError(file, problems)
    return scenario, document


def _found(name: str, beside: Path | None = None) -> Path:
    for path in ([beside / name] if beside else []) + [Path(name)]:
        with suppress(OSError, ValueError):  # a name that no file can have
            if path.is_file():
                return path
    in_library = find()
    if name not in in_library:
        raise ScenarioError(name[:80], [Problem(
            f"no such file, and no scenario of this name{nearest(name[:80], in_library)}; "
            f"`diloco-chaos list` shows what there is")])
    return in_library[name]


def _extended(raw: Any, file: Path | str, abilities: Sequence[str], above: tuple[Path, ...]) -> dict[str, Any]:
    """The document with what it extends beneath it: `cluster` and `checks` key by key, everything else as a whole.

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
    return merged


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


def _placed(raw: Any, where: Sequence[Any]) -> tuple[int, int]:
    """Where in the file; at `extends` for what is not in this one."""
    if where and where[0] not in map(str, raw) and "extends" in raw:
        return place(raw, ["extends"])
    return place(raw, where)


def _problem(raw: Any, detail: dict[str, Any]) -> Problem:
    """A pydantic error as a problem with a place and, where a key is unknown, the nearest valid one."""
    where = list(detail["loc"])
    if len(where) > 2 and where[0] == "faults" and where[2] in FAULTS:
        del where[2]  # the kind that pydantic chose
    message = str(detail["msg"]).removeprefix("Value error, ")
    message = re.sub(r"a valid dictionary( or (instance of \w+|object to extract fields from))?", "a mapping", message)
    message = message.replace("a valid tuple", "a list")
    if detail["type"] in ("int_type", "float_type") and isinstance(detail["input"], str):
        message += f"; {detail['input']!r} is text (leave the quotes out)"
    key = str(where[-1]).removesuffix("_") if where else ""
    if detail["type"] == "extra_forbidden":
        message = f"unknown key {key!r}{nearest(key, _known_keys(detail['loc']))}"
    elif detail["type"] == "union_tag_invalid":
        kind = detail["ctx"]["tag"]
        message = (f"no fault {kind!r}{nearest(kind, FAULTS) or '.'} A fault begins with its kind and target, as in "
                   f"`- kill: learner-1`; kinds are {', '.join(sorted(FAULTS))}")
    elif detail["type"] == "missing":
        message = f"{key} is missing"
    elif where:
        message = f"{'.'.join(map(str, where))}: {message[:1].lower() + message[1:]}"
    return Problem(message, *_placed(raw, where))


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
