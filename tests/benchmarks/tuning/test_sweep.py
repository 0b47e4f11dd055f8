"""What the sweep asks for can be trained."""

import math

import pytest

from benchmarks.tuning.sweep import BASE, STAGES, chosen, results, run_one, stage
from benchmarks.tuning.trials import key_of
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig

SMALL = {"model": "micro", "corpus": "markov", "batch": 2, "fragments": 4, "budget": 40, "warm_start": 8, "warmup": 4}


@pytest.mark.parametrize("of", STAGES, ids=lambda of: of.name)
def test_every_stage_can_be_trained(of, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    setting = {**BASE, **of.given, **of.variants[-1], **SMALL, "mode": of.mode, "seed": 0}
    assert 0 < run_one(key_of(setting)) < math.log(256)


@pytest.mark.parametrize(("base", "best"), [({}, 0.2), ({"lr": 0.1}, 0.2), ({"lr": 0.3}, 0.3)],
                         ids=["nothing", "worse", "about as good"])
def test_a_stage_takes_the_best_on_average_unless_what_is_there_is_about_as_good(base, best, capsys):
    of = STAGES[0]._replace(variants=[{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3}])
    found = {(0.1, 0): 1.0, (0.1, 1): 4.0, (0.2, 0): 2.0, (0.2, 1): 2.5, (0.3, 0): 2.505, (0.3, 1): 2.0}
    taken = stage(of, base, lambda settings: [found[setting["lr"], setting["seed"]] for setting in settings], 2)
    assert taken == {"lr": best}
    assert "2.2500" in capsys.readouterr().out


def test_the_defaults_are_what_the_committed_sweep_chooses():
    known = {key_of(row["setting"]): row["loss"] for row in results()}
    assert len({row["trainer"] for row in results()}) == 1
    best = chosen(lambda settings: [known[key_of(setting)] for setting in settings], 2)
    length = {name: best.pop(name) for name in ("budget", "warm_start", "snapshots")}
    defaults = TrainerConfig(**length)
    assert best == {name: getattr(defaults, name) for name in best}
