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
    contributors: str
    """Of a merge, for people."""
    longer: str
    """What to change for a longer run."""
    unsteady: str
    """Why there is no steady state, where there is none."""
    signs: tuple[type[Event], ...] = ()
    """Events by which a worker shows that it works, beside those that are signs with every trainer."""
    steps_for_pace: float = math.inf
    """So many steps before the first fault tell a worker's pace where there is no nominal one; infinite: none do."""
    loss: str = "Held-out loss"
    """The heading of a loss curve."""
    loss_by: str = "processed tokens"
    """What a loss curve is drawn by."""
    axis: tuple[str, float] = ("million tokens", 1e6)
    """The unit of that axis, and how many tokens, or rounds, one of it is."""


TOKENS = Counting("tokens", "learner", "learners per merge", "a larger `budget`",
                  "the cluster never merged from every learner")
ROUNDS = Counting("rounds", "worker", "workers a round", "more `rounds`", "not every worker had a part in a round",
                  (Step,), 8, "Loss", "rounds", ("rounds", 1))
