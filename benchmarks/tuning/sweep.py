"""Chooses the learning rates, the outer optimizer and the rest.

`python -m benchmarks.tuning.sweep --seeds 2` takes 40 minutes.

Coordinate by coordinate, for the synchronous run and for the decoupled one alike, each ending at its own best. What is
there stays, unless another is better by more than so few seeds can tell apart: loss alone can't decide what is there
for the sake of something else. Every result is kept in `benchmarks/tuning/sweep.jsonl` with the trainer's digest, so
that a run that was interrupted goes on where it was; results of another trainer are made anew.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean
from types import MappingProxyType
from typing import Any, NamedTuple

from benchmarks.tuning import training, trials
from benchmarks.tuning.trials import Setting, key_of
from diloco_chaos.chaos.evidence.run_folder import cache_folder
from diloco_chaos.chaos.runner.simulate import performed
from diloco_chaos.harness.base.fingerprint import source_digest
from diloco_chaos.harness.record.storage import checkpoint
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig

RESULTS = Path(__file__).with_name("sweep.jsonl")
BASE: Setting = {
    "budget": 1200, "warm_start": 300, "warmup": 180, "final_lr": 0.1, "synchronous_lr": 6e-3, "lr": 6e-3,
    "outer_lr": 0.3, "outer_momentum": 0.8, "on_receipt": "carry", "sync_every": 8, "merge": "rda",
    "fragments": 8, "anchor": "latest", "overlap": 2, "quorum": 1, "grace": 0.8, "snapshots": 1}
"""Where the search begins: where the one before it ended; written out, so that its results stay comparable when
defaults change."""
_APART = 0.003
"""Two seeds tell two losses apart that differ by as much."""

SHORT: Setting = {"budget": 800, "warm_start": 200, "warmup": 120}
"""For what decides who is merged and how, not how far training goes."""
UNEQUAL: Setting = SHORT | {"speeds": [1.0, 1.0, 0.82, 0.82], "variance": 0.1}


class Stage(NamedTuple):
    """Variants that are held against each other."""

    name: str
    mode: str
    variants: list[Setting]
    given: Mapping[str, Any] = MappingProxyType({})
    """What holds for all of them; `under`: a scenario whose faults they are given."""


_RATES = (4e-3, 6e-3, 8e-3)
STAGES = [
    Stage("synchronous learning rate", "synchronous", [{"synchronous_lr": rate} for rate in _RATES]),
    Stage("warm-up and decay", "synchronous",
          [{"warmup": warmup, "final_lr": final, "synchronous_lr": rate} for warmup, final, rate in (
              (120, 0.1, 6e-3), (180, 0.0, 6e-3), (180, 0.1, 6e-3), (180, 0.2, 6e-3), (270, 0.1, 6e-3),
              (270, 0.1, 8e-3))]),
    Stage("synchronous learning rate again", "synchronous", [{"synchronous_lr": rate} for rate in _RATES]),
    Stage("decoupled learning rate", "decoupled", [{"lr": rate} for rate in _RATES]),
    Stage("outer optimizer", "decoupled",
          [{"outer_lr": rate, "outer_momentum": mu} for rate, mu in (
              (0.6, 0.5), (0.5, 0.7), (0.35, 0.7), (0.2, 0.8), (0.3, 0.8), (0.4, 0.8), (0.15, 0.9))]),
    Stage("decoupled learning rate again", "decoupled", [{"lr": rate} for rate in _RATES]),
    Stage("merge", "decoupled", [{"merge": method} for method in ("rda", "average")]),
    Stage("receipt and H", "decoupled",
          [{"on_receipt": receipt, "sync_every": every, "fragments": fragments} for every, receipt, fragments in (
              (4, "carry", 4), (8, "overwrite", 8), (8, "carry", 8), (16, "overwrite", 8), (16, "carry", 8))]),
    Stage("tau", "decoupled", [{"overlap": 0, "quorum": 4}, *({"overlap": tau, "quorum": 1} for tau in (1, 2, 4))]),
    Stage("grace, unequal learners", "decoupled", [{"grace": grace} for grace in (0.0, 0.8, 1.0)], UNEQUAL),
    Stage("quorum, unequal learners", "decoupled", [{"quorum": quorum} for quorum in (1, 2, 4)], UNEQUAL),
    Stage("anchor and receipt, faults of `split`", "decoupled",
          [{"anchor": anchor, "on_receipt": receipt} for anchor in ("base", "latest")
           for receipt in ("overwrite", "carry")], SHORT | {"under": "split"})]
"""What loss alone decides comes first; the anchor where it makes a difference. The learning rate rises no longer than
the warm start lasts: what comes after it is trained at full rate on both sides."""


def run_one(key: str) -> float:
    """Train the configuration of this name; a synchronous run leaves its warm start for the decoupled ones."""
    setting = json.loads(key)
    config = TrainerConfig(**{name: value for name, value in setting.items() if name not in ("mode", "under")})
    if setting["mode"] == "synchronous":
        return _synchronous(config)
    if not _warm(config).exists():
        _synchronous(config)
    plan = training.planned(config, setting.get("under", ""))
    return training.ended(performed(plan, initial=checkpoint.load(_warm(config))[0])).final().loss


def _synchronous(config: TrainerConfig) -> float:
    done = training.synchronous(training.planned(config))
    checkpoint.save(_warm(config), done.snapshots[0][0], {})
    return done.final().loss


def _warm(config: TrainerConfig) -> Path:
    """Where the end of the shared synchronous steps is kept."""
    return cache_folder() / "warm" / (
        f"{config.model}-{config.corpus}-{config.budget}-{config.warm_start}-{config.warmup}-{config.final_lr}-"
        f"{config.synchronous_lr}-{config.batch}-{config.learners}-{config.seed}-{source_digest()[:12]}.safetensors")


def stage(of: Stage, base: Setting, losses: Callable[[list[Setting]], list[float]], seeds: int) -> Setting:
    """Run every variant with every seed, and return the best one, or what is in `base` where that is about as good."""
    fixed = {**base, "mode": of.mode, **of.given}
    measured = losses([fixed | variant | {"seed": seed} for variant in of.variants for seed in range(seeds)])
    means = [mean(measured[at:at + seeds]) for at in range(0, len(measured), seeds)]
    ranked = sorted(zip(means, of.variants, strict=True), key=lambda pair: pair[0])
    print(f"\n{of.name}")
    for loss, variant in ranked:
        print(f"  {loss:.4f}  {json.dumps(variant)}", flush=True)
    least, best = ranked[0]
    return next((variant for loss, variant in ranked
                 if loss <= least * (1 + _APART) and variant.items() <= base.items()),
                best)


def chosen(losses: Callable[[list[Setting]], list[float]], seeds: int) -> Setting:
    """All stages in turn, each with what those before it chose."""
    best = dict(BASE)
    for each in STAGES:
        best |= stage(each, best, losses, seeds)
    return best


def results() -> list[dict[str, Any]]:
    """The rows that are there: `setting`, `loss`, and the digest of the `trainer`."""
    return trials.rows(RESULTS)


def main() -> None:
    """Run all stages in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    trainer = source_digest()
    rows = [row for row in results() if row["trainer"] == trainer]
    RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    known = {key_of(row["setting"]): row["loss"] for row in rows}

    def row_of(key: str, loss: float) -> dict[str, Any]:
        return {"setting": json.loads(key), "loss": round(loss, 5), "trainer": trainer}
    with trials.kept(RESULTS, known, run_one, row_of, float, options.jobs) as losses:
        best = chosen(lambda settings: losses([key_of(setting) for setting in settings]), options.seeds)
    print("\nbest:", json.dumps(best))


if __name__ == "__main__":
    main()
