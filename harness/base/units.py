"""Quantities as people write them in YAML: `8s`, `250ms`, `1MB/s`, `600 steps`, `80%`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
)

_NUMBER = r"(?P<number>\d+(?:\.\d+)?(?:e-?\d+)?)"
MOST_STEPS = 10**9
"""No run takes more."""
_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0}
_LONG_SECONDS = _SECONDS | {"h": 3600.0, "d": 86_400.0, "y": 365.25 * 86_400.0}
_MINUTES_FROM_S = 120.0
_MULTIPLES = {"": 1.0, "k": 1e3, "M": 1e6, "B": 1e9}
_BYTES = {"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9}


def _quantity(text: str, units: dict[str, float], what: str, example: str) -> float:
    match = re.fullmatch(rf"\s*{_NUMBER}\s*(?P<unit>[A-Za-z]+(?:/s)?)\s*", text)
    if not match or match["unit"] not in units:
        raise ValueError(f"{text!r} is not a {what}: write it like {example}")
    value = float(match["number"]) * units[match["unit"]]
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is too large for a {what}: write it like {example}")
    return value


def seconds(value: Any) -> Any:
    """A duration in seconds from `8s`, `250ms` or `2min`; 0 needs no unit.

    Raises:
        ValueError: any other number without a unit, a negative one, or an unknown unit.
    """
    if isinstance(value, str):
        if value.strip() in ("0", "0.0"):
            return 0.0
        return _quantity(value, _SECONDS, "duration", "8s or 250ms")
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value != 0:
        raise ValueError(f"{value} has no unit: write {value}s or {value}ms" if value > 0 else
                         f"{value}: a duration can't be negative; write it like 8s or 250ms")
    return value


def long_seconds(value: Any) -> Any:
    """A duration in seconds from `1y`, `30d`, `2h`, or all that `seconds` reads.

    Raises:
        ValueError: as there.
    """
    if isinstance(value, str) and value.strip() not in ("0", "0.0"):
        return _quantity(value, _LONG_SECONDS, "duration", "90s, 2h, 30d or 1y")
    return seconds(value)


def count(value: Any) -> Any:
    """Return the count that `12B`, `1.2M`, `150k` or 1200000 stands for; what is not a string comes back unchanged.

    Raises:
        ValueError: it is no whole number.
    """
    if isinstance(value, str):
        match = re.fullmatch(rf"\s*{_NUMBER}\s*(?P<unit>[kMB]?)\s*", value)
        whole = float(match["number"]) * _MULTIPLES[match["unit"]] if match else math.inf
        if not math.isfinite(whole) or whole != round(whole):
            raise ValueError(f"{value!r} is not a count: write it like 4096, 150k or 1.2M")
        return round(whole)
    return value


def bytes_per_second(value: Any) -> Any:
    """A rate in bytes per second from `1MB/s` or `500kB/s` (decimal multiples).

    Raises:
        ValueError: no unit, a negative number, or an unknown unit.
    """
    if isinstance(value, str):
        return _quantity(value, {f"{unit}/s": size for unit, size in _BYTES.items()}, "rate", "1MB/s")
    raise ValueError(f"{value} has no unit: write it like 1MB/s or 500kB/s")


def size(value: Any) -> Any:
    """A size in bytes from `256MB` or `500kB` (decimal multiples).

    Raises:
        ValueError: no unit, a negative number, or an unknown unit.
    """
    if isinstance(value, str):
        return round(_quantity(value, _BYTES, "size", "256MB"))
    raise ValueError(f"{value} has no unit: write it like 256MB")


def steps(value: Any) -> Any:
    """Return the inner steps of `600 steps` or 600; what is not a string comes back unchanged.

    Raises:
        ValueError: the text is no number of steps.
    """
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+)\s*(?:steps?)?\s*", value)
        if not match:
            raise ValueError(f"{value!r} is not a number of steps: write it like 600 steps")
        return int(match[1])
    return value


def share(value: Any) -> Any:
    """Return the share, 0.8 for `80%` or 0.8; margins may be above 1. What is not a string comes back unchanged.

    Raises:
        ValueError: the text is no percentage.
    """
    if isinstance(value, str):
        match = re.fullmatch(rf"\s*{_NUMBER}\s*%\s*", value)
        if not match:
            raise ValueError(f"{value!r} is not a share: write it like 80% or 0.8")
        return float(match["number"]) / 100
    return value


def number(value: Any) -> Any:
    """A number from `0.8`, or from `80%`, where the command line gives text.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, str):
        try:
            return float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
        except ValueError:
            raise ValueError(f"{value!r} is no number") from None
    return value


def between(low: float, high: float, words: str) -> AfterValidator:
    """Bounds for one of the annotated types below, whose own bounds a `Field` would not take the place of."""
    def check(value: float) -> float:
        if not low <= value <= high:
            raise ValueError(f"it must be {words}")
        return value
    checker: Callable[[Any], Any] = check
    return AfterValidator(checker)


def expression(text: str) -> re.Pattern[str]:
    """Return the regular expression that a text is.

    Raises:
        ValueError: it is none; the message says why.
    """
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from error


def is_expression(text: str) -> str:
    """Return a text that is a regular expression, for pydantic.

    Raises:
        ValueError: it is none.
    """
    expression(text)
    return text


@dataclass(frozen=True)
class Written:
    """The form that a text must have; an error about another one says which, in words."""

    pattern: str
    words: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return AfterValidator(self._checked).__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "pattern": self.pattern}

    def _checked(self, text: str) -> str:
        if not re.fullmatch(self.pattern, text):  # `$` alone would also stand before a newline at the end
            raise ValueError(f"{text!r} is not {self.words}")
        return text


def _written(pattern: str, what: str, *more: dict[str, Any]) -> WithJsonSchema:
    """Return the schema that editors read: a string of this form, or one of the others."""
    text = {"type": "string", "pattern": f"^\\s*{pattern}\\s*$", "description": what}
    return WithJsonSchema({"anyOf": [text, *more]} if more else text)


_DIGITS = r"\d+(\.\d+)?(e-?\d+)?"

# Written to JSON with their unit again, so that a frozen plan is read by the very models that read people's YAML.
LONGEST_S = 1e6
"""No duration that anybody writes is longer."""
Seconds = Annotated[float, Field(ge=0, le=LONGEST_S, allow_inf_nan=False), BeforeValidator(seconds),
                    PlainSerializer(lambda value: f"{value!r}s", when_used="json"),
                    _written(rf"{_DIGITS}\s*(ms|s|min|m)", "a duration, like 8s or 250ms", {"const": 0})]
LongSeconds = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False), BeforeValidator(long_seconds),
                        PlainSerializer(lambda value: f"{value!r}s", when_used="json"),
                        _written(rf"{_DIGITS}\s*(ms|s|min|m|h|d|y)", "a duration, like 90s, 2h or 1y", {"const": 0})]
"""Of what a fleet does in years."""
Count = Annotated[int, Field(ge=1, le=10**15), BeforeValidator(count),
                  _written(r"\d+(\.\d+)?[kMB]?", "a count, like 1.2M", {"type": "integer", "minimum": 1})]
Rate = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False), BeforeValidator(bytes_per_second),
                 PlainSerializer(lambda value: f"{value!r}B/s", when_used="json"),
                 _written(rf"{_DIGITS}\s*(B|kB|KB|MB|GB)/s", "a rate, like 1MB/s")]
Size = Annotated[int, Field(ge=0, le=10**15), BeforeValidator(size),
                 PlainSerializer(lambda value: f"{value}B", when_used="json"),
                 _written(rf"{_DIGITS}\s*(B|kB|KB|MB|GB)", "a size, like 256MB")]
Steps = Annotated[int, Field(ge=0, le=MOST_STEPS), BeforeValidator(steps),
                  _written(r"\d+\s*(steps?)?", "inner steps, like 600 steps", {"type": "integer", "minimum": 0})]
Share = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False), BeforeValidator(share),
                  _written(rf"{_DIGITS}\s*%", "a share, like 80% or 0.8", {"type": "number", "minimum": 0})]
Part = Annotated[Share, between(0.0, 1.0, "at most 100%")]
"""A share of what can't be more than all."""


def show_seconds(value: float) -> str:
    """A duration as a person reads it: `250 ms`, `8.0 s`, `2 min 5 s`."""
    if value < 0.9995:
        return f"{value * 1e3:.0f} ms"
    if value < 119.95:
        return f"{value:.1f} s"
    return f"{int(value // 60)} min {int(value % 60)} s"


def show_long(value: float) -> str:
    """A long duration as a person reads it: `71.0 s`, `30 min`, `1.7 h`, `1 y`."""
    for unit in ("y", "d", "h", "min"):
        if value >= 0.9995 * _LONG_SECONDS[unit] and (unit != "min" or value >= _MINUTES_FROM_S):
            return f"{value / _LONG_SECONDS[unit]:.2g} {unit}" if value < 99 * _LONG_SECONDS[unit] else (
                f"{value / _LONG_SECONDS[unit]:.0f} {unit}")
    return show_seconds(value)


def show_bytes(value: float) -> str:
    """A size as a person reads it: `830 B`, `12 kB`, `1.5 GB`."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= 0.9995 * size:
            return f"{value / size:.{1 if value < 9.95 * size else 0}f} {unit}"
    return f"{value:.0f} B"


def shortened(text: str, most: int) -> str:
    """Shorten a text to `most` letters at the most; an ellipsis shows that something is missing."""
    return text if len(text) <= most else f"{text[:most - 1]}…"


def names(targets: Sequence[str], last: str = "and") -> str:
    """`learner-1, learner-2 and learner-3`; `last`: the word before the last one."""
    return f" {last} ".join(filter(None, [", ".join(targets[:-1]), targets[-1]]))


def floor_ms(value: float) -> float:
    """Seconds, in whole milliseconds: a moment that is not later than this one, and that a plan can say."""
    return math.floor(value * 1000) / 1000


def round_up(value: float, step: float, at_least: float = 0.0) -> float:
    """The first multiple of `step` that comes after `value`, but not before `at_least`."""
    return max(at_least, (math.floor(value / step + 1e-9) + 1) * step)
