"""The reference's schedule: what docs/protocol.md says, and what the trainer, which shares no code with it, does."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.config.schedule import learning_rate, outer_step
from diloco_chaos.harness.trainer.reference.schedule import RateSchedule

SCHEDULE = RateSchedule(batches=(2, 2), context=10, budget=100, warm_start=5, warmup=20, peak=1.0, final=0.1,
                        outer_rate=0.3, momentum=0.8, momentum_ramp=10)


@pytest.mark.parametrize(("steps", "rate"), [(0, 1 / 21), (10, 11 / 21), (20, 1.0), (60, 0.55), (100, 0.1), (200, 0.1)])
def test_the_inner_rate_rises_linearly_and_falls_as_a_cosine(steps, rate):
    assert SCHEDULE.inner_rate(np.array([40.0 * steps])) == pytest.approx(rate)


def test_between_two_counts_the_highest_rate_may_be_the_peak():
    low, high = SCHEDULE.inner_rates(np.array([400.0, 1600.0]), np.array([1200.0, 2400.0]))
    assert list(low) == pytest.approx([11 / 21, 0.55])
    assert list(high) == pytest.approx([1.0, float(SCHEDULE.inner_rate(np.array([1600.0]))[0])])


@pytest.mark.parametrize(("steps", "momentum"), [(0, 0.0), (5, 0.0), (10, 0.4), (15, 0.8), (90, 0.8)])
def test_the_momentum_rises_after_the_warm_start_and_the_outer_rate_falls_with_it(steps, momentum):
    rate, found = SCHEDULE.outer(40 * steps)
    assert found == pytest.approx(momentum)
    assert rate / (1 - found) == pytest.approx(0.3 / (1 - 0.8))


SETTINGS = st.fixed_dictionaries({
    "learners": st.integers(1, 6), "batch": st.integers(1, 32), "budget": st.integers(20, 400),
    "lr": st.floats(1e-4, 1), "final_lr": st.floats(0, 1), "outer_lr": st.floats(0.01, 2),
    "outer_momentum": st.floats(0, 0.95)})


@given(SETTINGS, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1.2))
def test_the_trainer_does_the_same(settings, warmup, warm_start, ramp, done):
    budget = settings["budget"]
    more = {"warmup": int(warmup * budget), "warm_start": int(warm_start * budget / 4),
            "momentum_ramp": int(ramp * budget / 2)}
    config = TrainerConfig.model_validate({"model": "micro", "fragments": 2, **settings, **more})
    mine = RateSchedule([settings["batch"]] * settings["learners"], 16, budget, more["warm_start"], more["warmup"],
                        settings["lr"], settings["final_lr"], settings["outer_lr"], settings["outer_momentum"],
                        more["momentum_ramp"])
    assert (mine.budget_tokens, mine.warm_tokens) == (config.budget_tokens, config.warm_tokens)
    tokens = int(done * config.budget_tokens)
    assert math.isclose(mine.inner_rate(np.array([float(tokens)]))[0], learning_rate(config, tokens), rel_tol=1e-9,
                        abs_tol=1e-18)
    for here, there in zip(mine.outer(tokens), outer_step(config, tokens), strict=True):
        assert math.isclose(here, there, rel_tol=1e-9, abs_tol=1e-15)
