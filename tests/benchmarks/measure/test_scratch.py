"""What is measured from scratch is what was tuned for that length, and can be run in real time, too."""

import pytest

from benchmarks.measure.scratch import LENGTHS, _paced, configured, curve, figures
from diloco_chaos.chaos.evidence.baseline import LossPoint


@pytest.mark.parametrize("steps", LENGTHS)
def test_a_run_in_real_time_takes_its_data_parallel_first_steps_at_its_own_rate_and_has_time_enough(steps):
    plan = _paced(steps)
    cluster = plan.cluster
    assert (cluster.budget, cluster.synchronous_lr, cluster.seed) == (steps, cluster.lr, 0)
    assert plan.deadline > 2 * cluster.step_time * steps


@pytest.mark.parametrize("steps", LENGTHS)
def test_both_sides_process_as_many_tokens_from_the_same_seed(steps):
    sides = [configured(side, steps, 3) for side in ("synchronous", "decoupled")]
    assert sides[0].budget_tokens == sides[1].budget_tokens
    assert sides[0].batches == sides[1].batches
    assert {config.seed for config in sides} == {3}


def test_a_gap_is_told_in_percent_and_in_tokens():
    def point(tokens, loss):
        return LossPoint(number=0, processed=tokens, merged=tokens, t=0, loss=loss)
    synchronous = [point(0, 6.0), point(100, 4.0), point(200, 2.0)]
    found = figures([([point(200, 2.2)], synchronous), ([point(200, 2.4)], synchronous)])
    assert found["gap"]["values"] == pytest.approx([0.1, 0.2])
    assert found["extra_tokens"]["values"] == pytest.approx([200 / 190 - 1, 200 / 180 - 1], abs=1e-5)


def test_the_curve_shows_every_gap_at_its_tokens():
    lines = curve({steps: 0.01 * number for number, steps in enumerate(LENGTHS, 1)}).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert next(line for line in lines if "●" in line).split()[0] == f"{len(LENGTHS)}.00"
    assert "million tokens" in lines[-1] + lines[-2]
