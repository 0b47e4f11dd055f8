"""More learners, other models, unequal learners: `python -m benchmarks.tuning.variants --only sizes`; all takes hours.

Whole trainings under virtual time on the real model, from scratch unless a study says otherwise, each paired by seed
with what its study holds it against. A row that has alternatives is first trained with each of them on the seed and the
held-out windows of the tuning; only the best is reported, on other seeds and other windows. Every training is kept in
`benchmarks/tuning/variants.jsonl`, so that a study that was interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.interval import interval
from benchmarks.tuning import training, trials, tune
from benchmarks.tuning.trials import Setting, key_of
from diloco_chaos.chaos.checks.outcome import extra_tokens, first_at
from diloco_chaos.chaos.evidence.baseline import LossPoint
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.model.corpus import HeldOut

RESULTS = Path(__file__).with_name("variants.jsonl")
SEEDS = 3
_STEP = "240ms"
"""So slow that the two cores of the simulated machine are enough for sixteen learners."""
_SEQUENCES = 64
"""Of all learners together: as many for one learner as for sixteen."""
_STEPS = 400
_CURVE = 20
"""Snapshots on the way."""


class Row(NamedTuple):
    """A kind of training."""

    setting: Setting
    alternatives: Sequence[Setting] = ({},)
    """Of which the best counts."""


class Study(NamedTuple):
    """Rows that are held against one of them."""

    about: str
    rows: Mapping[str, Row]
    against: Mapping[str, str] = MappingProxyType({})
    """Row -> what it is held against; the first row, where nothing is said."""


def _scratch(side: str, **changes: Any) -> Setting:
    """A training from scratch as the tuning left it, of so many steps; lengths follow the budget."""
    tuned = tune.best(_STEPS)[side]
    stretched = tune.stretched(tuned, changes.pop("budget", _STEPS))
    del stretched["seed"]
    return stretched | {"step_time": _STEP} | changes


def _among(learners: int) -> Setting:
    return {"learners": learners, "batch": _SEQUENCES // learners}


def _rates(key: str, *rates: float) -> list[Setting]:
    return [{key: rate} for rate in rates]


def _both(model: str, rates: Mapping[str, Sequence[float]], **changes: Any) -> dict[str, Row]:
    """Both sides on another model, each at the best of as many learning rates."""
    return {f"{model}, {side}": Row(_scratch(side, model=model, **changes),
                                    _rates("synchronous_lr" if side == "synchronous" else "lr", *rates[side]))
            for side in tune.SIDES}


def _pairs(*models: str) -> dict[str, str]:
    return {f"{model}, decoupled": f"{model}, synchronous" for model in models}


def _merging() -> dict[str, Row]:
    setting = {"fragments": 8, "sync_every": 8}
    return {f"{method}, {learners} learners": Row(
        _scratch("decoupled", **_among(learners), **setting, merge=method), _rates("outer_lr", 0.5, 0.75, 1.0))
        for learners in (4, 8, 16) for method in ("average", "rda")}


_SYNCHRONOUS = "synchronous"
_PER_LEARNER = [8, 8, 16, 32]
_HALF_SLOW: Setting = {**_among(8), "speeds": [1.0] * 4 + [0.82] * 4, "variance": 0.1, "fragments": 8, "sync_every": 8}
_GUESTS = [f"learner-{number}" for number in range(5, 17)]
_LATE: Setting = {"budget": 1200, "warm_start": 300, "warmup": 720, "final_lr": 0.1, "synchronous_lr": 6e-3}
"""A shared warm start, and the best warm-up that was found for both sides."""


def studies() -> dict[str, Study]:
    """All of them, by name."""
    return {
        "learners": Study("as many tokens among more learners, one global batch", {
            _SYNCHRONOUS: Row(_scratch("synchronous")),
            **{f"{learners} learners": Row(_scratch("decoupled", **_among(learners)))
               for learners in (1, 2, 4, 8, 16)}}),
        "paper": Study("P = H = 24, eight learners, a model of eight blocks", {
            _SYNCHRONOUS: Row(_scratch("synchronous", model="deep", **_among(8)),
                              _rates("synchronous_lr", 1.2e-2, 8e-3)),
            "P = H = 24": Row(_scratch("decoupled", model="deep", **_among(8), fragments=24, sync_every=24),
                              [{"outer_lr": 1.0}, {
                                  "merge": "rda", "outer_lr": 0.3, "outer_momentum": 0.8, "momentum_ramp": 150}])}),
        "batches": Study("learners with batches of their own", {
            _SYNCHRONOUS: Row(_scratch("synchronous")),
            "alike": Row(_scratch("decoupled")),
            "unequal": Row(_scratch("decoupled", batch=_PER_LEARNER))}),
        "heterogeneous": Study("eight learners, half of them 18% slower, steps vary by 10%", {
            "all wait for all": Row(_scratch("decoupled", **_HALF_SLOW, quorum=8)),
            "and stand still": Row(_scratch("decoupled", **_HALF_SLOW, mode="streaming")),
            "one, and a grace window": Row(_scratch("decoupled", **_HALF_SLOW))}),
        "scavenging": Study("four learners, then eight, sixteen and four again", {
            "four": Row(_scratch("decoupled")),
            "four to sixteen": Row(_scratch("decoupled", learners=16, budget=_STEPS // 4) | {"faults": [
                {"join": _GUESTS[:4], "at": "12s"}, {"join": _GUESTS[4:], "at": "22s"},
                {"terminate": _GUESTS, "at": "32s"}]})}),
        "sizes": Study("other sizes, as many tokens for each parameter", {
            **_both("small", {"synchronous": (1.2e-2, 2.4e-2), "decoupled": (6e-3, 1.2e-2)}, budget=82),
            **_both("tiny", {"synchronous": (1.2e-2,), "decoupled": (6e-3,)})}, _pairs("small", "tiny")),
        "large": Study("three and a half times the parameters, as many tokens for each, half the rates",
                       _both("large", {"synchronous": (6e-3,), "decoupled": (3e-3,)}, budget=1380)),
        "experts": Study("experts, of which each token takes one, or two", {
            **_both("top1", {"synchronous": (1.2e-2,), "decoupled": (6e-3,)}),
            **_both("top2", {"synchronous": (1.2e-2,), "decoupled": (6e-3,)})}, _pairs("top1", "top2")),
        "merges": Study("radial-directional and plain averages, P = H = 8, each at its best outer rate", _merging(), {
            f"rda, {learners} learners": f"average, {learners} learners" for learners in (4, 8, 16)}),
        "late peak": Study("after a shared warm start, both at their best warm-up", {
            _SYNCHRONOUS: Row({"side": "synchronous", **_LATE, "step_time": _STEP}, [
                {}, {"synchronous_lr": 8e-3}, {"synchronous_lr": 4.5e-3}, {"final_lr": 0.0}, {"final_lr": 0.2},
                {"warmup": 840}, {"warmup": 960}, {"warmup": 840, "synchronous_lr": 8e-3}]),
            "decoupled": Row({"side": "decoupled", **_LATE, "step_time": _STEP}, [
                {}, {"fragments": 4, "sync_every": 4}, {"fragments": 2, "sync_every": 2},
                {"lr": 8e-3}, {"outer_lr": 0.5, "outer_momentum": 0.7},
                {"fragments": 4, "sync_every": 4, "lr": 8e-3}, {"warmup": 840},
                {"warmup": 840, "outer_lr": 0.15, "outer_momentum": 0.9}])})}


class Job(NamedTuple):
    """A training."""

    setting: str
    """As JSON: its name."""
    seed: int
    held_out: HeldOut


def run_one(job: Job) -> list[LossPoint]:
    """Train, and measure every snapshot."""
    setting = json.loads(job.setting)
    side, faults = setting.pop("side"), setting.pop("faults", ())
    config = TrainerConfig(**{"snapshots": _CURVE} | setting | {"seed": job.seed})
    if side == "synchronous":
        return training.in_lockstep(config, config.budget, job.held_out).curve
    return training.decoupled(config, job.held_out, faults, shared="synchronous_lr" in setting)


Curves = Callable[[Sequence[Job]], list[list[LossPoint]]]


def studied(study: Study, curves: Curves, seeds: int) -> dict[str, dict[str, Any]]:
    """Return the figures of every row of a study: row -> figure -> value."""
    chosen = _choices(study, curves)
    jobs = {(name, seed): Job(key_of(study.rows[name].setting | alternative), seed, "reported")
            for name, alternative in chosen.items() for seed in range(seeds)}
    by_job = dict(zip(jobs, curves(list(jobs.values())), strict=True))
    first = next(iter(study.rows))
    rows = {}
    for name, alternative in chosen.items():
        mine = [by_job[name, seed] for seed in range(seeds)]
        pairs = [(by_job[name, seed], by_job[study.against.get(name, first), seed]) for seed in range(seeds)]
        rows[name] = {"chosen": dict(alternative), "loss": interval([curve[-1].loss for curve in mine]),
                      "gap": interval([a[-1].loss / b[-1].loss - 1 for a, b in pairs]),
                      "extra_tokens": interval([extra_tokens(a, b, "processed") for a, b in pairs]),
                      "seconds": interval([curve[-1].t - curve[0].t for curve in mine]),
                      "time_to_same_loss": interval([_time(a, b) for a, b in pairs])}
    return rows


def _choices(study: Study, curves: Curves) -> dict[str, Setting]:
    """Every row's best alternative."""
    trials = {name: [Job(key_of(row.setting | alternative), tune.SEED, "tuning")
                     for alternative in row.alternatives] for name, row in study.rows.items()}
    jobs = [job for of_row in trials.values() if len(of_row) > 1 for job in of_row]
    losses = {job: curve[-1].loss for job, curve in zip(jobs, curves(jobs), strict=True)}
    ends = {name: [losses.get(job, 0.0) for job in of_row] for name, of_row in trials.items()}
    return {name: study.rows[name].alternatives[of_row.index(min(of_row))] for name, of_row in ends.items()}


def _time(mine: Sequence[LossPoint], its: Sequence[LossPoint]) -> float:
    """How long the one trained to the loss of whichever ends higher, as a share of the other's time to it."""
    loss = max(mine[-1].loss, its[-1].loss)
    mine_s, its_s = (first_at(curve, "t", loss) - curve[0].t for curve in (mine, its))
    return mine_s / its_s if its_s else 0.0


def results() -> dict[Job, list[LossPoint]]:
    """The trainings that are there."""
    return {Job(key_of(row["setting"]), row["seed"], row["held_out"]): [
        LossPoint(number=number, processed=processed, merged=merged, t=t, loss=loss)
        for number, (processed, merged, t, loss) in enumerate(row["curve"])] for row in trials.rows(RESULTS)}


def _row(job: Job, curve: Sequence[LossPoint]) -> dict[str, Any]:
    return {"setting": json.loads(job.setting), "seed": job.seed, "held_out": job.held_out,
            "curve": [[point.processed, point.merged, round(point.t, 3), point.loss] for point in curve]}


def _table(name: str, study: Study, rows: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(title=f"{name}: {study.about}", title_justify="left")
    for column in ("", "loss", "gap", "95%", "extra tokens", "time to same loss"):
        table.add_column(column, justify="left" if not column else "right")
    for row, of in rows.items():
        gap = of["gap"]
        sure = f"{gap['low']:+.2%} to {gap['high']:+.2%}" if "low" in gap else ""
        table.add_row(row, f"{of['loss']['mean']:.4f}", f"{gap['mean']:+.2%}", sure,
                      f"{of['extra_tokens']['mean']:+.1%}", f"{of['time_to_same_loss']['mean']:.2f}")
    return table


def main() -> None:
    """Train what is missing, and print what all comes to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(studies()))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    all_, names = studies(), options.only.split(",")
    if unknown := sorted(set(names) - set(all_)):
        parser.error(f"--only: there is no {', '.join(unknown)}; choose from {', '.join(all_)}")
    with trials.kept(RESULTS, results(), run_one, _row, lambda curve: curve[-1].loss, options.jobs) as curves:
        for name in names:
            rows = studied(all_[name], curves, options.seeds)
            Console(width=110).print(_table(name, all_[name], rows))
            print(json.dumps({name: rows}), flush=True)


if __name__ == "__main__":
    main()
