"""When something that is no part of a run kept its nodes from working: other work on this machine, its host, its disk.

Only what the harness saw of others counts. A node that burns the processors, writes without end or keeps all memory is
a part of the run; and what the run's own faults do to the machine is no interference either.

Others who keep the processors busy are in the way of a run that wants one, and of no run that sleeps or stands still:
no longer than for the run delay of that thread of its nodes that waited longest. (Threads that wait at the same time
must not be added up, and where rounds are computed one of them is on the way of all.) A tape without that figure says
only what others used. What the host of a virtual machine keeps of its processors may be missing to others, too: no
thread lost more than all processors did.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, median
from typing import NamedTuple

from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.harness.record.tape.events import Machine

_NO_IDLE = 0.1
"""Share of the processors that were idle, below which who wants one has to wait."""
_OTHERS = 0.25
"""Processors that others have to use then."""
_STOLEN = 0.1
"""Share of the processors that the host kept."""
_WAITED = 0.05
"""Share of the time for which a thread of the run has to wait for one then; less is what any scheduler takes."""
RUN_DELAY = "this run waited for a processor"
_STEAL = "the host of this virtual machine kept its processors"
_LATE_S = 0.3
"""The harness itself wanted to run, and could not."""
_STOPPED_S, _AT_REST = 1.0, 0.5
"""Later than that while this share of the processors was idle, it did not want to run: something had stopped it."""
_WAITED_IO, _WAITED_MEMORY = 0.3, 0.2
"""Shares of the time."""
_TIMES_USUAL = 3.0
"""Waiting for a disk, against the run's own median."""
_SYNC_S = 0.3
"""So long a few bytes don't take to be on a disk that works."""
_MUCH_MB_S, _FOR_S = 32.0, 3.0
"""A run that moves as much between itself and disks, and half of what all do, for so long, keeps itself waiting."""
_ROOM, _MOST = 0.15, 0.5
"""Shares of the memory: where as much can be had the machine is not short of it, and who holds most of it is why."""
_AFTER_S = 2.0
"""So long after a fault its effects are still its own."""


class Interference(NamedTuple):
    """Seconds of the run in which others were in the way."""

    start: float
    end: float
    why: str
    samples: tuple[Machine, ...]

    def within(self, start: float, end: float) -> float:
        """Return how many seconds of [start, end] were interfered with: those in which the run waited, where it is
        known for how long it did."""
        whole = max(0.0, min(self.end, end) - max(self.start, start))
        if self.why not in (RUN_DELAY, _STEAL) or any(sample.waited is None for sample in self.samples):
            return whole
        return min(whole, sum(_waited(sample, start, end) for sample in self.samples))

    def numbers(self) -> str:
        """Return what was measured, in words, as means over these seconds."""
        ours, others, stolen, idle = (mean(getattr(sample, name) for sample in self.samples)
                                      for name in ("ours", "others", "stolen", "idle"))
        late = max(sample.late for sample in self.samples)
        io = max(sample.io for sample in self.samples)
        sync = max(sample.sync for sample in self.samples)
        waited = sum(sample.waited or 0.0 for sample in self.samples)
        return ((f"{waited:.1f} s of run delay; " if self.why == RUN_DELAY else "") +
                f"of {self.samples[0].cores} processors this run used {ours:.1f}, others {others:.1f}, "
                f"the host {stolen:.1f}, nobody {idle:.1f}; the harness was up to {late:.1f} s late; "
                f"up to {io:.0%} of the time waiting for a disk"
                + (f", which took {sync:.1f} s to store a byte" if sync >= _SYNC_S else ""))


def interference(history: History) -> list[Interference]:
    """Return all interference, in order of time; what follows each other on one machine for one reason is joined."""
    samples: dict[str, list[Machine]] = defaultdict(list)
    for sample in history.tape.of(Machine, node="harness"):
        samples[sample.machine].append(sample)
    return sorted((interval for each in samples.values() for interval in _on_one(history, each)),
                  key=lambda interval: interval.start)


def _on_one(history: History, samples: Sequence[Machine]) -> list[Interference]:
    """Return the interference that one machine's samples show, in order of time."""
    usual = {name: median([getattr(sample, name) for sample in samples] or [0.0]) for name in ("io", "sync")}
    intervals: list[Interference] = []
    for number, sample in enumerate(samples):
        start, end = sample.t - max(sample.seconds, sample.waited or 0.0), sample.t
        lately = [each for each in samples[max(0, number - 3):number + 1] if end - each.t < _FOR_S]
        if why := _why(sample, usual, _strained(history, start, end), lately):
            if intervals and intervals[-1].why == why and start - intervals[-1].end < sample.seconds / 2:
                intervals[-1] = intervals[-1]._replace(end=end, samples=(*intervals[-1].samples, sample))
            else:
                intervals.append(Interference(start, end, why, (sample,)))
    return intervals


def _why(sample: Machine, usual: Mapping[str, float], strained: set[str], lately: Sequence[Machine]) -> str:
    cores = sample.cores
    if sample.others >= _OTHERS and sample.idle <= _NO_IDLE * cores and "processors" not in strained:
        if sample.waited is None:
            return "other processes had its processors"
        if sample.waited >= _WAITED * sample.seconds:
            return RUN_DELAY
    if _stopped(sample):
        return "the run was stopped"
    if sample.late >= _LATE_S and "processors" not in strained:
        return "nothing on it ran, the harness neither"
    waited = any(getattr(sample, name) >= max(least, _TIMES_USUAL * usual[name])
                 for name, least in (("io", _WAITED_IO), ("sync", _SYNC_S)))
    if waited and "disks" not in strained and not _moves_much(lately):
        return "its disk kept it waiting"
    if sample.memory >= _WAITED_MEMORY and "memory" not in strained and not _wants_too_much(sample):
        return "it was short of memory"
    return _STEAL if _robbed(sample) else ""


def _robbed(sample: Machine) -> bool:
    return sample.stolen >= _STOLEN * sample.cores


def _moves_much(lately: Sequence[Machine]) -> bool:
    """Return whether the run's own reading and writing is what its disk was busy with: what is written now is stored
    later."""
    ours, everybodys = (mean(getattr(sample, name) for sample in lately) for name in ("disk_ours", "disk_all"))
    return bool(ours >= _MUCH_MB_S and ours >= everybodys / 2)


def _wants_too_much(sample: Machine) -> bool:
    """Return whether the run itself is why: it met a limit of its own where the machine has more, or it has most of
    all."""
    return sample.memory_left >= _ROOM or sample.memory_ours >= _MOST


def stopped_for(history: History, start: float, end: float) -> float:
    """Return for how many seconds between these times the harness did not run although there were processors for it."""
    return sum(min(sample.late, end - start) for interval in interference(history) for sample in interval.samples
               if start <= sample.t and sample.t - sample.seconds < end and _stopped(sample))


def _stopped(sample: Machine) -> bool:
    return sample.late >= _STOPPED_S and sample.idle >= _AT_REST * sample.cores


def _strained(history: History, start: float, end: float) -> set[str]:
    """Return what the faults that were on, or just over, kept waiting."""
    return {what for span in history.spans if span.overlaps(start - _AFTER_S, end)
            for what in span.planned.fault.strains}


def _waited(sample: Machine, start: float, end: float) -> float:
    """Return for how many seconds of [start, end] the run waited: its run delay is told when the wait is over. None of
    its threads lost more to the host than all processors together did."""
    waited = (sample.waited or 0.0) + (sample.stolen * sample.seconds if _robbed(sample) else 0.0)
    lasted = max(sample.seconds, waited)
    return waited / lasted * max(0.0, min(sample.t, end) - max(sample.t - lasted, start))


def seconds_within(intervals: Iterable[Interference], start: float, end: float) -> float:
    """Return how many seconds of [start, end] were interfered with."""
    return min(end - start, sum(interval.within(start, end) for interval in intervals))


def describe(intervals: Iterable[Interference], start: float, end: float) -> str:
    """Say what was in the way between these times, the longest first; empty where nothing was."""
    seconds: dict[str, float] = {}
    for interval in intervals:
        within = interval.within(start, end)
        seconds |= {interval.why: seconds.get(interval.why, 0.0) + within} if within else {}
    waited = seconds.pop(RUN_DELAY, 0.0)
    ranked = sorted(seconds.items(), key=lambda item: -item[1])
    return ", ".join([*([f"this run waited {waited:.1f} s for a processor (run delay)"] if waited else []),
                      *(f"for {within:.1f} s {why}" for why, within in ranked)])
