"""What a run of the trainer does, as a digest: of what decides training, and of nothing else.

In it are, in the order of the world's time and read from the tape: who came and went; every merge (fragment, version,
step, tokens; of every contribution its learner, base, steps, tokens and weight); every inner step's batch, tokens and
learning rate; what was received, at which step, and how much was carried over it; what was refused or rolled back; and
all values of every snapshot, bit for bit. Times are in it as whole hundredths of a second, and only those that figures
are made of: how long training took, its longest time without a merge, and when nodes came and went.

A digest of a run's course leaves out the values and the learning rate: goodput, recovery and bytes come from what is
left, and another rate or another rounding does not touch them.

Not in it: names of files, classes, messages and tensors, reasons and other words, process ids, losses (which follow
from the values), digests that the trainer works out itself, and times of single merges, which a commit that takes a
little longer would move. So a digest outlives whatever changes how the trainer is written and not what it does.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.figures.canonical import RUNS, perform
from diloco_chaos.chaos.runner.simulate import Performed
from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.record.tape.events import (
    Donated,
    Event,
    Finished,
    Grouped,
    Hello,
    Lost,
    Merge,
    MergedPart,
    Received,
    Refused,
    Resumed,
    RolledBack,
    Step,
    Traffic,
)

_LENGTH = 16
"""Hexadecimal digits of a digest."""
_SEPARATOR = ": "
COURSE = "/course"
"""Behind a run's name: its course alone."""
NAMES = tuple(f"{name}{what}" for name in RUNS for what in ("", COURSE))
"""All that digests are made of."""
Fact = tuple[Any, ...]


def digests(name: str) -> dict[str, str]:
    """Of the canonical run of this name, and of its course alone."""
    done, run = perform(name), RUNS[name]
    course = list(_course(done, run.weighed))
    whole = digest_of([*course, *_learned(done)])
    return {name: f"{torch_build()}{_SEPARATOR}{whole}" if run.torch else whole, f"{name}{COURSE}": digest_of(course)}


def comparable(before: str, now: str) -> bool:
    """Whether both are of the same build of torch, or of none."""
    return before.rpartition(_SEPARATOR)[0] == now.rpartition(_SEPARATOR)[0]


def without_build(digest: str) -> str:
    """Return the hexadecimal digits alone."""
    return digest.rpartition(_SEPARATOR)[2]


def digest_of(facts: Sequence[Fact]) -> str:
    """Return the digest of these facts, as hexadecimal digits."""
    return hashlib.sha256(json.dumps(facts, separators=(",", ":")).encode()).hexdigest()[:_LENGTH]


@lru_cache(maxsize=1)
def torch_build() -> str:
    """Its version, and what it makes of this processor."""
    from torch.backends import cpu  # slow to import, and most runs need none

    return f"torch {version('torch')} {cpu.get_cpu_capability()} {platform.machine()} {_vendor()}".rstrip()


def _vendor() -> str:
    """Who made the processor: math libraries choose by it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((text.split(":")[1].strip() for text in file if text.startswith("vendor_id")), "")
    except OSError:
        return ""


def _course(done: Performed, weighed: bool) -> Iterator[Fact]:
    """What happened; with how many bytes were sent, to two digits, where the run is `weighed`."""
    for event in done.stage.tape().events:
        if type(event) in _FACTS:
            yield event.event, *_FACTS[type(event)](event)
    yield from _times(done)
    if weighed:
        yield "bytes", _bytes(done)


def _learned(done: Performed) -> Iterator[Fact]:
    """What came of it, and at which rates; where gradients are averaged, no step tells of one."""
    yield "rates", [_rounded(event.lr) for event in done.stage.tape().of(Step)]
    for tensors, _ in done.snapshots:
        yield "values", _values(tensors)


_FACTS: dict[type[Event], Callable[[Any], Fact]] = {
    Step: lambda e: (e.node, e.inc, e.step, e.tokens, e.position),
    Received: lambda e: (e.node, e.inc, e.fragment, e.version, e.step, e.carried),
    Merge: lambda e: (e.fragment, e.version, e.step, e.processed, e.merged,
                        *sorted(map(_contribution, e.contributions))),
    Refused: lambda e: (e.node, e.learner, e.fragment, e.first, e.last, e.base),
    Hello: lambda e: (e.learner, e.incarnation, _hundredths(e.t)),
    Lost: lambda e: (e.learner, _hundredths(e.t)),
    Donated: lambda e: (e.node, e.learner, e.versions),
    Grouped: lambda e: (e.step, sorted(e.learners)),
    RolledBack: lambda e: (e.step, e.processed),
    Resumed: lambda e: (e.versions, e.step, e.processed),
    Finished: lambda e: (e.node, e.step)}
"""What of each kind of event is part of the digest."""


def _contribution(part: MergedPart) -> Fact:
    return (part.learner, part.incarnation, part.base, part.first, part.last, part.steps, part.tokens,
            _rounded(part.weight))


def _rounded(number: float | None) -> str | None:
    """To six digits: what libraries of mathematics may differ in is far behind them."""
    return None if number is None else f"{number:.6g}"


def _hundredths(seconds: float) -> int:
    return round(100 * seconds)


def _values(tensors: Tensors) -> str:
    """Of the bits of all, in the order of their names."""
    hasher = hashlib.sha256()
    for name in sorted(tensors):
        hasher.update(np.ascontiguousarray(tensors[name], "<f4").tobytes())
    return hasher.hexdigest()


def _times(done: Performed) -> Iterator[Fact]:
    merged = [event.t for event in done.stage.tape().of(Merge)]
    yield "took", _hundredths(merged[-1] - merged[0])
    yield "longest gap", _hundredths(max(later - earlier for earlier, later in pairwise(merged)))


def _bytes(done: Performed) -> str:
    """Both ways, of every kind of message."""
    last = done.stage.tape().of(Traffic)[-1]
    return f"{sum(sum(way.values()) for way in (last.sent, last.received)):.2g}"
