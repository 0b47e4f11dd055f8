"""Reads the fields of a JSON request body, the way a Go decoder does.

Absent and null leave the default, and the case of a field's name doesn't matter. What follows the JSON value,
which a Go decoder passes over, is an error here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

_INT64_MAX = 2**63 - 1  # Toxiproxy decodes whole numbers into Go's int64


class BadRequestError(ValueError):
    """The request can't be used; the message is the one that goes into the HTTP answer (status 400)."""


def json_object(body: bytes) -> dict[str, Any]:
    """The JSON object that a request body holds; null is one without fields.

    Raises:
        BadRequestError: it holds anything else.
    """
    return _object(_value(body), "must be a JSON object")


def json_objects(body: bytes) -> list[dict[str, Any]]:
    """The array of JSON objects that a request body holds; null is an empty one.

    Raises:
        BadRequestError: it holds anything else.
    """
    value = _value(body)
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadRequestError("bad request body: must be an array of JSON objects")
    return [_object(entry, "must be an array of JSON objects") for entry in value]


def text(fields: Mapping[str, Any], field: str, default: str) -> str:
    """Raises BadRequestError where the field is there and not a string."""
    value = fields.get(field)
    if value is None:
        return default
    if not isinstance(value, str):
        raise BadRequestError(f"bad request body: {field} must be a string")
    return value


def flag(fields: Mapping[str, Any], field: str, default: bool) -> bool:
    """Raises BadRequestError where the field is there and neither true nor false."""
    value = fields.get(field)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise BadRequestError(f"bad request body: {field} must be true or false")
    return value


def probability(fields: Mapping[str, Any], field: str, default: float) -> float:
    """Raises BadRequestError where the field is there and not a number from 0 to 1."""
    value = fields.get(field)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise BadRequestError(f"bad request body: {field} must be a number from 0 to 1")
    return float(value)


def whole(fields: Mapping[str, Any], field: str, default: int) -> int:
    """Raises BadRequestError where the field is there and not a whole number from 0 to 2**63 - 1."""
    value = fields.get(field)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _INT64_MAX:
        raise BadRequestError(f"bad request body: {field} must be a whole number, 0 or more")
    return value


def nested(fields: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """The object in a field, empty where it is absent. Raises BadRequestError where it is anything else."""
    value = fields.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRequestError(f"bad request body: {field} must be an object")
    return value


def _value(body: bytes) -> Any:
    try:
        return json.loads(body, parse_constant=_no_constant, object_pairs_hook=_any_case)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"bad request body: {error}") from None


def _object(value: Any, otherwise: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRequestError(f"bad request body: {otherwise}")
    return value


def _any_case(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name.casefold(): value for name, value in pairs}


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
