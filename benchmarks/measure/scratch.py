"""From scratch, without a shared warm start: how the gap to the synchronous run goes with the length of training.

Whole trainings on the real model, paired by seed, the decoupled ones under virtual time; both sides with the settings
that `benchmarks.tuning.tune` found for that length with as many trials of each, on other seeds and other held-out
windows. One decoupled run of each length in real time confirms them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from rich.console import Console

from benchmarks.interval import interval
from benchmarks.tuning import training, tune
from diloco_chaos.chaos.checks.outcome import extra_tokens
from diloco_chaos.chaos.evidence.baseline import LossPoint
from diloco_chaos.chaos.report import charts
from diloco_chaos.chaos.runner.run import Result
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig

LENGTHS = (400, 800, 1600)
"""Steps."""
_SNAPSHOTS = 40
"""Of the synchronous run's curve, on which tokens are counted."""
_DEADLINE_S = 600.0
_WORKERS = 2
Job = tuple[str, int, int]
"""Side, steps, seed."""


def measure(perform: Callable[[Plan], Result], seeds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """For every length: the gap at equal processed tokens, in percent and in extra tokens, and the synchronous loss.

    `perform(plan)` runs one in real time: the first seed of each, which confirms what virtual time says.
    """
    jobs = [(side, steps, seed) for seed in range(seeds) for steps in LENGTHS for side in tune.SIDES]
    curves: dict[Job, list[LossPoint]] = {}
    with ProcessPoolExecutor(_WORKERS) as pool:
        for job, curve_ in zip(jobs, pool.map(trained, jobs), strict=True):
            say(f"  from scratch, {job}: {curve_[-1].loss:.4f}")
            curves[job] = curve_
    by_length = {steps: figures([(curves["decoupled", steps, seed], curves["synchronous", steps, seed])
                                 for seed in range(seeds)]) for steps in LENGTHS}
    for steps in LENGTHS:
        real = training.ended(perform(_paced(steps))).history.final.loss
        by_length[steps]["in_real_time_seed_0"] = round(real / curves["synchronous", steps, 0][-1].loss - 1, 5)
    say(curve({steps: of["gap"]["mean"] for steps, of in by_length.items()}))
    return {f"steps_{steps}": of for steps, of in by_length.items()}


def figures(pairs: Sequence[tuple[Sequence[LossPoint], Sequence[LossPoint]]]) -> dict[str, Any]:
    """Of pairs of curves, the decoupled one first."""
    return {"gap": interval([mine[-1].loss / its[-1].loss - 1 for mine, its in pairs]),
            "extra_tokens": interval([extra_tokens(mine, its, "processed") for mine, its in pairs]),
            "synchronous": interval([its[-1].loss for _, its in pairs])}


def trained(job: Job) -> list[LossPoint]:
    """The held-out loss on the windows that figures are reported on; of a decoupled run its end alone."""
    side, steps, seed = job
    config = configured(side, steps, seed)
    if side == "synchronous":
        return training.in_lockstep(config, steps).curve
    return training.decoupled(config)[-1:]


def configured(side: str, steps: int, seed: int) -> TrainerConfig:
    """What the tuning found for this length."""
    setting = tune.best(steps)[side] | {"seed": seed}
    return tune.configured(setting | ({"snapshots": _SNAPSHOTS} if side == "synchronous" else {}))


def curve(gaps: Mapping[int, float]) -> str:
    """How the gap, in percent, goes with the tokens; for 80 columns."""
    line = charts.Curve("from scratch", "●", "bold green", [
        (TrainerConfig(budget=steps).budget_tokens / 1e6, 100 * gap) for steps, gap in gaps.items()])
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(charts.chart([line], 78, 13, "million tokens"))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _paced(steps: int) -> Plan:
    """For real time; its data-parallel first steps are those of a synchronous run at its own learning rate."""
    config = configured("decoupled", steps, 0)
    plan = training.planned(config.model_copy(update={"synchronous_lr": config.lr, "step_time": 0.1}))
    return plan.model_copy(update={"deadline": _DEADLINE_S})
