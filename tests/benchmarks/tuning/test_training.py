"""What the benches train without nodes and messages is what the nodes train."""

import numpy as np
import pytest

from benchmarks.tuning.training import decoupled, in_lockstep, planned, synchronous
from diloco_chaos.chaos.runner.simulate import initial_values
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig

SMALL = {"model": "micro", "corpus": "markov", "batch": 2, "fragments": 4, "budget": 40, "warm_start": 8, "warmup": 4,
         "snapshots": 4}


@pytest.mark.parametrize("batch", [2, [4, 2, 1, 1]])
def test_in_lockstep_the_synchronous_run_is_the_same_to_the_last_bit(batch):
    config = TrainerConfig(**SMALL | {"batch": batch})
    done = synchronous(planned(config))
    alone = in_lockstep(config, config.budget)
    for name, array in done.snapshots[-1][0].items():
        assert np.array_equal(alone.state[name], array)
    assert [(point.number, point.processed, point.loss) for point in alone.curve] == [
        (point.number, point.processed, point.loss) for point in done.curve()]


def test_its_first_steps_are_the_shared_warm_start():
    config = TrainerConfig(**SMALL)
    begun, warm = in_lockstep(config, 8).state, initial_values(planned(config))
    assert begun.keys() == warm.keys()
    assert all(np.array_equal(begun[name], warm[name]) for name in warm)


def test_a_run_from_scratch_ends_at_its_budget_and_is_measured_on_the_windows_that_were_asked_for():
    config = TrainerConfig(**SMALL)
    reported, tuning = decoupled(config)[-1], decoupled(config, "tuning")[-1]
    assert reported.processed == tuning.processed >= config.budget_tokens
    assert reported.loss != tuning.loss
    assert reported.loss == pytest.approx(tuning.loss, rel=0.05)
