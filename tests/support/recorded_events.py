"""Events as a tape would have them, made from a name and as many fields as a test cares about."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Struct, structs

from diloco_chaos.harness.record.tape.events import KINDS, Custom, Event, MergedPart

_PLAIN = {float: 0.0, int: 0, str: "", bool: False}


def an_event(t: float, node: str, inc: int, name: str, fields: Mapping[str, Any] | None = None) -> Event:
    """One of this name. Fields that every such event has, and that are not given, are zero or empty."""
    if (kind := KINDS.get(name)) is None:
        return Custom(kind=name, fields=dict(fields or {})).stamped(t, node, inc)
    event = kind(**_empty(kind))
    event.t, event.node, event.inc = t, node, inc
    return changed(event, **dict(fields or {}))


def changed(event: Event, **fields: Any) -> Event:
    """The same event with other values in these fields, which go by their names on the tape."""
    if isinstance(event, Custom):
        return Custom(kind=event.kind, fields={**event.fields, **fields}, t=event.t, node=event.node, inc=event.inc)
    attributes = dict(zip(event.__struct_encode_fields__, event.__struct_fields__, strict=True))
    if "contributions" in fields and event.event == "merge":
        fields["contributions"] = [a_part(**part) if isinstance(part, dict) else part
                                   for part in fields["contributions"]]
    return structs.replace(event, **{attributes[name]: value for name, value in fields.items()})


def a_part(**fields: Any) -> MergedPart:
    """What a worker gave to a merge."""
    return MergedPart(**_empty(MergedPart) | fields)


def _empty(kind: type[Struct]) -> dict[str, Any]:
    return {name: _zero(hint) for name, hint in _required(kind).items()}


@cache
def _required(kind: type[Struct]) -> dict[str, Any]:
    """The fields that have no default, and their types, which take longer to evaluate than most tests."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in structs.fields(kind)
            if field.default is NODEFAULT and field.default_factory is NODEFAULT}


def _zero(hint: Any) -> Any:
    if hint in _PLAIN:
        return _PLAIN[hint]
    if get_origin(hint) is Literal:
        return get_args(hint)[0]
    return {} if get_origin(hint) in (dict, Mapping) else []
