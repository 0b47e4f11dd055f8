"""Words of the first schema, and what each is called now: whoever still writes one is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_KEYS: Mapping[str, str] = {
    "cut_every": "checkpoint_interval", "silence": "heartbeat_timeout", "hold": "failpoint",
    "times_fault_free": "max_gap_vs_baseline", "against_twin": "against_baseline"}
_BOUNDS: Mapping[tuple[str, str], str] = {("no_global_stall", "at_least"): "max_gap"}
"""Keys that other checks still have, by check and key."""
_VALUES: Mapping[tuple[str, object], str] = {("anchor", "own"): "base", ("anchor", "previous"): "latest"}

_EVENTS: Mapping[str, str] = {
    "snapshot": "outer_gradient", "held": "failpoint", "cut": "checkpoint_begun", "part": "checkpoint_part",
    "cut_done": "checkpoint_complete", "cut_broken": "checkpoint_incomplete", "felt": "observed",
    "recovered": "verified"}


def renamed_event(event: str) -> str:
    """What an event of the tape is called now; empty where it never was another event's name."""
    return _EVENTS.get(event, "")


def renamed_key(where: Sequence[Any]) -> str:
    """What the last key of this location is called now; empty where it never was another key's name."""
    parent, key = str(where[-2]) if len(where) > 1 else "", str(where[-1])
    return _BOUNDS.get((parent, key)) or _KEYS.get(key, "")


def renamed_value(where: Sequence[Any], value: object) -> str:
    """What this value of the last key is called now; empty where it never was another value's name."""
    return _VALUES.get((str(where[-1]) if where else "", value), "") if isinstance(value, str) else ""
