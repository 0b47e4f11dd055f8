"""When a round was: by the time that its line tells, as far as that is to be believed, or by when it was read. Pure."""

from __future__ import annotations

import math

from diloco_chaos.harness.trainers.commands.progress import Problem

CLOCK_OFF_S = 5.0
"""A time that a line tells counts where it is so near to when the line was read; else the clock is another one."""
EXACT_S = 0.02
"""A log is read more often than that: times that are told more coarsely only bound when it was."""
_UNITS = (60_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10, 1)
_ENOUGH = 3
_FAR_S = 1e7
_UNBUFFERED = ("let it write each line at once (Python: `env: {PYTHONUNBUFFERED: 1}` or `print(..., flush=True)`; "
               "others: `run: \"stdbuf -oL PROGRAM\"`)")
_BURST, _QUIET_S, _QUIET_LOOKS = 4, 0.5, 5
_NORM, _WHOLE = 0.9, 10


class Stamps:
    """The times that the lines of a file tell."""

    def __init__(self, wall: float) -> None:
        """`wall`: what the clock on the wall said when the run began."""
        self._wall = wall
        self._micros: list[int] = []  # the first that differ
        self._divisor = 0  # of all of them
        self._twice = False  # one of the first came twice
        self._off = 0  # how many in a row were of another clock
        self._read = self._before = math.inf  # when the newest lines were read, and those before them
        self.problem: Problem | None = None
        """What is wrong with them, once that is certain."""

    @property
    def resolution(self) -> float:
        """Return the seconds in which they are told: what all of them are multiples of. Of a few that may be an
        accident: then it is their decimals, if these are fine and no stamp came twice."""
        unit = next(unit for unit in _UNITS if self._divisor % unit == 0) / 1e6
        accident = len(self._micros) < _ENOUGH and unit <= EXACT_S and not self._twice
        return unit if accident else self._divisor / 1e6

    @property
    def exact(self) -> bool:
        """Return whether they tell when something was, however late it was read."""
        return len(self._micros) >= _ENOUGH and self.resolution <= EXACT_S and not self._off

    def moment(self, told: float | None, read: float, since: float) -> float:
        """Return when something was, in seconds of the run.

        Args:
            told: by its line, in seconds since 1970.
            read: when its line was read: it was no later.
            since: when its process began, or told of something last: it was no earlier.
        """
        if told is None:
            return max(since, read)
        self._measure(round(told * 1e6))
        if read != self._read:
            self._before, self._read = self._read, read
        own, resolution = told - self._wall, self.resolution
        late = read - own - min(resolution, 60.0)
        if own - read > CLOCK_OFF_S or (late > CLOCK_OFF_S and own + EXACT_S < self._before):
            self._off += 1
            if self._off == _ENOUGH:
                self.problem = Problem("clock", f"the times in its lines are {_apart(read - own)} when they were read: "
                                                f"another clock, no zone, or late output; the time of reading counts")
            return max(since, read)
        self._off = 0
        if resolution > EXACT_S:
            own = min(max(read, own), own + resolution)
            if len(self._micros) >= _ENOUGH and self.problem is None:
                self.problem = Problem("coarse", f"the times in its lines are told {_coarsely(resolution)}: within "
                                                 f"that, the time of reading counts")
        return max(since, min(own, read))

    def _measure(self, micros: int) -> None:
        self._divisor = math.gcd(self._divisor, micros)
        if len(self._micros) < _ENOUGH:
            self._twice |= micros in self._micros
            self._micros += [micros] * (micros not in self._micros)


def _apart(seconds: float) -> str:
    far = f"{abs(seconds):,.0f} s" if abs(seconds) < _FAR_S else "far"
    return f"{far} {'before' if seconds > 0 else 'after'}"


def _coarsely(resolution: float) -> str:
    words = {1.0: "in whole seconds", 60.0: "in whole minutes"}
    return words.get(resolution, f"to {resolution:g} s only")


class Bursts:
    """Rounds that come many at once after a silence: the output waits in a buffer."""

    def __init__(self) -> None:
        self._rounds = self._together = self._bursts = self._quiet = 0
        self._since: float | None = None  # when the last rounds came, or the first look was

    def look(self, rounds: int, t: float, *, last: bool = False) -> Problem | None:
        """A look at a file brought so many rounds. Return what that means, once it is certain.

        Args:
            rounds: how many.
            t: when.
            last: the process has ended: a buffer that it had is written.
        """
        if self._since is None:
            self._since = t
        if not rounds:
            self._quiet += 1
            return None
        silence, quiet = t - self._since, self._quiet
        self._rounds, self._quiet, self._since = self._rounds + rounds, 0, t
        if rounds < _BURST or silence < _QUIET_S or quiet < _QUIET_LOOKS:
            return None
        self._bursts, self._together = self._bursts + 1, self._together + rounds
        whole = last and rounds == self._rounds >= _WHOLE and silence >= 1.0
        if whole or (self._bursts >= _ENOUGH - 1 and self._together >= _NORM * self._rounds):
            return Problem("buffered", f"its rounds come in bursts ({rounds} at once after {silence:.1f} s): its "
                                       f"output is buffered, and when each was made is not known", _UNBUFFERED)
        return None
