"""What the sweep asks for can be trained."""

import json
import math

import pytest

from benchmarks.sweep import BASE, STAGES, run_one, stage

SMALL = {"model": "micro", "corpus": "markov", "batch": 2, "fragments": 4, "budget": 40, "warm_start": 8, "warmup": 4}


@pytest.mark.parametrize("of", STAGES, ids=lambda of: of.name)
def test_every_stage_can_be_trained(of, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    losses = dict(run_one((json.dumps(setting), setting)) for variant in of.variants[-1:]
                  for setting in [{**BASE, **SMALL, "mode": of.mode, "seed": 0, **of.given, **variant}])
    assert all(0 < loss < math.log(256) for loss in losses.values())


def test_a_stage_returns_the_variant_that_is_best_on_average_over_the_seeds(capsys):
    of = STAGES[0]._replace(variants=[{"lr": 0.1}, {"lr": 0.2}])
    losses = {(0.1, 0): 1.0, (0.1, 1): 4.0, (0.2, 0): 2.0, (0.2, 1): 2.5}
    chosen = stage(of, {}, 2, lambda jobs: {key: losses[setting["lr"], setting["seed"]] for key, setting in jobs})
    assert chosen == {"lr": 0.2}
    assert "2.2500" in capsys.readouterr().out
