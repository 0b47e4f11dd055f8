"""What is warned of: it can be run, but not to the end that somebody may have had in mind."""

import pytest

from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.chaos.scenario.warnings import warnings_of


def warned(*faults, more=""):
    """What is warned of, of the plan as of the scenario."""
    loaded = parse("diloco_chaos: 1\nname: x\nfaults:\n" + "".join(f"  - {fault}\n" for fault in faults) + more)
    return warnings_of(loaded.trainer, [planned.fault for planned in freeze(loaded, 0).faults])


def test_a_link_too_slow_for_the_grace_window_is_warned_of():
    assert "its contributions come too late" in warned("{latency: learner-1, at: 1s, for: 5s, delay: 90ms}")[0]
    assert "its contributions come too late" in warned("{latency: learner-1, at: 1s, for: 5s, rate: 100kB/s}")[0]
    assert warned("{latency: learner-1, at: 1s, for: 5s, delay: 5ms}") == []


def test_a_fault_that_outlasts_training_is_warned_of():
    assert "training is over before it is" in warned("{straggler: learner-1, at: 40s, for: 40s}")[0]


def test_a_toxic_that_hits_some_connections_is_warned_of():
    assert "drawn by the proxy" in warned("{timeout: learner-1, at: 1s, for: 5s, toxicity: 0.5}")[0]


def test_a_quorum_that_kills_take_away_is_warned_of():
    more = "cluster: {quorum: 3}\n"
    assert "quorum is never reached again" in warned("{kill: [learner-1, learner-2], at: 1s}", more=more)[0]
    assert warned("{kill: [learner-1, learner-2], at: 1s, restart_after: 1s}", more=more) == []


def test_a_job_that_nothing_starts_again_is_told_how():
    trainer = ("trainer: {kind: commands, rounds: 9, nodes: {job: {run: python3 -c 1, worker: true, "
               "restart: on-failure}}, progress: [{node: job, written: true}]}\n")
    assert warned("{kill: job, at: 1s}", more=trainer) == [
        "nothing starts job again, and too few workers are left to go on: write `restart_after` at the fault"]
    assert warned("{kill: job, at: 1s, restart_after: 1s}", more=trainer) == []


@pytest.mark.parametrize("fault", ["{kill: syncer, at: 1s}", "{terminate: syncer, at: 1s}",
                                   "{corrupt: syncer, at: 1s, restart_after: null}"])
def test_a_syncer_that_is_never_started_again_is_warned_of(fault):
    assert "training can't come to its end" in warned(fault)[0]


def idle(cluster):
    scenario = parse(f"diloco_chaos: 1\nname: x\ncluster: {cluster}\n")
    return scenario.trainer.idle()


@pytest.mark.parametrize("mode", ["data_parallel", "elastic_data_parallel"])
def test_settings_of_what_is_not_exchanged_are_warned_of(mode):
    def told(settings):
        return idle(f"{{mode: {mode}{settings}}}")
    assert told("") == told(", batch: 32") == []
    assert told(", sync_every: 24, recovery: peer") == [
        f"mode {mode} averages the gradients of every step: sync_every, recovery mean nothing there"]


def test_where_fragments_are_exchanged_all_settings_mean_something():
    assert idle("{sync_every: 24, recovery: peer, anchor: base}") == []


def test_a_node_of_commands_that_is_called_syncer_merges_nothing():
    trainer = ("trainer: {kind: commands, rounds: 9, nodes: {syncer: {run: python3 -c 1}, w: {run: python3 -c 1, "
               "worker: true}}, progress: [{node: w, written: true}]}\n")
    assert warned("{kill: syncer, at: 1s}", more=trainer) == []
