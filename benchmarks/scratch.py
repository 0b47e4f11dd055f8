"""From scratch, without a warm start: how the gap to the synchronous run goes with the tokens and the local batch.

Whole trainings under virtual time on the real model, paired by seed; the synchronous run at the best of three learning
rates, for every length, batch and seed. One decoupled run of each in real time confirms them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from rich.console import Console

from benchmarks.interval import interval
from benchmarks.training import ended, synchronous, with_cluster
from chaos import drawing
from chaos.plan import Plan, freeze
from chaos.run import Result
from chaos.scenario import load
from chaos.simulate import performed
from harness.trainer.config import TrainerConfig

POINTS = ((16, 200), (16, 400), (16, 800), (16, 1600), (32, 400), (64, 200))
"""(sequences per learner and step, steps)."""
_MARKS = {16: ("●", "bold green"), 32: ("+", "cyan"), 64: ("x", "magenta")}
_DEADLINE_S = 400.0
_RATE = 8e-3
"""The decoupled run's learning rate."""
_RATES = (4e-3, 8e-3, 1.6e-2)
"""Those of the synchronous run."""
_WORKERS = 2
Point = tuple[int, int, int]


def measure(perform: Callable[[Plan], Result], seeds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """For every batch and length: the gap at equal processed tokens, and the loss that the synchronous run ends at.

    `perform(plan)` runs one in real time: the first seed of each, which confirms what virtual time says.
    """
    points = [(seed, batch, steps) for seed in range(seeds) for batch, steps in POINTS]
    ends: dict[Point, tuple[float, float]] = {}
    with ProcessPoolExecutor(_WORKERS) as pool:
        for point, (loss, baseline) in zip(points, pool.map(_ends, points), strict=True):
            seed, batch, steps = point
            say(f"  from scratch, seed {seed}, batch {batch}, {steps} steps: {loss:.4f} against {baseline:.4f}")
            ends[point] = loss, baseline
    found = {(batch, steps): _figures([ends[seed, batch, steps] for seed in range(seeds)],
                                      ended(perform(_paced((0, batch, steps))))) for batch, steps in POINTS}
    say(curve({point: figures["gap"]["mean"] for point, figures in found.items()}))
    return {f"batch_{batch}_steps_{steps}": figures for (batch, steps), figures in found.items()}


def curve(gaps: Mapping[tuple[int, int], float]) -> str:
    """How the gap, in percent, goes with the tokens, for every batch; for 80 columns."""
    lines = [drawing.Curve(f"batch {batch}", *_MARKS[batch], [
        (TrainerConfig(batch=batch, budget=steps).budget_tokens / 1e6, 100 * gap)
        for (of, steps), gap in gaps.items() if of == batch]) for batch in _MARKS]
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(drawing.chart(lines, 78, 13, "million tokens"))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _figures(ends: list[tuple[float, float]], real: Result) -> dict[str, Any]:
    baselines = [baseline for _, baseline in ends]
    return {"gap": interval([loss / baseline - 1 for loss, baseline in ends]), "synchronous": interval(baselines),
            "in_real_time_seed_0": round(real.history.final.loss / baselines[0] - 1, 5)}


def _ends(point: Point) -> tuple[float, float]:
    """Losses at the end: decoupled, and synchronous at its best learning rate."""
    plan = _plan(point)
    return ended(performed(plan)).final().loss, min(
        synchronous(with_cluster(plan, synchronous_lr=rate)).final().loss for rate in _RATES)


def _plan(point: Point) -> Plan:
    seed, batch, steps = point
    plan = with_cluster(freeze(load("no-fault")[0], seed), batch=batch, budget=steps, warm_start=0,
                        warmup=TrainerConfig(budget=steps).warmup, lr=_RATE)
    return plan.model_copy(update={"deadline": _DEADLINE_S})


def _paced(point: Point) -> Plan:
    """For real time, where a larger batch takes longer."""
    plan = _plan(point)
    longer = plan.cluster.batch / TrainerConfig.model_fields["batch"].default
    return with_cluster(plan, step_time=f"{longer * plan.cluster.step_time}s")
