"""What a trainer's event log counts training in, and the words for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from diloco_chaos.harness.record.tape.events import Event, Step


@dataclass(frozen=True)
class Counting:
    """See the module."""

    unit: Literal["tokens", "rounds"]
    worker: Literal["learner", "worker"]
    made: Literal["merge", "round"]
    """What comes again and again while training goes on."""
    taken: str
    """What becomes of a worker that has its part in one, for people."""
    contributors: str
    """Of a merge, for people."""
    longer: str
    """What to change for a longer run."""
    unsteady: str
    """Why there is no steady state, where there is none."""
    loss: str
    """The heading of a loss curve."""
    loss_by: str
    """What a loss curve is drawn by."""
    axis: tuple[str, float]
    """The unit of that axis, and how many tokens, or rounds, one of it is."""
    signs: tuple[type[Event], ...] = ()
    """Events by which a worker shows that it works, beside those that are signs with every trainer."""
    steps_for_pace: float = math.inf
    """So many steps before the first fault tell a worker's pace where there is no nominal one; infinite: none do."""


TOKENS = Counting("tokens", worker="learner", made="merge", taken="merged from", contributors="learners per merge",
                  longer="a larger `budget`", unsteady="the cluster never merged from every learner",
                  loss="Held-out loss", loss_by="processed tokens", axis=("million tokens", 1e6))
ROUNDS = Counting("rounds", worker="worker", made="round", taken="taken into a round",
                  contributors="workers a round", longer="more `rounds`",
                  unsteady="not every worker had a part in a round", loss="Loss", loss_by="rounds", axis=("rounds", 1),
                  signs=(Step,), steps_for_pace=8)
