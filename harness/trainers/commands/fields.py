"""What a log says of a round, as numbers: as people and libraries write them. Pure.

Each function takes a text, or a value of a JSON object, and raises ValueError with a reason where it is no such number.
"""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Any

MOST = 10**15
"""No trainer counts farther, and every number below is exact as a float."""
_LATEST_S = 253_402_300_800.0  # the year 10000
_AROUND = " \t\r\n\"'()[]{}<>;:,"
_GROUPED = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_WRAPPED = re.compile(r"[A-Za-z_][\w.]*\(\[?([^\s()\[\]]*?)(?:,\s.*|\]?\)|,?$)")
_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
"""From which number on a time is in nanoseconds, microseconds, milliseconds."""
_SHOWN = 40
_LONGEST_WORD = 128
_RANK = re.compile(r"[A-Za-z0-9_.]{1,64}")


def number(value: Any) -> float:
    """Return a number: `1.5`, `1e-3`, `1,024`, `nan`, `tensor(0.5)`; also with what stands around it in a sentence."""
    if isinstance(value, str):
        try:
            return float(value)  # as almost all of them are
        except ValueError:
            return _spelled(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{shown(value)} is no number")
    if isinstance(value, int) and abs(value) > MOST:
        raise ValueError(f"{shown(value)} is too large")
    return value


def _spelled(value: str) -> float:
    text = value.strip(_AROUND)
    wrapped = _WRAPPED.match(value.strip(" \t"))
    for form in (text, wrapped[1] if wrapped else text.rstrip(".")):
        try:
            return float(form.replace(",", "") if _GROUPED.fullmatch(form) else form)
        except ValueError:
            continue
    raise ValueError(f"{shown(value)} is no number")


def whole(value: Any) -> int:
    """Return a number that counts something: `7`, `7.0`, `1,024`."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 15:
        return int(value)
    counted = number(value)
    if not math.isfinite(counted) or counted != int(counted) or not 0 <= counted <= MOST:
        raise ValueError(f"{shown(value)} is no whole number")
    return int(counted)


def word(value: Any, what: str) -> str:
    """Return what stands for something and is compared only: `9f86d081`, `sha256:9f86...`, a whole number."""
    text = str(value).strip(_AROUND) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not text or len(text) > _LONGEST_WORD or any(letter.isspace() for letter in text):
        raise ValueError(f"{shown(value)} is no {what}: write letters and digits, {_LONGEST_WORD} at most")
    return text


def rank(value: Any) -> str:
    """Return what a rank, or an actor, is called: `1`, `trainer_3`; of a whole number as JSON may write it, `1.0`, the
    number."""
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else word(value, "rank")
    if not _RANK.fullmatch(text):
        raise ValueError(f"{shown(value)} is no rank: write letters, digits, dots and underscores, 64 at most")
    return text


def moment(value: Any) -> float:
    """Return seconds since 1970 from a number (milliseconds, microseconds and nanoseconds, too) or from ISO 8601;
    without a zone it is local time."""
    if isinstance(value, str) and value[4:5] == "-":
        return _iso(value)
    try:
        seconds = float(value) if isinstance(value, int) and not isinstance(value, bool) else number(value)
        seconds /= next((unit for least, unit in _UNITS if abs(seconds) >= least), 1.0)
    except OverflowError:
        seconds = math.inf
    except ValueError:
        if not isinstance(value, str):
            raise ValueError(f"{shown(value)} is no time") from None
        seconds = _iso(value)
    if not 0 <= seconds < _LATEST_S:  # also where it is no number
        raise ValueError(f"{shown(value)} is no time")
    return seconds


def _iso(text: str) -> float:
    try:
        return datetime.fromisoformat(text.strip(_AROUND).replace("Z", "+00:00").replace(",", ".")).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{shown(text)} is no time: write seconds since 1970, or ISO 8601 "
                         f"(2030-01-31T12:30:00.250+00:00)") from None


def shown(value: Any) -> str:
    """Return a value in short, as it stands in a sentence."""
    text = f"a number of {value.bit_length()} bits" if isinstance(value, int) and abs(value) > MOST else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
