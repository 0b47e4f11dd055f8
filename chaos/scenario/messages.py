"""From a pydantic error to a problem that a person can do something about: a sentence, a place, the nearest valid key.

A part that is wrong hides what pydantic would only look for behind it: `mistakes` looks once more without the keys that
mean nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from diloco_chaos.chaos.registry import CHECKS
from diloco_chaos.chaos.scenario.bounds import Bounds
from diloco_chaos.chaos.scenario.model import Scenario, named
from diloco_chaos.chaos.scenario.problems import Problem, fault_names, place
from diloco_chaos.chaos.scenario.profiles import PROFILES
from diloco_chaos.faults import FAULTS
from diloco_chaos.harness.base.errors import nearest
from diloco_chaos.harness.trainers.api.registry import BUILT_IN, TRAINERS
from diloco_chaos.harness.trainers.api.settings import MisfitError

Detail = dict[str, Any]
"""An error of pydantic's."""


def mistakes(document: Mapping[str, Any]) -> tuple[Scenario | None, Mapping[str, Any], list[Detail]]:
    """Look at a document twice: as it is, and without the keys that are unknown and like no other key.

    Returns:
        The scenario, without those keys; None where it has other mistakes. The document without those keys. And all
        mistakes, those of the second look included.
    """
    scenario, details = _looked_at(document)
    harmless = [detail["loc"] for detail in details if _means_nothing(document, detail)]
    if not harmless:
        return scenario, document, details
    cleared = _without(document, harmless)
    scenario, more = _looked_at(cleared)
    seen = {(detail["loc"], detail["msg"]) for detail in details}
    return scenario, cleared, details + [detail for detail in more if (detail["loc"], detail["msg"]) not in seen]


def _looked_at(document: Mapping[str, Any]) -> tuple[Scenario | None, list[Detail]]:
    try:
        return Scenario.model_validate(document), []
    except ValidationError as error:
        return None, [dict(detail) for detail in error.errors()]


def _means_nothing(document: Mapping[str, Any], detail: Detail) -> bool:
    """Return whether a detail is about a key that is unknown, and was not meant for another one."""
    if detail["type"] != "extra_forbidden":
        return False
    return not nearest(_key(detail["loc"]), known_keys(document, detail["loc"]))


def _without(part: Any, locations: Sequence[Sequence[Any]]) -> Any:
    """A document, or a part of one, without what is at these locations."""
    if isinstance(part, dict):
        gone = {_key(where) for where in locations if len(where) == 1}
        return {key: _without(item, [where[1:] for where in locations if where[0] == key and len(where) > 1])
                for key, item in part.items() if key not in gone}
    if isinstance(part, list):
        return [_without(item, [where[1:] for where in locations if where[0] == index and len(where) > 1])
                for index, item in enumerate(part)]
    return part


def _key(where: Sequence[Any]) -> str:
    """The last key of a location, as it is written: `targets_` stands for a key that no fault may have."""
    return str(where[-1]).removesuffix("_") if where else ""


def problems_of(raw: Any, document: Mapping[str, Any], details: Sequence[Detail]) -> list[Problem]:
    """Each mistake with its place, once. `raw` is the file, and `document` what became of it."""
    return list(dict.fromkeys(_problem(raw, document, part) for detail in details for part in _apart(detail)))


def _apart(detail: Detail) -> list[Detail]:
    """Return what is wrong with a cluster as a whole, one by one, each at its own key."""
    error = detail.get("ctx", {}).get("error")
    if not isinstance(error, MisfitError):
        return [detail]
    return [detail | {"msg": misfit.message, "at": misfit.key} for misfit in error.misfits]


def placed(raw: Any, where: Sequence[Any]) -> tuple[int, int]:
    """Return where a key is in the file, as line and column; at `extends` for what is not in this one."""
    if where and where[0] == "cluster" and isinstance(raw.get("trainer"), dict) and "cluster" not in raw:
        where = ["trainer", *where[1:]]
    if where and where[0] not in map(str, raw) and "extends" in raw:
        return place(raw, ["extends"])
    return place(raw, where)


def _problem(raw: Any, document: Mapping[str, Any], detail: Detail) -> Problem:
    """A pydantic error as a problem with a place and, where a key is unknown, the nearest valid one."""
    where = list(detail["loc"])
    message = str(detail["msg"]).removeprefix("Value error, ")
    message = re.sub(r"a valid dictionary( or (instance of \w+|object to extract fields from))?", "a mapping", message)
    message = message.replace("a valid tuple", "a list")
    message = re.sub(r"^(Input|String|List|Tuple|Dictionary|Value) should ", "it must ", message)
    if detail["type"] in ("int_type", "float_type") and isinstance(detail["input"], str):
        message += f"; {detail['input']!r} is text" + (
            " (leave the quotes out)" if re.fullmatch(r"[\d.]+", detail["input"]) else "")
    if detail["type"] == "extra_forbidden" and where[0] == "checks" and len(where) == 2 and _key(where) in CHECKS:
        message = f"the check {_key(where)} has no bound to set; remove this: it judges without one"
    elif detail["type"] == "extra_forbidden":
        known = known_keys(document, where)
        keys = f" (keys here are {', '.join(sorted(known))})" if where[0] == "faults" else ""
        message = f"unknown key {_key(where)!r}{_profile(where) or nearest(_key(where), known)}{keys}"
    elif detail["type"] == "unknown_fault":
        kind = detail["ctx"]["kind"]
        message = (f"no fault {kind!r}{nearest(kind, list(FAULTS)) or '.'} A fault begins with its kind and target, as "
                   f"in `- kill: learner-1`; kinds are {'. '.join([', '.join(sorted(FAULTS)), *FAULTS.broken()])}")
    elif where == ["diloco_chaos"] and detail["type"] == "literal_error":
        message = f"diloco_chaos: this version reads scenarios of format 1, and this one is of {detail['input']!r}"
    elif detail["type"] == "missing":
        message = f"{_key(where)} is missing"
    elif where:
        message = f"{_written(raw, document, where)}: {message[:1].lower() + message[1:]}"
    return Problem(message, *placed(raw, [*where, detail["at"]] if "at" in detail else where))


def _profile(where: Sequence[Any]) -> str:
    """Return what to write where a profile stands among the checks; empty where none does."""
    name = _key(where)
    is_one = where[0] == "checks" and name in PROFILES
    return f": it is a profile, write `checks: {{profile: {name}}}`" if is_one else ""


def _written(raw: Any, document: Mapping[str, Any], where: Sequence[Any]) -> str:
    """A location as people write it: `f3.for`, `cluster.speeds.2`; what is counted is counted from 1."""
    if where[0] == "faults" and len(where) > 1:
        name = f"f{where[1] + 1}" if where[2:] == ["id"] else fault_names(document)[where[1]]
        said = [name, *where[2:]]
    elif where[0] == "cluster" and isinstance(raw.get("trainer"), dict):
        said = ["trainer", *where[1:]]
    else:
        said = [part for part in where if part != "[key]"]
    return ".".join(str(part + 1 if isinstance(part, int) else part) for part in said)


def known_keys(document: Mapping[str, Any], location: Sequence[Any]) -> list[str]:
    """Return the keys that are valid where an unknown key was."""
    trainer = document.get("trainer")
    kind = named(document["faults"][location[1]], ())["kind"] if location[0] == "faults" else ""
    model: type[BaseModel] = FAULTS.get(kind, Scenario)
    for part in location[:-1]:
        if model is Scenario and part == "cluster":
            registered = TRAINERS.get(trainer) if isinstance(trainer, str) else None
            model = (registered or TRAINERS[BUILT_IN]).settings_type
            continue
        if model is Bounds and part in CHECKS.foreign():
            model = next(iter(_models(CHECKS[part].bound)), BaseModel)
            continue
        for candidate in _models(model.model_fields[part].annotation) if part in model.model_fields else []:
            model = candidate
    foreign = CHECKS.foreign() if model is Bounds else ()
    return [*(field.alias or name for name, field in model.model_fields.items()
              if name not in ("kind", "targets", "domains") or model is Scenario), *foreign]


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models that an annotation like `When | None` names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in _models(part)]
