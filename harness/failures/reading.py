"""Reads a failure trace: a CSV with a line for each outage, or InfiniteHBD's JSON with an entry for each begin and end.

The JSON form is that of StepFun's InfiniteHBD-Trace (arXiv 2502.03885): `node_id`, `event_time` in days, `event_type`
(`fault_start` or `fault_end`) and `fault_type` with `Level`, `Class` and `Desc`.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from diloco_chaos.harness.base.errors import UserError, nearest, printable
from diloco_chaos.harness.base.units import long_seconds, show_long
from diloco_chaos.harness.failures.trace import DAY_S, Trace

_COLUMNS = ("node", "start", "end", "class")
_FORM = "write a line for each outage, under the header `node,start,end,class`"
_EVENTS = ("fault_start", "fault_end")
_MOST_PROBLEMS = 20
_MOST_SECONDS = 100 * 365.25 * DAY_S


class TraceError(UserError):
    """A trace that can't be read; the message has a line for each problem."""


class _Outage(NamedTuple):
    """A node was away, as the file says it."""

    node: str
    start: float
    """Seconds."""
    end: float
    """The same; infinite where the file does not say."""
    kind: str
    where: str
    """Which line or entry said so."""


class _Reading:
    """Outages as they are found, and what is wrong."""

    def __init__(self) -> None:
        self.outages: list[_Outage] = []
        self.problems: list[str] = []

    def add(self, outage: _Outage, ended: str = "") -> None:
        """Take in an outage, if it can be one. `ended`: where its end stands, if that is elsewhere."""
        if outage.end < outage.start:
            self.problems.append(f"{ended or outage.where}: node {outage.node} is back before it is lost: exchange "
                                 f"start and end, or leave it out")
        else:
            self.outages.append(outage)


def read_trace(file: Path, nodes: int | None = None) -> Trace:
    """Read a trace.

    Args:
        file: a CSV or JSON file.
        nodes: of the whole cluster, with those that never failed; None: those that the file names.

    Raises:
        TraceError: it is none; the message says all that is wrong, line by line.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise TraceError(f"{file}: {why}; name a CSV or JSON file with outages") from error
    reading = _Reading()
    if not text.strip():
        reading.problems.append(f"it is empty: {_FORM}")
    elif text.lstrip()[0] in "[{":
        _read_json(text, reading)
    else:
        _read_csv(text, reading)
    return _trace(file, reading, nodes)


def _trace(file: Path, reading: _Reading, nodes: int | None) -> Trace:
    told = sorted(reading.outages, key=lambda outage: outage.start)
    outages = _united(told)
    names = {name: number for number, name in enumerate(dict.fromkeys(outage.node for outage in outages))}
    problems = list(reading.problems)
    if not outages and not problems:
        problems.append(f"there is no outage in it: {_FORM}")
    if nodes is not None and nodes < len(names):
        problems.append(f"--nodes {nodes}: {len(names)} nodes fail in it; say how many the cluster has in all")
    if problems:
        more = len(problems) - _MOST_PROBLEMS
        raise TraceError("\n".join([*(f"{file}: {printable(problem)}" for problem in problems[:_MOST_PROBLEMS]),
                                    *([f"{file}: and {more} more like these"] if more > 0 else [])]))
    length_s = max(max(outage.start, outage.end if math.isfinite(outage.end) else 0.0) for outage in outages)
    return Trace(nodes or len(names), length_s, np.array([names[outage.node] for outage in outages], np.intp),
                 np.array([outage.start for outage in outages]), np.array([outage.end for outage in outages]),
                 tuple(outage.kind for outage in outages), tuple(_notes(told, outages, nodes)))


def _united(told: list[_Outage]) -> list[_Outage]:
    """Return outages, by their beginning, with those of a node that overlap as one."""
    latest: dict[str, int] = {}
    united: list[_Outage] = []
    for outage in told:
        before = latest.get(outage.node)
        if before is not None and outage.start < united[before].end:
            united[before] = united[before]._replace(end=max(united[before].end, outage.end))
        else:
            latest[outage.node] = len(united)
            united.append(outage)
    return united


def _notes(told: list[_Outage], outages: list[_Outage], nodes: int | None) -> Iterator[str]:
    """Say what was made of what the file leaves open."""
    if nodes is None:
        yield (f"the cluster is taken to have the {len({outage.node for outage in outages})} nodes that fail in it; if "
               f"it has more, say how many: --nodes")
    if still := sum(math.isinf(outage.end) for outage in outages):
        yield f"{still} of {len(outages)} outages have no end: they last until the trace ends"
    alone = {outage.where for outage in outages}
    if overlap := [outage for outage in told if outage.where not in alone]:
        first = overlap[0]
        yield (f"{len(overlap)} of {len(told)} outages begin while their node is away already, one of them "
               f"at {first.where} ({first.node}): they are one outage with the one before")


def _read_csv(text: str, reading: _Reading) -> None:
    rows = csv.reader(io.StringIO(text))
    header = [column.strip().lower() for column in next(rows)]
    missing = [column for column in _COLUMNS[:3] if column not in header]
    if missing:
        reading.problems.append(f"line 1: no column {', '.join(missing)} in {', '.join(header)}: {_FORM}")
        return
    begins: datetime | None = None
    for row in rows:
        where = f"line {rows.line_num}"
        if not any(cell.strip() for cell in row):
            continue
        cells = {column: cell.strip() for column, cell in zip(header, row, strict=False)}
        if not cells.get("node"):
            reading.problems.append(f"{where}: no node")
            continue
        try:
            begins = begins or _date(cells.get("start", ""))
            start = _moment(cells.get("start", ""), begins)
            end = _moment(cells["end"], begins) if cells.get("end") else math.inf
        except ValueError as error:
            reading.problems.append(f"{where}: {error}")
            continue
        reading.add(_Outage(cells["node"], start, end, cells.get("class") or "unknown", where))
    _from_first(reading, begins)


def _from_first(reading: _Reading, begins: datetime | None) -> None:
    """Where dates are given, count from the first."""
    if begins is not None and reading.outages:
        first = min(outage.start for outage in reading.outages)
        reading.outages = [outage._replace(start=outage.start - first, end=outage.end - first)
                           for outage in reading.outages]


def _moment(text: str, begins: datetime | None) -> float:
    """Return a moment in seconds from a number of days, a duration, or a date.

    Raises:
        ValueError: it is none of these.
    """
    date = _date(text)
    if date is not None and begins is not None:
        return (date - begins).total_seconds()
    if begins is not None:
        raise ValueError(f"{text!r} is no date, as the first start is: write it like 2026-01-31T10:00:00")
    try:
        seconds = float(text) * DAY_S
    except ValueError:
        seconds = float(long_seconds(text))
    if not 0 <= seconds <= _MOST_SECONDS:
        raise ValueError(f"{text}: a time since the trace began lies between 0 and 100 years; a number counts days, "
                         f"36h or 90s say their unit")
    return seconds


def _date(text: str) -> datetime | None:
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def _read_json(text: str, reading: _Reading) -> None:
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        reading.problems.append(f"it is no JSON: {error}")
        return
    if not isinstance(entries, list):
        reading.problems.append("a list of events is wanted, each with node_id, event_time, event_type and fault_type")
        return
    open_faults: dict[str, deque[_Outage]] = {}
    for number, entry in enumerate(entries, 1):
        _read_event(f"entry {number}", entry, open_faults, reading)
    reading.outages += [outage for outages in open_faults.values() for outage in outages]


def _read_event(where: str, entry: Any, open_faults: dict[str, deque[_Outage]], reading: _Reading) -> None:
    """Take in one event; of a node with several open faults an end is that of the first."""
    if not isinstance(entry, dict) or not isinstance(entry.get("node_id"), str):
        reading.problems.append(f"{where}: no node_id: each event names its node")
        return
    node, time, what = entry["node_id"], entry.get("event_time"), entry.get("event_type")
    if isinstance(time, bool) or not isinstance(time, int | float) or not 0 <= time * DAY_S <= _MOST_SECONDS:
        reading.problems.append(f"{where}: event_time {time!r}: days since the trace began, from 0 to 36525, are "
                                f"wanted")
        return
    if what == "fault_start":
        kind = entry.get("fault_type")
        words = kind.get("Class") if isinstance(kind, dict) else None
        open_faults.setdefault(node, deque()).append(_Outage(node, time * DAY_S, math.inf, str(words or "unknown"),
                                                             where))
    elif what != "fault_end":
        reading.problems.append(f"{where}: event_type {what!r}: {' or '.join(_EVENTS)}{nearest(what, _EVENTS)}")
    elif not open_faults.get(node):
        reading.problems.append(f"{where}: node {node} is back after {show_long(time * DAY_S)}, and no fault_start "
                                f"before it says since when it was away: add one, or leave it out")
    else:
        begun = open_faults[node].popleft()
        reading.add(begun._replace(end=time * DAY_S), where)
