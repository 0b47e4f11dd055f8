"""Many replications of several fleets: means, and how sure they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, mean, stdev

from pydantic import BaseModel, ConfigDict

from diloco_chaos.harness.base.errors import UserError
from diloco_chaos.harness.base.workers import Numbered, Task, Workers
from diloco_chaos.harness.fleet.fleet import Fleet
from diloco_chaos.harness.fleet.simulation import ReplicationOutcome, simulate

_CONFIDENCE = 0.95
MOST_EVENTS = 20_000_000
"""Losses, returns and stragglers of one replication, beyond which it would want gigabytes of memory."""
NOTHING = 5e-4
"""A goodput that is less than this is nothing, to a tenth of a percent."""


class FleetError(UserError):
    """A fleet that can't be simulated; the message says why, and what to change."""


class Trial(Numbered):
    """One replication of several fleets, which have the same chance."""

    fleets: tuple[Fleet, ...]
    horizon: float
    """Seconds."""
    seed: int


class TriedReplications(Numbered):
    """The outcomes of the replications of a trial."""

    outcomes: tuple[ReplicationOutcome, ...]


class Estimate(BaseModel):
    """A mean, and half of its 95% confidence interval."""

    model_config = ConfigDict(frozen=True)

    mean: float
    half: float | None
    """None: one replication tells nothing of that."""


class Summary(BaseModel):
    """The summary of all replications of a fleet, in shares of its time."""

    model_config = ConfigDict(frozen=True)

    fleet: Fleet
    goodput: Estimate
    uptime: Estimate
    capacity: Estimate
    states: dict[str, float]
    """What became of the time of all chips, on average."""
    interruptions: float
    """In a replication, on average."""


def try_all(trial: Trial) -> TriedReplications:
    """Simulate all fleets of a trial: a worker does this."""
    outcomes = tuple(simulate(fleet, trial.horizon, trial.seed) for fleet in trial.fleets)
    return TriedReplications(number=trial.number, outcomes=outcomes)


TRIALS = Task(try_all, Trial, TriedReplications)


def replicated(fleets: Sequence[Fleet], horizon: float, count: int, seed: int,
               workers: Workers[Trial, TriedReplications]) -> list[Summary]:
    """Return a summary of `count` replications of each fleet; the results depend on the seed alone.

    Raises:
        FleetError: one has more events than can be held.
    """
    for fleet in fleets:
        _affordable(fleet, horizon)
    jobs = [Trial(number=number, fleets=tuple(fleets), horizon=horizon, seed=seed + number) for number in range(count)]
    tried = sorted(workers.run(jobs), key=lambda trial: trial.number)
    return [_summed_up(fleet, [trial.outcomes[index] for trial in tried]) for index, fleet in enumerate(fleets)]


def _affordable(fleet: Fleet, horizon: float) -> None:
    stragglers = fleet.chips / fleet.straggler_mtbf if fleet.straggler_mtbf else 0.0
    events = 2 * horizon * (fleet.interruptions_per_s + stragglers)
    if events > MOST_EVENTS:
        raise FleetError(f"{events:.1e} losses, returns and stragglers in {horizon / 86_400:.3g} days are more than "
                         f"the {MOST_EVENTS:.0e} that are simulated: take fewer days, or a longer time between them")


def _summed_up(fleet: Fleet, outcomes: Sequence[ReplicationOutcome]) -> Summary:
    states = {name: mean(outcome.states[name] for outcome in outcomes) for name in outcomes[0].states}
    return Summary(
        fleet=fleet, goodput=estimate([outcome.goodput for outcome in outcomes]),
        uptime=estimate([outcome.uptime for outcome in outcomes]),
        capacity=estimate([outcome.capacity for outcome in outcomes]),
        states=states, interruptions=mean(outcome.interruptions for outcome in outcomes))


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean and its confidence interval's half width, with Student's quantile by the first terms of its
    expansion in the normal one (Abramowitz and Stegun 26.7.5)."""
    if len(values) < 2:
        return Estimate(mean=mean(values), half=None)
    z, free = NormalDist().inv_cdf((1 + _CONFIDENCE) / 2), len(values) - 1
    quantile = z + (z ** 3 + z) / (4 * free) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * free ** 2)
    return Estimate(mean=mean(values), half=quantile * stdev(values) / math.sqrt(len(values)))
