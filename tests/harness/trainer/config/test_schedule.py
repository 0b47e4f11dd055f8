"""What changes as training goes on follows the processed tokens, and ends where it should."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from diloco_chaos.harness.trainer.algorithm.outer_optimizer import OuterStep
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.config.schedule import outer_step, steps_between_merges

CONFIG = TrainerConfig(outer_lr=0.3, outer_momentum=0.8, momentum_ramp=200, sync_every=8, sync_from=2, sync_growth=300,
                       budget=800, warm_start=100)


def tokens(steps, config=CONFIG):
    """Processed by all learners in so many steps each."""
    return round(steps * config.tokens_of_all)


def test_momentum_begins_at_rest_after_the_warm_start_and_ends_at_exactly_what_is_set():
    assert outer_step(CONFIG, tokens(100)).momentum == 0
    assert outer_step(CONFIG, tokens(200)).momentum == pytest.approx(0.4)
    assert outer_step(CONFIG, tokens(300)) == outer_step(CONFIG, tokens(800)) == OuterStep(0.3, 0.8)


@given(st.integers(0, tokens(800)))
def test_an_outer_gradient_moves_the_model_as_far_in_the_long_run_at_every_momentum(processed):
    step = outer_step(CONFIG, processed)
    assert step.lr / (1 - step.momentum) == pytest.approx(1.5)


def test_h_grows_from_its_start_to_exactly_what_is_set():
    assert [steps_between_merges(CONFIG, tokens(steps)) for steps in (0, 100, 250, 400, 800)] == [2, 2, 5, 8, 8]


@given(st.integers(0, tokens(800)))
def test_without_schedules_both_stand(processed):
    config = TrainerConfig(warm_start=100)
    assert outer_step(config, processed) == OuterStep(config.outer_lr, config.outer_momentum)
    assert steps_between_merges(config, processed) == config.sync_every


@pytest.mark.parametrize(("settings", "why"), [
    ({"sync_growth": 100}, "sync_growth 100: H never reaches 8 in the 100 steps after the warm start"),
    ({"momentum_ramp": 101}, "momentum_ramp 101: the outer momentum never reaches 0.8 in the 100 steps after the warm"),
    ({"sync_growth": 50, "sync_from": 9}, "sync_from 9 is more than sync_every 8"),
    ({"sync_from": 2}, "sync_from 2 means nothing without sync_growth"),
    ({"sync_growth": 50, "overlap": 0, "quorum": 4}, "learners that wait for a merge"),
    ({"sync_growth": 50, "mode": "streaming"}, "learners that wait for a merge")])
def test_a_schedule_that_can_not_be_kept_is_refused_with_a_reason(settings, why):
    with pytest.raises(ValidationError) as refused:
        TrainerConfig(budget=120, warm_start=20, **settings)
    assert why in str(refused.value)


@pytest.mark.parametrize(("mode", "at_once"), [("decoupled", 1), ("streaming", 1), ("diloco", 4), ("data_parallel", 1)])
def test_only_diloco_exchanges_all_fragments_at_one_step(mode, at_once):
    assert TrainerConfig(mode=mode, fragments=4).merges_at_once == at_once
