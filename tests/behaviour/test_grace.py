"""The grace window knows how long it takes until the receivers have what was merged."""

import pytest

from diloco_chaos.chaos.exploration.generate import plan_of
from diloco_chaos.chaos.exploration.strategies import scenario
from diloco_chaos.chaos.runner.simulate import simulate

FAR_S = 0.045


def test_the_time_of_a_broadcast_is_measured_until_the_receivers_have_it():
    setting = scenario(learners=4, budget="250 steps", step_time="60ms", overlap=4.0)
    history = simulate(plan_of(setting, [{"latency": "learners", "at": "3s", "for": "8s", "delay": f"{FAR_S}s"}],
                               0)).history
    far = [merge.sync_time for merge in history.merges_between(history.zero + 6, history.zero + 11)]
    near = [merge.sync_time for merge in history.merges_between(history.zero + 1, history.zero + 3)]
    assert max(near) < 0.02
    assert far[-1] == pytest.approx(FAR_S + near[-1], rel=0.15)
    assert min(far) > 0.8 * FAR_S
