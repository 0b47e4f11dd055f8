"""The JSON schema of scenario files as people write them, for editors."""

from __future__ import annotations

from typing import Any

from diloco_chaos.chaos.registry import CHECKS
from diloco_chaos.chaos.scenario.bounds import NEVER_OFF
from diloco_chaos.chaos.scenario.model import LEARNERS, Scenario
from diloco_chaos.faults import FAULTS, Fault
from diloco_chaos.harness.trainers.api.registry import TRAINERS

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_HEADS = {"kind", "targets", "domains"}


def schema() -> dict[str, Any]:
    """A fault is a mapping whose first key is its kind and names its target: pydantic's form of it has `kind` and
    `targets` instead."""
    whole = Scenario.model_json_schema(by_alias=True, mode="validation")
    definitions = whole["$defs"]
    written = {}
    for kind, model in sorted(FAULTS.items()):
        form = model.model_json_schema(by_alias=True, mode="validation", ref_template="#/$defs/{model}")
        definitions |= form.pop("$defs", {})
        written[kind] = _as_written(kind, model, form)
    del definitions["Fault"]  # what they have in common
    definitions |= {f"fault_{kind}": definition for kind, definition in written.items()}
    for name, check in CHECKS.foreign().items():
        form = check.schema()
        definitions |= form.pop("$defs", {})
        definitions["Bounds"]["properties"][name] = {"anyOf": [form, {"type": "null"}]}
    for name in {*CHECKS} - NEVER_OFF:
        bounds = definitions["Bounds"]["properties"]
        bounds[name] = {"anyOf": [*([bounds[name]] if name in bounds else []), {"enum": ["off", False]}]}
    definitions["Bounds"]["additionalProperties"] = False
    whole["properties"]["checks"] = {"anyOf": [whole["properties"]["checks"], {"type": "null"}]}  # empty: says nothing
    settings = []
    for trainer in TRAINERS.values():
        form = trainer.settings_type.model_json_schema(by_alias=True, mode="validation", ref_template="#/$defs/{model}")
        definitions |= form.pop("$defs", {})
        for key in ("joining", "seed"):  # a plan's, not a person's
            del form["properties"][key]
        definitions[trainer.settings_type.__name__] = form
        settings.append({"$ref": f"#/$defs/{trainer.settings_type.__name__}"})
    del definitions["TrainerSettings"]  # what they have in common
    whole["properties"]["cluster"] = {"anyOf": [*settings, {"type": "null"}]}
    whole["properties"]["trainer"] = {
        "description": "Which trainer; or, as a mapping, which one (`kind`) and its settings, instead of in `cluster`.",
        "anyOf": [{"type": "string", "enum": list(TRAINERS)},
                  *(_with_kind(name, definitions[trainer.settings_type.__name__])
                    for name, trainer in TRAINERS.items())]}
    points = list(dict.fromkeys(point for trainer in TRAINERS.values() for point in trainer.all_failpoints))
    definitions["When"]["properties"]["failpoint"]["anyOf"][0] = {"type": "string", "enum": points}
    definitions["After"] = {"anyOf": [{"type": "string"}, definitions["After"]]}
    whole["properties"]["faults"] = {
        "description": "What to break; `diloco-chaos list` and docs/scenarios.md show examples.",
        "anyOf": [{"type": "array", "items": {"anyOf": [{"$ref": f"#/$defs/fault_{kind}"} for kind in written]}},
                  {"type": "null"}]}
    return {"$schema": _DIALECT, "title": "diloco-chaos scenario"} | {
        key: value for key, value in whole.items() if key != "title"}


def _with_kind(name: str, form: dict[str, Any]) -> dict[str, Any]:
    """A trainer's settings as they stand under `trainer`."""
    kind = {"kind": {"const": name, "type": "string"}}
    return form | {"properties": kind | form["properties"], "required": ["kind", *form.get("required", [])]}


def _as_written(kind: str, model: type[Fault], definition: dict[str, Any]) -> dict[str, Any]:
    properties = {key: value for key, value in definition["properties"].items() if key not in _HEADS}
    does = (model.__doc__ or f"The fault {kind}.").strip().splitlines()[0]
    targets = {"description": f"{does} Target: a node, a list of them, `{LEARNERS}`, or `domain NAME`.",
               "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1,
                                              "uniqueItems": True},
                         {"type": "object", "properties": {"node": {"type": "string"}, **properties},
                          "required": ["node"], "additionalProperties": False}]}
    return {"type": "object", "title": kind, "properties": {kind: targets, **properties}, "required": [kind],
            "additionalProperties": False}
