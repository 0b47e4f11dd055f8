"""Scenario files: what to break, and what must hold. docs/scenarios.md explains every key."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from chaos.bounds import Bounds
from faults import FAULTS, AnyFault, Fault, Kill, Latency
from harness.tape import FIELDS
from harness.trainer.config import TrainerConfig
from harness.units import Seconds
from scenarios import find

HEADER = "diloco_chaos: 1"
SYNCER = "syncer"


@dataclass(frozen=True)
class Problem:
    """Something wrong with a scenario, and where."""

    message: str
    line: int = 0
    column: int = 0

    def at(self, file: Path | str) -> str:
        """`file:line:column: message`."""
        place = f":{self.line}:{self.column}" if self.line else ""
        return f"{file}{place}: {self.message}"


class ScenarioError(Exception):
    """A scenario that can't be run; carries all problems at once."""

    def __init__(self, file: Path | str, problems: Sequence[Problem]) -> None:
        self.problems = sorted(problems, key=lambda problem: (problem.line, problem.column))
        super().__init__("\n".join(problem.at(file) for problem in self.problems))


class Scenario(BaseModel):
    """A scenario file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    diloco_chaos: Literal[1]
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    description: str = ""
    tier: Literal["ci", "full"] = "full"
    cluster: TrainerConfig = TrainerConfig()
    deadline: Seconds = Field(120.0, gt=0)
    """Wall time after which a run is given up as inconclusive."""
    faults: tuple[AnyFault, ...] = ()
    checks: Bounds = Bounds()

    @field_validator("faults", mode="before")
    @classmethod
    def _by_their_key(cls, value: Any) -> Any:
        """`{kill: learner-1, at: 3s}` -> `{kind: kill, targets: learner-1, at: 3s}`."""
        if value is None:  # every fault is commented out
            return ()
        if not isinstance(value, (list, tuple)):
            return value
        return [_named(fault) if isinstance(fault, dict) and "kind" not in fault else fault for fault in value]

    @property
    def nodes(self) -> list[str]:
        """Every node by name."""
        return [SYNCER, *self.cluster.names]


def _named(fault: dict[str, Any]) -> dict[str, Any]:
    kind = next((key for key in fault if key in FAULTS), next(iter(fault), ""))
    rest = {key: item for key, item in fault.items() if key != kind}
    return {"kind": kind, "targets": fault.get(kind), **rest}


def nearest(name: object, names: Sequence[str] | dict[str, Any]) -> str:
    """`; did you mean ...?`, or nothing."""
    found = difflib.get_close_matches(str(name), list(names), 1)
    return f"; did you mean {found[0]!r}?" if found else ""


def load(name: str) -> tuple[Scenario, Path]:
    """A scenario by its file's path, or by its name from the library.

    Raises:
        ScenarioError: there is no such scenario, or it has problems.
    """
    path = Path(name)
    if not path.is_file():
        in_library = find()
        if name not in in_library:
            raise ScenarioError(name, [Problem(
                f"no such file, and no scenario of this name{nearest(name, in_library)}; "
                f"`diloco-chaos list` shows what there is")])
        path = in_library[name]
    try:
        return parse(path.read_text(), path), path
    except UnicodeDecodeError as error:
        raise ScenarioError(path, [Problem(f"not a text file: {error.reason}")]) from error
    except OSError as error:
        raise ScenarioError(path, [Problem(f"can't be read: {error.strerror}")]) from error


def parse(text: str, file: Path | str = "scenario") -> Scenario:
    """A scenario from YAML.

    Raises:
        ScenarioError: with every problem and its place.
    """
    try:
        raw = YAML(typ="rt").load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        raise ScenarioError(file, [Problem(f"not valid YAML: {error.problem}", mark.line + 1 if mark else 0,
                                           mark.column + 1 if mark else 0)]) from error
    except YAMLError as error:
        raise ScenarioError(file, [Problem(f"not valid YAML: {str(error).splitlines()[0]}")]) from error
    except ValueError as error:  # such as a duplicate key, or a number that no number is
        raise ScenarioError(file, [Problem(f"not valid YAML: {str(error).splitlines()[0]}")]) from error
    if not isinstance(raw, dict):
        raise ScenarioError(file, [Problem(f"a scenario is a mapping that begins with `{HEADER}`", 1, 1)])
    try:
        scenario = Scenario.model_validate(_plain(raw))
    except ValidationError as error:
        raise ScenarioError(file, [_problem(raw, dict(detail)) for detail in error.errors()]) from error
    problems = [Problem(message, *_place(raw, where)) for where, message in _beyond_schema(scenario)]
    if problems:
        raise ScenarioError(file, problems)
    return scenario


def _plain(value: Any) -> Any:
    """ruamel's annotated containers as plain ones; JSON's types only."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)


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
    return Problem(message, *_place(raw, where))


def _known_keys(location: Sequence[Any]) -> list[str]:
    """The keys that are valid where an unknown one was found."""
    model: type[BaseModel] = Scenario
    for part in location[:-1]:
        if part in FAULTS:
            fault = FAULTS[part]
            return [field.alias or name for name, field in fault.model_fields.items()
                    if name not in ("kind", "targets")]
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
    return list(model.model_fields)


def _place(raw: Any, where: Sequence[Any]) -> tuple[int, int]:
    """Line and column (from 1) of the deepest part of a location that the file has."""
    line, column, here = 1, 1, raw
    for part in where:
        marks = getattr(here, "lc", None)
        try:
            line, column = (marks.key(part) if isinstance(here, dict) else marks.item(part))  # type: ignore[union-attr]
            line, column, here = line + 1, column + 1, here[part]
        except (KeyError, IndexError, TypeError, AttributeError):
            if isinstance(here, dict) and part == "targets":
                continue
            break
    return line, column


def _beyond_schema(scenario: Scenario) -> list[tuple[list[Any], str]]:
    """What no single key shows: names that this cluster does not have, faults that get into each other's way."""
    found: list[tuple[list[Any], str]] = []
    if scenario.cluster.mode != "decoupled":
        found.append((["cluster", "mode"], "mode: scenarios run decoupled; the synchronous run is made as a reference"))
    if "seed" in scenario.cluster.model_fields_set:
        found.append((["cluster", "seed"], "seed: a scenario has none; give it with `run --seed 7`"))
    learners = scenario.cluster.names
    for index, fault in enumerate(scenario.faults):
        allowed = scenario.nodes if isinstance(fault, Kill) else learners
        for name in (*fault.targets, *([fault.when.node] if fault.when else [])):
            valid = scenario.nodes if fault.when and name == fault.when.node else allowed
            if name not in valid:
                found.append((["faults", index, fault.kind],
                              f"{fault.kind}: there is no node {name!r} here{nearest(name, valid)} "
                              f"(this cluster has {', '.join(valid)})"))
        found += [(["faults", index], message) for message in _hold_problems(fault)]
        if fault.when and fault.when.event and fault.when.event not in FIELDS:
            found.append((["faults", index, "when"],
                          f"no event {fault.when.event!r}{nearest(fault.when.event, FIELDS)} docs/tape.md lists them"))
        found += [(["faults", index], f"{fault.words()} overlaps with {other.words()}: one at a time on a target")
                  for other in scenario.faults[:index] if _overlap(fault, other)]
    for index, bound in enumerate(scenario.checks.participation):
        if bound.learner not in learners:
            found.append((["checks", "participation", index, "learner"],
                          f"there is no learner {bound.learner!r} here{nearest(bound.learner, learners)}"))
    return found


def _overlap(one: Fault, other: Fault) -> bool:
    """Whether two lasting faults of one kind are on one target at the same time, as far as their times tell."""
    if one.kind != other.kind or not one.lasts or not set(one.targets) & set(other.targets):
        return False
    if one.at is None or other.at is None:
        return False
    return one.at < other.at + (other.duration or 0) and other.at < one.at + (one.duration or 0)


def _hold_problems(fault: Fault) -> list[str]:
    if fault.when is None or not fault.when.hold:
        return []
    if fault.kind != "kill" or fault.targets != (fault.when.node,):
        return [f"a node that holds at {fault.when.hold} stands still until it is killed: "
                f"kill {fault.when.node} itself"]
    if fault.when.hold == "upload.half" and fault.when.node == SYNCER:
        return ["only a learner holds at upload.half"]
    if fault.when.hold != "upload.half" and fault.when.node != SYNCER:
        return [f"only the syncer holds at {fault.when.hold}"]
    return []


def warnings_of(cluster: TrainerConfig, faults: Sequence[Fault]) -> list[str]:
    """What can be run but will not do what a reader may expect."""
    found = []
    window = min(cluster.grace * cluster.overlap, 1.0) * cluster.step_time
    for fault in faults:
        if isinstance(fault, Latency):
            size = max(fragment.size for fragment in cluster.fragment_table()) * 4
            exchange = 2 * fault.delay + (2 * size / fault.rate if fault.rate else 0)
            if exchange > window:
                found.append(
                    f"{fault.words()}: an exchange takes at least {exchange * 1e3:.0f} ms, but the grace window is at "
                    f"most {window * 1e3:.0f} ms; while others answer in time, its contributions come too late")
    dead = {target for fault in faults if isinstance(fault, Kill) and fault.restart_after is None
            for target in fault.targets}
    if len(set(cluster.names) - dead) < cluster.quorum:
        found.append(f"kills leave fewer than {cluster.quorum} learners: the quorum is never reached again")
    return found
