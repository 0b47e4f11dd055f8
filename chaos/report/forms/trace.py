"""A run as a trace for ui.perfetto.dev: what every node did, faults, and how an answer becomes a merge and a merge a
receipt. In the Trace Event Format (Google, "Trace Event Format", 2016), which needs no library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.harness.record.tape.events import (
    CheckpointComplete,
    Failpoint,
    Hello,
    Lost,
    Merge,
    OuterGradient,
    Ready,
    Received,
    RefusedCheckpoint,
    Steady,
    Step,
    Superseded,
)

_STATES, _WORK, _MOMENTS = 1, 2, 3
"""Threads of a node: what it was, what it computed, and what it told once."""
_FRAGMENT = 10
"""Thread of the first fragment's merges: several are open at once."""
_FAULTS = 1
"""Process of the faults; nodes come after it."""
_INSTANTS = Hello, Lost, Steady, Ready, Failpoint, Superseded, RefusedCheckpoint, CheckpointComplete


def report_trace(history: History) -> str:
    """Times in microseconds since the run began."""
    nodes = dict.fromkeys([*history.plan.cluster.all_nodes, history.recorder])
    processes = {node: number for number, node in enumerate(nodes, _FAULTS + 1)}
    events = [*_names(history, processes), *_faults(history), *_states(history, processes),
              *_work(history, processes), *_merges(history, processes), *_instants(history, processes)]
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events}) + "\n"


def _names(history: History, processes: dict[str, int]) -> Iterator[dict[str, Any]]:
    for name, number in {"faults": _FAULTS, **processes}.items():
        yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": number, "args": {"sort_index": number}}
    for number in processes.values():
        for thread, name in ((_STATES, "state"), (_WORK, "work"), (_MOMENTS, "events")):
            yield from _thread(number, thread, name)
    for fragment in range(_fragments(history)):
        yield from _thread(processes[history.recorder], _FRAGMENT + fragment, f"fragment {fragment}")
    for number, span in enumerate(history.spans):
        yield from _thread(_FAULTS, number, span.planned.id)


def _fragments(history: History) -> int:
    return max((merge.fragment + 1 for merge in history.merges if merge.fragment is not None), default=0)


def _thread(process: int, thread: int, name: str) -> Iterator[dict[str, Any]]:
    """Its name, and its place among the process' threads, which viewers sort by name else."""
    yield {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": name}}
    yield {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": thread, "args": {"sort_index": thread}}


def _slice(process: int, thread: int, name: str, start: float, end: float, **details: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": process, "tid": thread, "ts": _us(start),
            "dur": max(1, _us(end) - _us(start)), "args": details}


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def _faults(history: History) -> Iterator[dict[str, Any]]:
    for number, span in enumerate(history.spans):
        if span.injected is not None:
            end = history.end if span.ended is None else span.ended
            yield _slice(_FAULTS, number, span.planned.describe(), span.injected, end, **span.observed)


def _states(history: History, processes: dict[str, int]) -> Iterator[dict[str, Any]]:
    for node, lane in history.lanes.nodes.items():
        for (start, state), (end, _) in pairwise([*lane.changes, (history.end, "")]):
            if state != "done" and end > start:
                yield _slice(processes[node], _STATES, state, start, end)


def _work(history: History, processes: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Steps, and the answers that they led to, from which an arrow goes to their merge."""
    for event in history.tape.of(Step, OuterGradient):
        if event.node not in processes:
            continue
        fields = {name: value for name, value in event.payload() if isinstance(value, (int, float, str))}
        process = processes[event.node]
        if isinstance(event, Step):
            yield _slice(process, _WORK, f"step {event.step}", event.began, event.t, **fields)
        else:
            yield _slice(process, _MOMENTS, f"answer, round {event.round}", event.t, event.t + 1e-6, **fields)
            yield _arrow("s", _answer(event.node, event.inc, event.round, event.fragment), process, _MOMENTS, event.t)


def _merges(history: History, processes: dict[str, int]) -> Iterator[dict[str, Any]]:
    syncer = processes[history.recorder]
    answered = {_answer(event.node, event.inc, event.round, event.fragment)
                for event in history.tape.of(OuterGradient) if event.node in processes}
    made: dict[tuple[int, int], Merge] = {}
    for merge in history.merges:
        thread = _FRAGMENT + merge.fragment
        name = f"version {merge.version}"
        parts = merge.contributions
        yield _slice(syncer, thread, name, merge.opened, merge.t, contributors=[
            part.learner for part in parts])
        for part in parts:  # a trainer of commands tells of no answers
            if (answer := _answer(part.learner, part.incarnation, merge.round, merge.fragment)) in answered:
                yield _arrow("f", answer, syncer, thread, _inside(merge))
        made[merge.fragment, merge.version] = merge
    yield from _receipts(history, made, processes)


def _receipts(history: History, made: dict[tuple[int, int], Merge],
              processes: dict[str, int]) -> Iterator[dict[str, Any]]:
    """An arrow of its own for each receipt: one with several ends is drawn from receipt to receipt."""
    for event in history.tape.of(Received):
        merge = made.get((event.fragment, event.version))
        if merge is not None and event.node in processes:
            process = processes[event.node]
            name = f"receipt-{event.node}-{event.inc}-{event.fragment}-{event.version}"
            yield _slice(process, _MOMENTS, f"receipt, fragment {event.fragment}", event.t, event.t + 1e-6,
                         version=event.version)
            yield _arrow("s", name, processes[history.recorder], _FRAGMENT + event.fragment, _inside(merge))
            yield _arrow("f", name, process, _MOMENTS, event.t)


def _inside(merge: Merge) -> float:
    """A moment of the merge's slice: viewers don't count its end as part of it."""
    return max(merge.opened, merge.t - 1e-6)


def _instants(history: History, processes: dict[str, int]) -> Iterator[dict[str, Any]]:
    for event in history.tape.of(*_INSTANTS):
        if event.node in processes:
            yield {"ph": "i", "s": "t", "name": event.event, "pid": processes[event.node], "tid": _MOMENTS,
                   "ts": _us(event.t), "args": {"incarnation": event.inc}}


def _answer(learner: str, incarnation: int, round_: int, fragment: int) -> str:
    return f"answer-{learner}-{incarnation}-{round_}-{fragment}"


def _arrow(phase: str, name: str, process: int, thread: int, t: float) -> dict[str, Any]:
    """Part of an arrow: it begins (s) or ends (f) in the slice that is there at this time."""
    return {"ph": phase, "bp": "e", "cat": "flow", "name": name.partition("-")[0], "id": name, "pid": process,
            "tid": thread, "ts": _us(t)}
