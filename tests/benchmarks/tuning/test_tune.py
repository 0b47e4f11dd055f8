"""The tuning is as fair to one side as to the other, and finds what there is to find."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.tuning import tune
from benchmarks.tuning.trials import key_of
from benchmarks.tuning.tune import (
    SEED,
    SIDES,
    SPACES,
    STEPS,
    configured,
    longer,
    middle,
    neighbours,
    run_one,
    stretched,
    tuned,
    whole,
)

SMALL = {"model": "micro", "corpus": "markov", "batch": 2}


def bowl(target):
    """A loss that is least where the learning rate is this one."""
    def losses(settings):
        asked.extend(settings)
        return [abs(math.log(setting.get("lr", setting.get("synchronous_lr")) / target)) for setting in settings]
    asked = []
    return losses, asked


@pytest.mark.parametrize("trials", [2, 4, 7, 9])
def test_either_side_has_as_many_trials_with_the_same_seed(trials):
    losses, asked = bowl(6e-3)
    tuned(losses, 400, trials)
    assert {side: sum(one["side"] == side for one in asked) for side in SIDES} == dict.fromkeys(SIDES, trials)
    assert {one["seed"] for one in asked} == {SEED}


@pytest.mark.parametrize("target", [6e-3, 9e-3])
def test_a_search_comes_closer_than_where_it_began(target):
    losses, _ = bowl(target)
    found = tuned(losses, 400, 13)
    for side in SIDES:
        assert losses([found[side]])[0] < losses([whole(side, middle(side), 400)])[0]


@given(st.sampled_from(SIDES), st.integers(0, 20), st.data())
def test_every_place_can_be_trained_and_so_can_its_neighbours(side, number, data):
    axes = SPACES[side].axes
    place = np.array(data.draw(st.lists(st.floats(0, 1), min_size=axes, max_size=axes)))
    for one in (place, *neighbours(side, place, number)):
        for steps in STEPS:
            config = configured(stretched(whole(side, one, STEPS[0]), steps))
            assert config.budget == steps
            assert config.warm_start <= 0.1 * steps


def test_a_longer_run_tries_as_much_on_either_side_and_takes_the_better():
    best = {side: whole(side, middle(side), 400) for side in SIDES}
    losses, asked = bowl(1e-9)
    found = longer(losses, best, 800)
    assert [sum(one["side"] == side for one in asked) for side in SIDES] == [3, 3]
    assert found["decoupled"]["lr"] == pytest.approx(0.5 * best["decoupled"]["lr"])
    assert found["synchronous"]["warmup"] == 2 * best["synchronous"]["warmup"]


@pytest.mark.parametrize("side", SIDES)
def test_either_side_can_be_run(side):
    setting = {"fragments": 4} | whole(side, middle(side), 40) | SMALL
    assert 0 < run_one(setting) < math.log(256)


@pytest.mark.parametrize("trials", ["1", "65", "1000"])
def test_more_trials_than_the_held_out_windows_can_tell_apart_are_refused(trials, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["tuning", "--trials", trials])
    with pytest.raises(SystemExit) as refused:
        tune.main()
    assert refused.value.code == 2
    assert "at most 64: 512 held-out windows tell no more of them apart" in capsys.readouterr().err


def test_what_is_reported_is_what_the_committed_trials_choose():
    for steps in STEPS:
        assert {side: setting["budget"] for side, setting in tune.best(steps).items()} == dict.fromkeys(SIDES, steps)


def test_a_trial_is_kept_by_its_setting():
    setting = whole("decoupled", middle("decoupled"), 400)
    assert json.loads(key_of(setting)) == setting
