"""DiLoCo and Streaming DiLoCo: nobody goes on without the others, and nothing that is lost makes them wait for ever."""

from collections import Counter, defaultdict

import pytest
from pydantic import ValidationError

from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.protocol.messages import (
    Broadcast,
    Clock,
    Hello,
    OuterGradient,
    Report,
    Request,
    Welcome,
)

MODES = [{"mode": "diloco"}, {"mode": "streaming"}, {"mode": "streaming", "overlap": 1}]
EVERYBODY = ["learner-1", "learner-2", "learner-3", "learner-4"]
modes = pytest.mark.parametrize("mode", MODES, ids=lambda mode: "-".join(map(str, mode.values())))


def events(cluster, name):
    return [event for event in cluster.tape if event.event == name]


def assert_merged_by_all_and_once(cluster):
    steps = Counter()
    for merge in events(cluster, "merge"):
        assert [part.learner for part in merge.contributions] == EVERYBODY
        steps.update((merge.fragment, part.learner, part.incarnation, step)
                     for part in merge.contributions for step in range(part.first, part.last + 1))
    assert steps
    assert set(steps.values()) == {1}


@modes
def test_every_round_is_merged_from_all_and_no_step_is_merged_twice(make_cluster, mode):
    cluster = make_cluster(**mode)
    cluster.run()
    assert cluster.over
    assert_merged_by_all_and_once(cluster)
    assert {merge.grace for merge in events(cluster, "merge")} == {0.0}


def test_in_diloco_all_fragments_are_exchanged_every_h_steps_and_nobody_trains_meanwhile(make_cluster):
    cluster = make_cluster(mode="diloco", delay=0.1)
    cluster.run()
    for merge in events(cluster, "merge"):
        for part in merge.contributions:
            assert (part.steps, part.last % 8) == (8, 0)
    received = events(cluster, "received")
    assert {event.closed for event in received if event.version} == {8}
    assert {event.carried for event in received} == {0}
    rounds = defaultdict(set)
    for merge in events(cluster, "merge"):
        rounds[merge.contributions[0].last].add(merge.fragment)
    assert rounds
    assert all(fragments == {0, 1, 2, 3} for fragments in rounds.values())


@pytest.mark.parametrize("overlap", [1, 2, 4])
def test_in_streaming_diloco_an_exchange_overlaps_with_tau_steps_at_most(make_cluster, overlap):
    quick, slow = (make_cluster(mode="streaming", overlap=overlap, delay=delay) for delay in (0.001, 0.2))
    for cluster in (quick, slow):
        cluster.run()
        assert cluster.over
        during = [event.closed + event.carried - 8 for event in events(cluster, "received")
                  if event.version > 1]
        assert max(during) <= overlap
    assert max(during) == overlap  # the exchange takes longer than that: everybody waits
    assert slow.now > 1.2 * quick.now


@modes
def test_while_one_is_dead_the_others_stand_and_once_it_is_back_they_go_on(make_cluster, mode):
    cluster = make_cluster(**mode, budget=120)
    cluster.run(until=2.0)
    cluster.disconnect("learner-3", reconnect=False)
    cluster.run(until=4.0)
    steps = {name: cluster.learners[name].step for name in EVERYBODY if name != "learner-3"}
    cluster.run(until=8.0)
    assert {name: cluster.learners[name].step for name in steps} == steps
    assert {event.learner for event in events(cluster, "lost")} == {"learner-3"}, "who stands still is there"
    cluster.start_learner("learner-3")
    cluster.run(until=60)
    assert cluster.over
    assert_merged_by_all_and_once(cluster)


@modes
@pytest.mark.parametrize("kind", [Hello, Welcome, Clock, Report, Request, OuterGradient, Broadcast])
@pytest.mark.parametrize("number", [1, 5, 9])
def test_any_message_may_be_lost(make_cluster, mode, kind, number):
    seen = Counter()

    def lose(sender, receiver, message):
        seen[type(message)] += isinstance(message, kind) and "learner-2" in (sender, receiver)
        if seen[kind] == number and isinstance(message, kind) and "learner-2" in (sender, receiver):
            seen[kind] += 1
            return True
        return False
    cluster = make_cluster(lose=lose, **mode)
    cluster.run(until=60)
    assert cluster.over, "everybody waits for ever"
    assert_merged_by_all_and_once(cluster)
    assert not events(cluster, "refused"), "a learner answered what was merged already"


@modes
@pytest.mark.parametrize("at", [round(1.0 + 0.013 * number, 3) for number in range(40)])
def test_a_syncer_that_dies_at_any_moment_is_gone_on_from(make_cluster, mode, at):
    cluster = make_cluster(**mode, delay=0.01)
    cluster.run(until=at)
    cluster.restart_syncer()
    cluster.run(until=60)
    assert cluster.over, "everybody waits for ever"
    assert_merged_by_all_and_once(cluster)


@modes
@pytest.mark.parametrize("every", [7, 13])
def test_a_connection_that_keeps_breaking_stops_nobody_for_good(make_cluster, mode, every):
    count = iter(range(10**9))
    cluster = make_cluster(lose=lambda *_: next(count) % (every * 17) == every, **mode)
    cluster.run(until=120)
    assert cluster.over, "everybody waits for ever"
    assert_merged_by_all_and_once(cluster)


@pytest.mark.parametrize(("settings", "words"), [
    ({"mode": "diloco", "quorum": 1}, "mode diloco means quorum 4: leave quorum out"),
    ({"mode": "diloco", "overlap": 2}, "mode diloco means overlap 0"),
    ({"mode": "streaming", "grace": 0.8, "learners": 3}, "mode streaming means grace 0"),
])
def test_what_a_mode_implies_is_not_said_otherwise(settings, words):
    with pytest.raises(ValidationError, match=words):
        TrainerConfig.model_validate(settings)


@modes
def test_a_mode_is_the_same_after_it_was_written_down(mode):
    config = TrainerConfig.model_validate(mode)
    assert (config.quorum, config.grace) == (4, 0)
    assert TrainerConfig.model_validate_json(config.model_dump_json()) == config
