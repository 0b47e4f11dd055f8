"""Chooses the learning rates, the outer optimizer and the rest: `python -m benchmarks.sweep --seeds 2` (an hour).

Coordinate by coordinate, for the synchronous run and for the decoupled one alike, each ending at its own best; every
result is kept in `benchmarks/sweep.jsonl`, so that a run that was interrupted goes on where it was. The last stages
choose nothing: they tell what a setting costs in loss that is there for the sake of something else.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean
from types import MappingProxyType
from typing import Any, NamedTuple

from benchmarks import training
from chaos.folder import cache_folder
from harness.trainer import checkpoint
from harness.trainer.config import TrainerConfig

RESULTS = Path(__file__).with_name("sweep.jsonl")
Setting = dict[str, Any]
BASE: Setting = {
    "budget": 800, "warm_start": 200, "warmup": 20, "final_lr": 0.0, "synchronous_lr": 4e-3, "lr": 4e-3,
    "outer_lr": 0.6, "outer_momentum": 0.5, "on_receipt": "carry", "sync_every": 8, "merge": "rda",
    "anchor": "own"}
"""Where the search begins; written out, so that its results stay comparable when defaults change."""

UNEQUAL: Setting = {"speeds": [1.0, 1.0, 0.82, 0.82], "variance": 0.1}


class Stage(NamedTuple):
    """Variants that are held against each other."""

    name: str
    mode: str
    variants: list[Setting]
    given: Mapping[str, Any] = MappingProxyType({})
    """What holds for all of them; `under`: a scenario whose faults they are given."""
    chooses: bool = True


STAGES = [
    Stage("synchronous learning rate", "synchronous",
          [{"synchronous_lr": rate} for rate in (1.5e-3, 2e-3, 3e-3, 4e-3, 6e-3, 8e-3)]),
    Stage("warm-up and decay", "synchronous",
          [{"warmup": warmup, "final_lr": final} for warmup, final in (
              (20, 0.0), (60, 0.0), (60, 0.1), (60, 0.2), (120, 0.0), (120, 0.1))]),
    Stage("synchronous learning rate again", "synchronous",
          [{"synchronous_lr": rate} for rate in (3e-3, 4e-3, 6e-3, 8e-3, 1.2e-2)]),
    Stage("decoupled learning rate", "decoupled", [{"lr": rate} for rate in (4e-3, 6e-3, 8e-3, 1.2e-2)]),
    Stage("outer optimizer", "decoupled",
          [{"outer_lr": rate, "outer_momentum": mu} for rate, mu in (
              (1.0, 0.0), (0.6, 0.5), (0.35, 0.7), (0.5, 0.7), (0.2, 0.8), (0.3, 0.8), (0.15, 0.9))]),
    Stage("decoupled learning rate again", "decoupled", [{"lr": rate} for rate in (4e-3, 6e-3, 8e-3, 1.2e-2)]),
    Stage("merge", "decoupled", [{"merge": method} for method in ("rda", "average")]),
    Stage("receipt and H", "decoupled",
          [{"on_receipt": receipt, "sync_every": every} for every in (8, 16) for receipt in ("overwrite", "carry")]),
    Stage("tau", "decoupled", [{"overlap": 0, "quorum": 4}, {"overlap": 1}, {"overlap": 2}, {"overlap": 4}],
          chooses=False),
    Stage("grace, unequal learners", "decoupled", [{"grace": grace} for grace in (0.0, 0.4, 0.8, 1.0)], UNEQUAL,
          chooses=False),
    Stage("quorum, unequal learners", "decoupled", [{"quorum": quorum} for quorum in (1, 2, 3, 4)], UNEQUAL,
          chooses=False),
    *(Stage(f"anchor and receipt, faults of `{under}`", "decoupled",
            [{"anchor": anchor, "on_receipt": receipt} for anchor in ("own", "previous")
             for receipt in ("overwrite", "carry")], {"under": under, "overlap": overlap}, chooses=False)
      for under, overlap in (("split", 2), ("wan", 4)))]
"""What loss alone decides comes first; the anchor where it makes a difference."""


def run_one(job: tuple[str, Setting]) -> tuple[str, float]:
    """Train one configuration; a synchronous run leaves its warm start for the decoupled ones."""
    key, setting = job
    config = TrainerConfig(**{name: value for name, value in setting.items() if name not in ("mode", "under")})
    if setting["mode"] == "synchronous":
        return key, training.synchronous(config)[0]
    return key, training.decoupled(config, warm_start(config), setting.get("under", ""))


def warm_start(config: TrainerConfig) -> Any:
    """Parameters after the shared synchronous steps, trained once per seed and learning rate."""
    path = cache_folder() / "warm" / (
        f"{config.model}-{config.corpus}-{config.budget}-{config.warm_start}-{config.warmup}-{config.final_lr}-"
        f"{config.synchronous_lr}-{config.batch}-{config.learners}-{config.seed}.safetensors")
    if not path.exists():
        checkpoint.save(path, training.synchronous(config)[1], {})
    return checkpoint.load(path)[0]


def stage(of: Stage, base: Setting, seeds: int,
          run: Callable[[list[tuple[str, Setting]]], dict[str, float]]) -> Setting:
    """Run every variant with every seed and return the best one."""
    fixed = {**base, "mode": of.mode, **of.given}
    jobs = {json.dumps(fixed | variant | {"seed": seed}, sort_keys=True): (index, seed)
            for index, variant in enumerate(of.variants) for seed in range(seeds)}
    losses = run([(key, json.loads(key)) for key in jobs])
    means = [mean(losses[key] for key, (owner, _) in jobs.items() if owner == index)
             for index in range(len(of.variants))]
    print(f"\n{of.name}")
    for variant, loss in sorted(zip(of.variants, means, strict=True), key=lambda pair: pair[1]):
        print(f"  {loss:.4f}  {json.dumps(variant)}", flush=True)
    return of.variants[means.index(min(means))]


def main() -> None:
    """Run all stages in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    known = {}
    if RESULTS.exists():
        known = {json.dumps(row["setting"], sort_keys=True): row["loss"]
                 for row in map(json.loads, RESULTS.read_text().splitlines())}

    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool, open(RESULTS, "a") as file:
        def run(jobs: list[tuple[str, Setting]]) -> dict[str, float]:
            missing = [job for job in jobs if job[0] not in known]
            for key, loss in pool.imap_unordered(run_one, missing):
                known[key] = loss
                file.write(json.dumps({"setting": json.loads(key), "loss": round(loss, 5)}) + "\n")
                file.flush()
            return known
        best = dict(BASE)
        for each in STAGES:
            chosen = stage(each, best, options.seeds, run)
            best |= chosen if each.chooses else {}
    print("\nbest:", json.dumps(best))


if __name__ == "__main__":
    main()
