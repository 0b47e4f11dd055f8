"""A record of which nodes of a cluster were away when, and what would become of another fleet to which that happens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diloco_chaos.harness.failures.course import Course, Indices, course_of
from diloco_chaos.harness.failures.lengths import Floats

DAY_S = 86_400.0
WEEK_S = 7 * DAY_S


@dataclass(frozen=True, eq=False)
class Trace:
    """The outages of a cluster, by the time at which they began."""

    nodes: int
    """Of the cluster, with those that never failed."""
    length_s: float
    whose: Indices
    """Which node, from 0 on, of shape (outages,)."""
    starts: Floats
    """Seconds, ascending, of the same shape."""
    ends: Floats
    kinds: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What was made of what the file does not say."""

    @classmethod
    def of(cls, course: Course) -> Trace:
        """Return a trace of what happens in a course; its outages have no class."""
        outages = course.outages()
        whose, starts, ends = (np.array(each) for each in zip(*outages, strict=True))
        return cls(len(course.at_first), course.horizon, whose, starts, ends, ("",) * len(outages))

    @property
    def repairs(self) -> Floats:
        """Return for how long the node was away, of each outage, as far as the trace goes."""
        return np.minimum(self.ends, self.length_s) - self.starts

    def replayed(self, slices: int, horizon: float, begin: float = 0.0) -> Course:
        """Return the course of a fleet to which all that happens that happened to the cluster from `begin` on, in
        seconds; after the trace's end it begins again. A fleet with more slices is made of several such clusters, each
        of which begins elsewhere in the trace."""
        clusters = math.ceil(slices / self.nodes)
        parts = []
        for cluster in range(clusters):
            since = (begin + cluster * self.length_s / clusters) % self.length_s
            rounds = np.arange(-1, math.ceil(horizon / self.length_s) + 1)
            starts = (self.starts[None, :] + rounds[:, None] * self.length_s - since).ravel()
            lasts = np.tile(self.repairs, len(rounds))
            parts.append((np.tile(self.whose, len(rounds)) + cluster * self.nodes, starts, starts + lasts))
        return _apart(parts, slices, horizon)

    def by_weeks(self, slices: int, horizon: float, seed: int) -> Course:
        """Return the course of a fleet each of whose weeks is one of the trace's, drawn with replacement, with the
        outages that began in it."""
        chance = np.random.default_rng([seed, 0])
        weeks = max(1, int(self.length_s / WEEK_S))
        week = (self.starts / WEEK_S).astype(int)
        before = math.ceil(float(self.repairs.max()) / WEEK_S)
        parts = []
        for cluster in range(math.ceil(slices / self.nodes)):
            for place in range(-before, math.ceil(horizon / WEEK_S)):
                drawn = int(chance.integers(weeks))
                mine = week == drawn
                starts = self.starts[mine] + (place - drawn) * WEEK_S
                lasts = self.repairs[mine]
                parts.append((self.whose[mine] + cluster * self.nodes, starts, starts + lasts))
        return _apart(parts, slices, horizon)


    def resampled(self, seed: int) -> Trace:
        """Return a trace as long, each of whose weeks is one of this one's, drawn with replacement (a bootstrap)."""
        return Trace.of(self.by_weeks(self.nodes, self.length_s, seed))


def _apart(parts: Sequence[tuple[Indices, Floats, Floats]], slices: int, horizon: float) -> Course:
    """Return the course of outages (of whom, from when, to when) that may overlap: those of one slice that do are
    one."""
    whose = np.concatenate([part[0] for part in parts])
    starts, ends = (np.concatenate([part[place] for part in parts]) for place in (1, 2))
    mine = (whose < slices) & (ends > 0) & (starts < horizon)
    order = np.lexsort((starts[mine], whose[mine]))
    whose, starts, ends = whose[mine][order], starts[mine][order], ends[mine][order]
    return course_of(*_united(whose, starts, ends), slices, horizon)


def _united(whose: Indices, starts: Floats, ends: Floats) -> tuple[Indices, Floats, Floats]:
    """Return outages, ascending by node and start, with those of one node that overlap as one."""
    if not len(whose):
        return whose, starts, ends
    span = float(np.ptp(np.concatenate([starts, ends]))) + 1.0
    latest = np.maximum.accumulate(ends + whose * span) - whose * span  # of this outage and those before it
    new = np.concatenate([[True], (np.diff(whose) != 0) | (starts[1:] > latest[:-1])])
    return whose[new], starts[new], np.maximum.reduceat(ends, np.flatnonzero(new))
