"""From scratch, without a warm start: how the gap to the synchronous run goes with the tokens and the local batch.

Whole trainings under virtual time on the real model, paired by seed; the synchronous run at the best of three learning
rates, for every length, batch and seed.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from benchmarks.loss import interval, with_cluster
from benchmarks.training import ended
from chaos.plan import freeze
from chaos.references import synchronous
from chaos.scenario import load
from chaos.simulate import performed

POINTS = ((16, 200), (16, 400), (16, 800), (64, 200))
"""(sequences per learner and step, steps)."""
_FACTORS = (0.5, 1.0, 2.0)
_WARM_UP = 0.15
_WORKERS = 2
Point = tuple[int, int, int]


def measure(seeds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """For every batch and length: the gap at equal processed tokens, and the loss that the synchronous run ends at."""
    points = [(seed, batch, steps) for seed in range(seeds) for batch, steps in POINTS]
    gaps: dict[tuple[int, int], list[tuple[float, float]]] = {}
    with ProcessPoolExecutor(_WORKERS) as pool:
        for (seed, batch, steps), (loss, baseline) in zip(points, pool.map(_ends, points), strict=True):
            say(f"  from scratch, seed {seed}, batch {batch}, {steps} steps: {loss:.4f} against {baseline:.4f}")
            gaps.setdefault((batch, steps), []).append((loss, baseline))
    return {f"batch_{batch}_steps_{steps}": {
        "gap": interval([loss / baseline - 1 for loss, baseline in each]),
        "synchronous": interval([baseline for _, baseline in each])} for (batch, steps), each in gaps.items()}


def _ends(point: Point) -> tuple[float, float]:
    """Losses at the end: decoupled, and synchronous at its best learning rate."""
    seed, batch, steps = point
    plan = with_cluster(freeze(load("no-fault")[0], seed), batch=batch, budget=steps, warm_start=0,
                        warmup=round(_WARM_UP * steps))
    rates = [plan.cluster.synchronous_lr * factor for factor in _FACTORS]
    return ended(performed(plan)).curve()[-1].loss, min(
        ended(performed(synchronous(with_cluster(plan, synchronous_lr=rate)))).curve()[-1].loss for rate in rates)
