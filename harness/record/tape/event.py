"""One line of the tape: an event of a node, as JSON. docs/evidence.md describes every one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from sys import intern
from typing import Any

import orjson

SCHEMA = 2
"""Of the tape. 1 called the outer gradient `snapshot`, a failpoint `held`, and a global checkpoint `cut`."""

_LONGEST_S = 1e7
"""Four months: no run is longer."""
Parts = tuple[float, str, int, str, dict[str, Any]]
"""Of an event, in the order of its attributes."""
_NONE: frozenset[str] = frozenset()

FIELDS: dict[str, frozenset[str]] = {name: frozenset(fields.split()) for name, fields in {
    "step": "step tokens began", "outer_gradient": "round fragment base first step steps tokens digest",
    "upload": "", "donated": "learner versions", "recovering": "learner from versions",
    "received": "fragment version step digest closed carried",
    "disconnected": "", "ready": "", "start": "", "imported": "", "failpoint": "point",
    "failpoint_passed": "point count", "listening": "port", "initial": "versions digests step processed",
    "resumed": "versions digests step processed", "hello": "learner incarnation", "lost": "learner reason",
    "merge": "round fragment version digest step processed merged opened quorum_at closed grace step_time sync_time "
             "asked declined contributions",
    "refused": "reason", "refused_frame": "peer reason", "partial_frame": "peer bytes expected", "steady": "step",
    "grouped": "epoch step learners", "rolled_back": "step processed", "traffic": "sent received",
    "checkpoint_begun": "checkpoint step nodes", "checkpoint_part": "checkpoint step",
    "checkpoint_complete": "checkpoint", "checkpoint_incomplete": "checkpoint without",
    "not_saved": "checkpoint reason", "finished": "step", "exit": "", "begin": "plan", "planned": "plan",
    "continued": "run checkpoint", "end": "outcome message",
    "machine": "seconds cores idle ours others stolen late cpu io memory",
    "clock": "target ahead error",
    "spawn": "target incarnation", "injecting": "fault kind targets description", "injected": "fault observed",
    "observed": "fault observed", "healed": "fault observed", "verified": "fault observed",
    "not_healed": "fault reason",
    "aborted": "why", "residue": "left", "repaired": "file reason", "superseded": "reason",
    "skipped": "step position reason", "reset": "step reason", "corrupted": "step fault part content values seed",
    "renewed": "learner incarnation reason", "failed": "reason",
    "refused_checkpoint": "reason", "warning": "reason"}.items()}
"""Every event of the contract, and the fields that verdicts need: a line without them is not whole."""


@dataclass(slots=True)
class Event:
    """One line of the tape."""

    t: float
    """Seconds since the run began (CLOCK_MONOTONIC, shared by all processes of one machine)."""
    node: str
    incarnation: int
    event: str
    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        """A field: `event["fragment"]`."""
        return self.fields[name]


def line(event: Event) -> str:
    """The event as one JSON line, keys in a fixed order; NaN and infinity become null, as JSON wants it."""
    content = {"t": round(event.t, 6), "node": event.node, "inc": event.incarnation, "event": event.event,
               **event.fields}
    try:
        return orjson.dumps(content).decode() + "\n"
    except TypeError:  # a name that is no Unicode, a number of more than 64 bits: slower, and nothing is lost
        return json.dumps(content, separators=(",", ":")) + "\n"


def parse(text: str | bytes) -> Event:
    """The event on one line. Whole numbers of more than 64 bits, which only somebody else writes, lose digits.

    Raises:
        ValueError: the line is not a whole event.
    """
    t, node, incarnation, name, fields = parsed(text)
    whole(name, fields)
    return Event(t, node, incarnation, name, fields)


def parsed(text: str | bytes) -> Parts:
    """The same in parts, which may lack fields.

    Raises:
        ValueError: it is no event at all.
    """
    try:
        raw = _loaded(text)
        t, node, incarnation, name = raw.pop("t"), raw.pop("node"), raw.pop("inc"), raw.pop("event")
    except (KeyError, AttributeError, TypeError, RecursionError) as missing:
        raise ValueError(f"not an event: {missing}") from missing
    if not (isinstance(t, (int, float)) and isinstance(node, str) and isinstance(incarnation, int)
            and isinstance(name, str)):
        raise ValueError("not an event: t, node, inc or event has the wrong type")
    if not abs(t) <= _LONGEST_S:  # NaN included
        raise ValueError(f"not an event: {t} is no time of a run")
    return float(t), intern(node), incarnation, intern(name), raw


def whole(name: str, fields: Mapping[str, Any]) -> None:
    """Let events pass that have what verdicts need.

    Raises:
        ValueError: it lacks a field.
    """
    if not FIELDS.get(name, _NONE) <= fields.keys():
        raise ValueError(f"a {name} without {', '.join(sorted(FIELDS[name] - fields.keys()))}")


def _loaded(text: str | bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # NaN, a name that is no Unicode: what `line` may have written, and nothing is lost
        return json.loads(text if isinstance(text, str) else text.decode("utf-8", "replace"))
