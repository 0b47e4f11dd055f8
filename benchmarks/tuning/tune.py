"""Tunes the run from scratch, synchronous and decoupled, with as many trials each: `python -m benchmarks.tuning.tune`.

A random local search, the same for both: the middle of the space, three places around it and the best of a pilot of a
few runs come first, then rounds of neighbours of the best so far, ever closer to it. Longer runs try what was best for
the shorter ones, at its own learning rate and at lower ones. The seed and the held-out windows are of no figure that is
reported. Every trial is kept in `benchmarks/tuning/tuning.jsonl`, so that a search that was interrupted goes on where
it was.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.tuning import training, trials
from benchmarks.tuning.trials import Setting, key_of
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.model.corpus import HELD_OUT_WINDOWS

RESULTS = Path(__file__).with_name("tuning.jsonl")
Place = npt.NDArray[np.float64]
"""In the unit cube."""
SIDES = ("synchronous", "decoupled")
SEED = 100
"""Of no figure that is reported."""
TRIALS = 5
"""Of either side, for the shortest run."""
PILOT: Mapping[str, Setting] = {
    "synchronous": {"synchronous_lr": 1.2e-2, "warmup": 0.6, "final_lr": 0.1},
    "decoupled": {"lr": 6e-3, "warmup": 0.5, "final_lr": 0.1, "outer_lr": 1.0, "outer_momentum": 0.0,
                  "momentum_ramp": 0, "sync_every": 2, "sync_growth": 0, "fragments": 2, "warm_start": 0.1,
                  "merge": "average"}}
"""Lengths as shares of the run."""
STEPS = (400, 800, 1600)
"""Lengths, the shortest first."""
_ROUND = 3
"""Neighbours that are tried at a time."""
_MOVES = 0.7
"""Share of a place's coordinates in which a neighbour differs from it."""
_WIDTH = 0.25
"""How far the first neighbours lie away, in the unit cube; those of each further round two thirds as far."""
_WINDOWS_PER_TRIAL = 8
"""Held-out windows that choose among trials: with fewer the best is the luckiest."""
_LOWER = (1.0, 0.7, 0.5)
"""Learning rates that a longer run tries, as shares of the shorter one's."""
_UNTRIED: Mapping[str, float] = {"synchronous": -0.5, "decoupled": 0.0}
"""Where nothing was tried for a longer run: the power of its length with which the learning rate goes. In the sweep of
1,200 steps the synchronous run is best at half of what is best for 400 steps, the decoupled run at the same rate."""


def synchronous(place: Place, steps: int) -> Setting:
    """A point of the synchronous run's space. Its middle: a rate of 1e-2 that rises for 55% of the run."""
    rate, warmup, final = place
    return {"synchronous_lr": _round(4e-3 * 6.25 ** rate), "warmup": round((0.25 + 0.6 * warmup) * steps),
            "final_lr": _round(0.2 * final)}


def decoupled(place: Place, steps: int) -> Setting:
    """A point of the decoupled run's space. Its middle: a rate of 5e-3 that rises as long, plain averages of two
    fragments every two steps, no momentum, and a tenth of the run taken in data parallelism first."""
    rate, warmup, final, step, momentum, ramp, every, growth, fragments, merge, first = place
    mu = _round(max(0.0, 0.8 * momentum - 0.4))
    begun = round(min(0.1, 0.2 * first) * steps)
    grows = round(max(0.0, growth - 0.6) * (steps - begun))
    return {"lr": _round(2.5e-3 * 4 ** rate), "warmup": round((0.25 + 0.6 * warmup) * steps),
            "final_lr": _round(0.2 * final), "outer_lr": _round((0.7 + 0.6 * step) * (1 - mu)), "outer_momentum": mu,
            "momentum_ramp": round(0.5 * ramp * (steps - begun)) if mu else 0, "sync_every": _one(every, (4, 2, 8)),
            "sync_growth": grows, "fragments": _one(fragments, (4, 2, 8)), "warm_start": begun,
            "merge": _one(merge, ("rda", "average"))}


def _one(coordinate: float, options: Sequence[Any]) -> Any:
    return options[min(int(coordinate * len(options)), len(options) - 1)]


def _round(value: float) -> float:
    """To three digits."""
    return float(f"{value:.3g}")


class Side(NamedTuple):
    """What is tuned."""

    axes: int
    at: Callable[[Place, int], Setting]


SPACES: Mapping[str, Side] = {"synchronous": Side(3, synchronous), "decoupled": Side(11, decoupled)}


def middle(side: str) -> Place:
    """Where a search begins."""
    return np.full(SPACES[side].axes, 0.5)


def neighbours(side: str, best: Place, number: int) -> list[Place]:
    """What a search tries next: places around the best so far, those of the first round (0) the farthest away."""
    random = np.random.default_rng([number, SPACES[side].axes])
    width = _WIDTH * (2 / 3) ** number
    shape = (_ROUND, len(best))
    moved = best + width * random.standard_normal(shape) * (random.random(shape) < _MOVES)
    return list(np.clip(moved, 0, 1))


Losses = Callable[[list[Setting]], list[float]]


class Search:
    """The trials of one side, round by round."""

    def __init__(self, side: str, steps: int, trials: int) -> None:
        self._side, self._steps, self._trials = side, steps, trials
        self._places: list[Place] = []
        self.settings: list[Setting] = []
        self.losses: list[float] = []

    def more(self, number: int) -> list[Setting]:
        """What to try in this round: first the pilot's best, the middle and its neighbours, then those of the best."""
        if not number:
            self.settings, self._places = [pilot(self._side, self._steps)], [middle(self._side)]
        best = self._places[int(np.argmin(self.losses[1:]))] if number else self._places[0]
        self._places = [*self._places, *neighbours(self._side, best, number)][:self._trials - 1]
        self.settings += [whole(self._side, place, self._steps) for place in self._places[len(self.settings) - 1:]]
        return self.settings[len(self.losses):]

    def best(self) -> Setting:
        """So far."""
        return self.settings[int(np.argmin(self.losses))]


def tuned(losses: Losses, steps: int, trials: int) -> dict[str, Setting]:
    """Return the best setting of each side, after so many trials of each."""
    searches = {side: Search(side, steps, trials) for side in SIDES}
    for number in count():
        new = {side: search.more(number) for side, search in searches.items()}
        if not any(new.values()):
            break
        measured = iter(losses([setting for side in SIDES for setting in new[side]]))
        for side, search in searches.items():
            search.losses += [next(measured) for _ in new[side]]
    return {side: search.best() for side, search in searches.items()}


def pilot(side: str, steps: int) -> Setting:
    """What a pilot of a few runs had found, as a trial."""
    lengths = {name: round(share * steps) for name, share in PILOT[side].items() if name in ("warmup", "warm_start")}
    return {"side": side, "budget": steps, "seed": SEED, **PILOT[side], **lengths}


def whole(side: str, place: Place, steps: int) -> Setting:
    """A trial: everything that is not a default."""
    return {"side": side, "budget": steps, "seed": SEED, **SPACES[side].at(place, steps)}


def longer(losses: Losses, best: Mapping[str, Setting], steps: int) -> dict[str, Setting]:
    """The best setting of either side for a longer run: a shorter one's, at this learning rate or at a lower one."""
    trials = {side: [stretched(best[side], steps, share) for share in _LOWER] for side in SIDES}
    measured = losses([trial for side in SIDES for trial in trials[side]])
    return {side: trials[side][int(np.argmin(measured[at:at + len(_LOWER)]))]
            for side, at in zip(SIDES, range(0, len(measured), len(_LOWER)), strict=True)}


def stretched(setting: Setting, steps: int, share: float = 1.0) -> Setting:
    """The same for a run of another length: schedules take the same part of it."""
    longer_by = steps / setting["budget"]
    rate = "synchronous_lr" if setting["side"] == "synchronous" else "lr"
    lengths = {name: round(setting[name] * longer_by)
               for name in ("warmup", "warm_start", "momentum_ramp", "sync_growth") if name in setting}
    return setting | lengths | {"budget": steps, rate: _round(share * setting[rate])}


def run_one(setting: Setting) -> float:
    """Train one trial, and measure it on the windows that settings are chosen on."""
    config = configured(setting)
    if setting["side"] == "synchronous":
        return training.in_lockstep(config, config.budget, "tuning").curve[-1].loss
    return training.decoupled(config, "tuning")[-1].loss


def configured(setting: Setting) -> TrainerConfig:
    """What a trial trains."""
    return TrainerConfig(**{"snapshots": 1} | {name: value for name, value in setting.items() if name != "side"})


def results() -> dict[str, float]:
    """The trials that are there, by name, and their losses."""
    return {key_of(row["setting"]): row["loss"] for row in trials.rows(RESULTS)}


def best(steps: int) -> dict[str, Setting]:
    """Return the settings that the committed trials choose for a run of so many steps: side -> setting.

    Raises:
        KeyError: a trial is not there: `python -m benchmarks.tuning.tune`.
    """
    known = results()
    losses: Losses = lambda settings: [known[key_of(setting)] for setting in settings]  # noqa: E731
    chosen = tuned(losses, STEPS[0], TRIALS)
    for length in STEPS[1:STEPS.index(steps) + 1]:
        tried = any(json.loads(key)["budget"] == length for key in known)
        chosen = longer(losses, chosen, length) if tried else {
            side: stretched(setting, length, (length / setting["budget"]) ** _UNTRIED[side])
            for side, setting in chosen.items()}
    return chosen


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS, help="of either side, for the shortest run")
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS[:1], help="lengths, the shortest first")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    most = HELD_OUT_WINDOWS // _WINDOWS_PER_TRIAL
    if not 2 <= options.trials <= most:
        parser.error(f"--trials {options.trials}: at least 2, of which the best two are run again, and at most {most}: "
                     f"{HELD_OUT_WINDOWS} held-out windows tell no more of them apart")
    return options


def main() -> None:
    """Search, and say what is best."""
    options = _options()
    with trials.kept(RESULTS, results(), _run_named, _row, float, options.jobs) as by_name:
        losses: Losses = lambda settings: by_name([key_of(setting) for setting in settings])  # noqa: E731
        best = tuned(losses, options.steps[0], options.trials)
        for steps in options.steps[1:]:
            best = longer(losses, best, steps)
    for side, setting in best.items():
        print(f"\nbest {side}: {json.dumps(setting)}")


def _run_named(key: str) -> float:
    return run_one(json.loads(key))


def _row(key: str, loss: float) -> dict[str, Any]:
    return {"setting": json.loads(key), "loss": loss}


if __name__ == "__main__":
    main()
