"""What a plan predicts is what a run then makes of it."""

import pytest

from diloco_chaos.chaos.checks.outcome import goodput_between
from diloco_chaos.chaos.runner.simulate import simulate
from diloco_chaos.chaos.scenario.availability import regrouping
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.simulation.parameters import Parameters
from diloco_chaos.harness.trainer.config.cluster_config import MODES, TrainerConfig

WAITING = [mode for mode in MODES if mode not in ("decoupled", "synchronous")]
GUESTS = "[learner-5, learner-6, learner-7, learner-8]"


def goodputs(cluster, faults=""):
    """Predicted and measured, of a run of steps of 60 ms."""
    plan = freeze(parse("diloco_chaos: 1\nname: x\ndeadline: 300s\ncluster: {model: quadratic, fragments: 4, "
                        f"sync_every: 8, budget: 500 steps, {cluster}}}\n{faults and 'faults:'}\n{faults}"), 0)
    history = simulate(plan, Parameters(cores=16)).history
    return plan.predicted_availability(), goodput_between(history, history.zero, history.end)


@pytest.mark.parametrize(("cluster", "faults"), [
    ("learners: 4", "  - {kill: learner-1, at: 15s}\n"),
    ("learners: 4", "  - {kill: [learner-1, learner-2, learner-3], at: 10s}\n"),
    ("learners: 4", "  - {pause: learner-1, at: 5s, for: 20s}\n"),
    ("learners: 2", "  - {kill: learner-1, at: 20s, restart_after: 60s}\n"),
    ("learners: 4, speeds: [1, 1, 0.5, 0.25]", "  - {kill: learner-4, at: 10s}\n"),
    ("learners: 8", f"  - {{join: {GUESTS}, at: 6s}}\n  - {{terminate: {GUESTS}, at: 18s}}\n"),
    ("learners: 4", "  - {lemon: learner-1, at: 15s}\n"),
    ("learners: 4", "  - {lemon: learner-1, at: 5s}\n  - {replace: learner-1 with learner-4, at: 15s}\n"),
    ("learners: 4, mode: elastic_data_parallel", "  - {kill: learner-1, at: 15s}\n"),
    ("learners: 4, mode: elastic_data_parallel", "  - {kill: [learner-1, learner-2], at: 9s, restart_after: 6s}\n"),
    ("learners: 4, mode: elastic_data_parallel", "  - {pause: learner-1, at: 5s, for: 9s}\n"),
    ("learners: 4, mode: elastic_data_parallel", "  - {partition: learner-1, at: 5s, for: 9s}\n"),
    ("learners: 4, mode: data_parallel", "  - {kill: [learner-1, learner-2], at: 9s, restart_after: 6s}\n"),
    ("learners: 4, mode: diloco", "  - {kill: learner-1, at: 9s, restart_after: 6s}\n")])
def test_the_predicted_availability_is_what_a_run_has(cluster, faults):
    predicted, measured = goodputs(cluster, faults)
    assert predicted < 0.97
    assert measured == pytest.approx(predicted, abs=0.04)


@pytest.mark.parametrize("mode", WAITING)
def test_where_all_wait_for_all_the_slowest_sets_the_pace(mode):
    predicted, measured = goodputs(f"mode: {mode}, learners: 4, speeds: [1, 1, 0.5, 1]")
    ahead = 1 + 2 / 8 if mode == "streaming" else 1  # tau steps of H may be made during an exchange
    assert predicted == pytest.approx((3 * ahead * 0.5 + 1) / 4)
    assert measured == pytest.approx(predicted, abs=0.04)


def test_what_never_ends_and_when_it_comes_is_not_known_takes_a_learner_for_as_long_as_training_would_take():
    text = "diloco_chaos: 1\nname: x\ncluster: {learners: 4, budget: 100 steps}\nfaults:\n" \
           "  - {kill: learner-1, when: {node: syncer, event: merge, count: 3}}\n"
    assert freeze(parse(text), 0).predicted_availability() == pytest.approx(4 / 5)


@pytest.mark.parametrize(("down", "unseen", "costs"), [
    (0.5, 0.0, 1.0), (3.0, 0.0, 1.0 + 2.0 / 4 + 1.0), (2.0, 3.0, 2.0 + 1.0), (3.5, 3.0, 4.0),
    (6.0, 3.0, 4.0 + 2.0 / 4 + 1.0), (99.0, 0.0, 1.0 + 9.0 / 4)], ids=[
    "back while the group is formed", "seen at once", "back before it is missed", "missed, and back while it is formed",
    "missed", "back after the end"])
def test_a_loss_costs_an_elastic_group_what_it_stands_still_and_what_is_gone(down, unseen, costs):
    cluster = TrainerConfig(mode="elastic_data_parallel", learners=4, reconfiguration="1s")
    assert regrouping(cluster, down, most=10.0, unseen=unseen) == pytest.approx(costs)


@pytest.mark.parametrize(("silence", "after"), [("3s", 3.25), ("600ms", 0.7)])
def test_a_silent_peer_is_missed_at_the_first_heartbeat_after_its_silence(silence, after):
    assert TrainerConfig(heartbeat_timeout=silence).coupling.unseen_s == pytest.approx(after)
