"""The global clock t, which says what is due: it follows the progress of the living, never how far anybody once was.

Every learner has a place on the clock, which goes ahead with its own inner steps. t is the K-th largest place among the
live learners, and never goes back. Nobody's place is further from t than the slack: who has fallen behind has no debt,
and who ran ahead has no credit, unless it stands and waits for the others, as where K = M. So whoever is K-th quickest
now drives the clock, at most `slack + 1` of its own steps after the one that drove it before has died, stands still or
became slow; one who comes back, or joins, begins at t.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Protocol

_FOR_VARIANCE = 14
"""Steps of slack for the square of the share by which steps may vary. Learners of one speed whose steps are of uneven
length change places, as random walks do, and with too little slack each change moves the clock: with one step of it the
clock of eight learners is 1.3% too quick at a variance of 10%, and 71% at one of 90%."""


class Placed(Protocol):
    """A learner, as far as the clock is concerned."""

    place: int
    """Steps on the global clock."""

    @property
    def live(self) -> bool:
        """Connected now."""


def slack_of(variance: float) -> int:
    """Steps that a learner's place may be away from t, at least one: reports come once a step, at any phase of others'.

    `variance`: by up to how much steps take more or less time, as a share.
    """
    return max(1, math.ceil(_FOR_VARIANCE * variance ** 2))


def progressed(learner: Placed, steps: int, t: int, lead: int) -> None:
    """A learner has made so many more inner steps; its place is ahead of t by at most the `lead`."""
    learner.place = min(learner.place + max(0, steps), t + lead)


def ticked(learners: Iterable[Placed], quorum: int, t: int, slack: int) -> int:
    """t as it is now; where it has moved, those who are further behind than the slack are drawn along."""
    live = [learner for learner in learners if learner.live]
    places = sorted((learner.place for learner in live), reverse=True)
    if len(places) < quorum or places[quorum - 1] <= t:
        return t
    now = places[quorum - 1]
    for learner in live:
        learner.place = max(learner.place, now - slack)
    return now
