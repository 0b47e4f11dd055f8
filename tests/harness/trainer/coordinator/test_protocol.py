"""Syncer and learners together, in memory: what a lost message, a death or a restart may cost."""

from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pytest

from diloco_chaos.harness.base.tensors import digest
from diloco_chaos.harness.record.tape.events import Event
from diloco_chaos.harness.trainer.algorithm.outer_optimizer import OuterStep
from diloco_chaos.harness.trainer.coordinator.fragment_state import FragmentState, ProgressCounters
from diloco_chaos.harness.trainer.coordinator.rounds import FragmentContribution
from diloco_chaos.harness.trainer.protocol.messages import (
    Broadcast,
    Clock,
    Hello,
    OuterGradient,
    Report,
    Request,
    Welcome,
)
from diloco_chaos.harness.trainers.core.effects import Close

INT4 = {"gradients": "int4", "broadcasts": "int4", "error_feedback": True}


def merged_steps(cluster):
    """(fragment, learner, incarnation) -> every step that was merged, with repetitions."""
    steps = defaultdict(list)
    for event in cluster.tape:
        if event.event == "merge":
            for part in event.contributions:
                steps[event.fragment, part.learner, part.incarnation] += range(part.first, part.last + 1)
    return steps


def assert_exactly_once(cluster):
    for place, steps in merged_steps(cluster).items():
        assert len(steps) == len(set(steps)), f"{place} merged a step twice"


def assert_all_hold_the_same(cluster):
    told = {(event.fragment, event.version): event.digest for event in cluster.tape if event.event == "merge"}
    told |= {(index, 0): digest for index, digest in enumerate(events(cluster, "initial")[0].digests)}
    for event in events(cluster, "received"):
        assert told[event.fragment, event.version] == event.digest


def events(cluster, name, node=None):
    return [event for event in cluster.tape if event.event == name and node in (None, event.node)]


def test_without_faults_everyone_takes_part_in_every_round(make_cluster):
    cluster = make_cluster()
    cluster.run()
    merges = events(cluster, "merge")
    assert cluster.over
    assert Counter(len(merge.contributions) for merge in merges)[4] >= 0.9 * len(merges)
    assert_exactly_once(cluster)


def test_every_fragment_is_merged_once_every_h_steps(make_cluster):
    cluster = make_cluster(budget=80)
    cluster.run()
    counts = Counter(merge.fragment for merge in events(cluster, "merge"))
    assert set(counts) == {0, 1, 2, 3}
    assert all(abs(count - 80 / 8) <= 1 for count in counts.values())


def test_the_same_inputs_give_the_same_tape(make_cluster):
    tapes = []
    for _ in range(2):
        cluster = make_cluster()
        cluster.run()
        tapes.append(cluster.tape)
    assert tapes[0] == tapes[1]


@pytest.mark.parametrize("kind", [Hello, Welcome, Clock, Report, Request, OuterGradient, Broadcast])
@pytest.mark.parametrize("number", [1, 5])
@pytest.mark.parametrize("settings", [{"on_receipt": "carry"}, {"on_receipt": "overwrite"}, INT4],
                         ids=["carry", "overwrite", "int4"])
def test_any_message_may_be_lost_and_no_step_is_merged_twice(make_cluster, kind, number, settings):
    seen = Counter()

    def lose(sender, receiver, message):
        if isinstance(message, kind) and "learner-2" in (sender, receiver):
            seen[kind] += 1
            return seen[kind] == number
        return False
    cluster = make_cluster(lose=lose, **settings)
    cluster.run(until=30)
    assert cluster.over, "training did not go on"
    assert_exactly_once(cluster)
    assert_all_hold_the_same(cluster)
    lost = seen[kind] >= number
    assert lost or kind in (Hello, Welcome)  # there is only one of these unless a connection breaks
    if lost:
        last = events(cluster, "merge")[-5:]
        assert any(part.learner == "learner-2" for merge in last for part in merge.contributions)


@pytest.mark.parametrize("every", [7, 13])
def test_a_connection_that_keeps_breaking_merges_nothing_twice(make_cluster, every):
    count = iter(range(10**9))
    cluster = make_cluster(lose=lambda *_: next(count) % (every * 17) == every)
    cluster.run(until=60)
    assert cluster.over
    assert len(events(cluster, "lost")) >= 5
    assert_exactly_once(cluster)


def test_a_lost_broadcast_makes_the_learner_repeat_its_steps_and_the_syncer_refuse_them(make_cluster):
    lost = []

    def lose(sender, receiver, message):
        if isinstance(message, Broadcast) and receiver == "learner-2" and message.version == 2 and not lost:
            lost.append(message.fragment)
            return True
        return False
    cluster = make_cluster(lose=lose)
    cluster.run()
    refusals = [event for event in events(cluster, "refused", "syncer") if event.learner == "learner-2"]
    assert [event.reason for event in refusals if event.fragment == lost[0]][:1] == ["already merged"]
    assert_exactly_once(cluster)


def test_a_returning_learner_gets_every_fragment_and_starts_at_the_global_step(make_cluster):
    cluster = make_cluster()
    cluster.run(until=1.5)
    cluster.start_learner("learner-3")
    cluster.run()
    hello = [event for event in events(cluster, "hello") if event.incarnation == 1]
    received = [event for event in events(cluster, "received", "learner-3") if event.inc == 1][:4]
    assert [event.version for event in received] == hello[0].versions
    ready = next(event for event in events(cluster, "ready", "learner-3") if event.inc == 1)
    assert ready.step == hello[0].step > 10
    assert any(part.incarnation == 1 for merge in events(cluster, "merge") for part in merge.contributions)
    assert_exactly_once(cluster)


def test_a_returning_learner_goes_on_in_its_shard_behind_what_it_can_have_trained_on(make_cluster):
    cluster = make_cluster()
    cluster.run(until=1.5)
    reported = cluster.syncer.fragments.counters.positions["learner-3"]
    cluster.start_learner("learner-3")
    cluster.run()
    ready = next(event for event in events(cluster, "ready", "learner-3") if event.inc == 1)
    config = cluster.syncer.config
    at_most = (1.5 + config.heartbeat_timeout) / config.step_time  # in all the time that there was
    assert 0 < reported < ready.position <= reported + at_most


def test_a_syncer_that_restarts_goes_on_from_its_newest_versions_with_its_momentum(make_cluster):
    cluster = make_cluster()
    cluster.run(until=1.5)
    before = cluster.syncer.fragments.states
    cluster.restart_syncer()
    after = cluster.syncer.fragments.states
    assert [state.version for state in after] == [state.version for state in before]
    assert any(state.momentum[name].any() for state in after for name in state.momentum)
    for old, new in zip(before, after, strict=True):
        assert all((old.momentum[name] == new.momentum[name]).all() for name in old.momentum)
    cluster.run()
    assert cluster.over
    resumed = events(cluster, "resumed")[0]
    assert resumed.versions == [state.version for state in before]
    assert_exactly_once(cluster)


def test_learners_train_on_while_the_syncer_is_away(make_cluster):
    cluster = make_cluster()
    cluster.run(until=1.0)
    steps = cluster.learners["learner-1"].step
    cluster._lose = lambda *_: True
    cluster.run(until=2.0)
    assert cluster.learners["learner-1"].step >= steps + 10


def test_an_old_incarnation_that_comes_back_is_refused(make_cluster):
    cluster = make_cluster()
    cluster.run(until=1.0)
    cluster.start_learner("learner-3")
    cluster.run(until=2.0)
    effects = list(cluster.syncer.on_message(999, Hello(
        token="t", node="learner-3", incarnation=0, step=5, tokens=5, position=5, versions=[1] * 4, steps=[1] * 4),
        {}, 2.0))
    assert [(effect.reason, effect.final) for effect in effects if isinstance(effect, Close)] == [
        ("a newer incarnation of this learner is known", True)]


def test_a_connection_that_the_same_incarnation_replaces_may_be_made_again(make_cluster):
    cluster = make_cluster()
    cluster.run(until=1.0)
    again = Hello(token="t", node="learner-3", incarnation=0, step=5, tokens=5, position=5, versions=[1] * 4,
                  steps=[1] * 4)
    closed = [effect for effect in cluster.syncer.on_message(999, again, {}, 1.0) if isinstance(effect, Close)]
    assert [effect.final for effect in closed] == [False]


def test_a_connection_that_a_newer_incarnation_replaces_is_final(make_cluster):
    cluster = make_cluster()
    cluster.run(until=1.0)
    newer = Hello(token="t", node="learner-3", incarnation=1, step=0, tokens=0, position=0, versions=[-1] * 4,
                  steps=[0] * 4)
    closed = [effect for effect in cluster.syncer.on_message(999, newer, {}, 1.0) if isinstance(effect, Close)]
    assert [effect.final for effect in closed] == [True]


def test_with_quorum_three_a_round_is_merged_from_at_least_three(make_cluster):
    cluster = make_cluster(quorum=3)
    cluster.run(until=1.0)
    cluster.disconnect("learner-1", reconnect=False)
    cluster.run(until=60)
    merges = events(cluster, "merge")
    assert min(len(merge.contributions) for merge in merges) >= 3
    assert merges[-1].t > 2.0


def test_without_a_quorum_nothing_is_merged_and_nothing_is_lost(make_cluster):
    cluster = make_cluster(quorum=3)
    cluster.run(until=1.0)
    for name in ("learner-1", "learner-2"):
        cluster.disconnect(name, reconnect=False)
    cluster.run(until=3.0)
    # A round that was open with enough answers may still close; afterwards the quorum is out of reach.
    assert not [merge for merge in events(cluster, "merge") if merge.t > 1.2]
    for name in ("learner-1", "learner-2"):
        cluster._connect(name)
    cluster.run(until=60)
    assert cluster.over
    assert_exactly_once(cluster)


def test_a_far_learner_that_misses_the_grace_window_is_late_and_the_others_do_not_wait(make_cluster):
    far = make_cluster(delay=0.001, grace=0.0, budget=40)
    far.run()
    late = [event for event in events(far, "refused", "syncer") if event.reason == "late"]
    assert late
    assert_exactly_once(far)


def test_with_overlap_zero_a_learner_waits_for_the_merge_and_loses_nothing(make_cluster):
    cluster = make_cluster(overlap=0, quorum=4, on_receipt="overwrite")
    cluster.run()
    assert cluster.over
    answered = {(event.fragment, event.node): event.step for event in cluster.tape
                if event.event == "outer_gradient"}
    assert answered
    for event in events(cluster, "received"):
        if event.closed:
            assert event.carried == 0
    steps = sum(len(set(steps)) for steps in merged_steps(cluster).values())
    assert steps >= 0.85 * 4 * sum(learner.step for learner in cluster.learners.values())


def test_training_ends_at_the_budget_of_processed_tokens(make_cluster):
    cluster = make_cluster()
    cluster.run()
    processed = sum(learner.tokens for learner in cluster.learners.values())
    budget = cluster.config.budget_tokens
    assert budget <= processed <= budget + 2 * cluster.config.tokens_of_all
    assert [meta["number"] for meta, _ in cluster.snapshots] == [0, 1, 2]


@pytest.mark.parametrize("settings", [{"learners": 2}, {"learners": 4, "quorum": 3},
                                      {"learners": 2, "quorum": 2, "overlap": 0}])
def test_a_merge_whose_broadcast_nobody_got_holds_up_no_later_round(make_cluster, settings):
    # The syncer dies between commit and broadcast: everyone answers steps that are merged already, and is refused.
    silent = []
    cluster = make_cluster(lose=lambda sender, *_: bool(silent) and sender == "syncer", **settings)
    cluster.run(until=1.0)
    version = sum(state.version for state in cluster.syncer.fragments.states)
    silent.append(True)
    for hundredth in range(100):
        cluster.run(until=1.0 + hundredth / 100)
        if sum(state.version for state in cluster.syncer.fragments.states) > version:
            break
    silent.clear()
    cluster.restart_syncer()
    cluster.run(until=60)
    assert cluster.over, "training did not go on"
    assert_exactly_once(cluster)
    counts = Counter(merge.fragment for merge in events(cluster, "merge"))
    assert min(counts.values()) >= 0.6 * max(counts.values()), "a fragment is left behind"


def test_while_h_grows_fragments_are_merged_more_often_and_then_as_often_as_is_set(make_cluster):
    cluster = make_cluster(budget=160, sync_every=16, sync_from=2, sync_growth=60)
    cluster.run()
    steps = [event.step for event in events(cluster, "merge") if event.fragment == 0]
    gaps = [after - before for before, after in pairwise(steps)]
    assert gaps[0] <= 4
    assert all(gap <= 17 for gap in gaps)
    assert gaps[-2:] == [16, 16]


def test_a_syncer_that_restarts_while_h_grows_goes_on_at_the_phase_that_it_had_committed(make_cluster):
    cluster = make_cluster(sync_growth=50, sync_from=1)
    cluster.run(until=1.5)
    committed = max((meta["counters"]["step"], meta["counters"]["phase"]) for _, meta in cluster.disk.values())
    cluster.restart_syncer()
    assert (cluster.syncer.fragments.counters.step, cluster.syncer.fragments.counters.phase) == committed
    assert committed[1] > committed[0] > 0
    cluster.run()
    assert_exactly_once(cluster)
    assert_all_hold_the_same(cluster)


def test_a_run_of_a_version_that_kept_no_phase_goes_on_at_its_global_step():
    counters = ProgressCounters()
    meta = ProgressCounters(12).meta()
    del meta["phase"]
    counters.absorb(meta)
    assert (counters.step, counters.phase) == (12, 12)


def test_a_stale_process_is_refused_also_by_a_syncer_that_never_met_its_successor(make_cluster):
    cluster = make_cluster()
    cluster.run(until=1.0)
    cluster.start_learner("learner-1")
    cluster.run(until=1.01)  # the successor was heard of, and nothing of it was merged
    cluster.restart_syncer()
    hello = Hello(token="token", node="learner-1", incarnation=0, step=20, tokens=0, position=20,
                  versions=[1] * 4, steps=[1] * 4)
    effects = list(cluster.syncer.on_message(99, hello, {}, cluster.now))
    assert [effect.final for effect in effects if isinstance(effect, Close)] == [True]


@pytest.mark.parametrize("came_back", [False, True], ids=["its reports waited", "its hello waited"])
def test_a_successor_begins_behind_what_its_learner_trained_on_while_its_last_words_waited(make_cluster, came_back):
    cluster = make_cluster()
    cluster.run(until=1.0)
    counters, learner = cluster.syncer.counters, cluster.syncer.peers["learner-1"]
    leased, sent = counters.positions["learner-1"], counters.heard["learner-1"]
    same = {"step": learner.step, "tokens": counters.tokens["learner-1"][0], "position": leased}
    each = cluster.config.tokens_per_step_of("learner-1")
    words = (Hello(token="token", node="learner-1", incarnation=0, versions=learner.holds, steps=[1] * 4, **same)
             if came_back else
             Report(fragments=[(version, 1, each) for version in learner.holds], clock=(sent, 0.0), **same))
    read = cluster.now + 5.0
    list(cluster.syncer.on_message(99 if came_back else learner.connection, words, {}, read))
    counters.lease("learner-1", read, cluster.config)
    assert counters.positions["learner-1"] >= leased + (read - sent) / cluster.config.quickest_step("learner-1")


def test_who_holds_a_version_that_a_new_syncer_has_forgotten_is_told_the_current_one_at_once(make_cluster):
    losing = False
    cluster = make_cluster(anchor="latest", lose=lambda _, receiver, message: losing and receiver == "learner-2"
                           and isinstance(message, Broadcast))
    cluster.run(until=1.0)
    losing = True
    cluster.run(until=1.5)
    losing = False
    cluster.restart_syncer()
    new = [state.version for state in cluster.syncer.fragments.states]
    behind = {index for index, held in enumerate(cluster.learners["learner-2"].held) if held.version < new[index]}
    cluster.run()
    hello, = (event for event in events(cluster, "hello") if event.t > 1.5 and event.learner == "learner-2")
    received = {event.fragment for event in events(cluster, "received", "learner-2") if 0 < event.t - hello.t < 0.1}
    assert behind
    assert behind <= received
    assert "forgotten base" not in {event.reason for event in events(cluster, "refused")}


class Seen:
    """Loses nothing, and remembers what was said."""

    def __init__(self):
        self.said = []

    def __call__(self, sender, receiver, message):
        self.said.append((sender, receiver, message))
        return False

    def broadcasts(self, receiver):
        return [message for _, name, message in self.said if name == receiver and isinstance(message, Broadcast)]


def test_who_holds_the_version_before_is_told_what_has_changed_and_all_others_the_whole_value(make_cluster):
    seen = Seen()
    cluster = make_cluster(lose=seen, **INT4)
    cluster.run(until=1.5)
    cluster.start_learner("learner-3")
    cluster.run()
    for name in ("learner-1", "learner-3"):
        told = seen.broadcasts(name)
        assert [message.base for message in told[:4]] == [-1] * 4
        whole = [message for message in told if message.base < 0]
        assert len(whole) == (4 if name == "learner-1" else 8)
        assert all(message.base == message.version - 1 for message in told if message not in whole)
    assert_all_hold_the_same(cluster)


def test_a_syncer_that_restarts_keeps_what_rounding_has_cost(make_cluster):
    seen = Seen()
    cluster = make_cluster(lose=seen, **INT4)
    cluster.run(until=1.5)
    before = cluster.syncer.fragments.states
    cluster.restart_syncer()
    after = cluster.syncer.fragments.states
    assert any(state.error for state in before)
    assert [digest(state.error) for state in after] == [digest(state.error) for state in before]
    seen.said.clear()
    cluster.run()
    assert cluster.over
    assert_exactly_once(cluster)
    assert_all_hold_the_same(cluster)


def trained(cluster):
    """(where it began, where it ended), all tensors in a row."""
    def everything():
        states = cluster.syncer.fragments.states
        return np.concatenate([array.ravel() for state in states for array in state.value.values()])
    start = everything()
    cluster.run()
    return start, everything()


@pytest.mark.parametrize(("precision", "feedback", "bound"), [
    ("bfloat16", False, 0.002), ("int8", False, 0.003), ("int4", False, 0.08), ("int4", True, 0.025)])
def test_compressed_training_goes_where_uncompressed_training_goes(make_cluster, precision, feedback, bound):
    # All of a walker's numbers go to the same place: seven steps of int4 can't tell them apart, feedback can.
    start, end = trained(make_cluster())
    _, other = trained(make_cluster(gradients=precision, broadcasts=precision, error_feedback=feedback))
    assert np.linalg.norm(other - end) < bound * np.linalg.norm(end - start)


def test_what_rounding_cost_an_answer_that_was_lost_is_not_owed(make_cluster):
    cluster = make_cluster(**INT4)
    cluster.run(until=1.0)
    learner = cluster.learners["learner-2"]
    learner._computing = False
    list(learner.on_message(Request(round=1, fragment=0), {}, 1.0))
    assert learner.held[0].owed
    before = learner.held[0].error
    list(learner.on_lost("", 1.0))
    value = learner.held[0].base
    list(learner.on_message(Broadcast(fragment=0, version=99, digest=digest(value)), value, 1.0))
    assert (learner.held[0].version, learner.held[0].error is before) == (99, True)


@pytest.mark.parametrize("merged", [True, False], ids=["merged", "refused"])
def test_what_rounding_cost_an_answer_is_owed_if_it_was_merged(make_cluster, merged):
    cluster = make_cluster(**INT4)
    cluster.run(until=1.0)
    learner = cluster.learners["learner-2"]
    learner._computing = False
    before = learner.held[0].error
    list(learner.on_message(Request(round=1, fragment=0), {}, 1.0))
    value, owed = learner.held[0].base, learner.held[0].owed
    told = Broadcast(fragment=0, version=99, digest=digest(value), merged=learner.step if merged else learner.step - 9)
    received, = (effect for effect in learner.on_message(told, value, 1.0) if isinstance(effect, Event))
    assert received.arrived is merged
    assert learner.held[0].error is (owed if merged else before)


def test_who_is_told_of_a_merge_is_told_what_of_its_own_is_part_of_it(make_cluster):
    cluster = make_cluster()
    cluster.run()
    parts = {(event.fragment, event.version, part.learner) for event in events(cluster, "merge")
             for part in event.contributions}
    for event in events(cluster, "received"):
        assert event.arrived == ((event.fragment, event.version, event.node) in parts)


def test_error_feedback_of_broadcasts_loses_nothing_in_the_long_run(make_cluster):
    cluster = make_cluster(**INT4)
    state, config = cluster.syncer.fragments.states[0], cluster.config
    moved = {name: np.zeros_like(array) for name, array in state.value.items()}
    start, random = state.value, np.random.default_rng(0)
    for step in range(1, 6):
        gradient = {name: random.standard_normal(array.shape).astype(np.float32) for name, array in start.items()}
        answer = FragmentContribution("learner-1", 0, step - 1, step, step, 1, 1, "", 0.0, gradient)
        exact = FragmentState(state.value, state.momentum, version=step - 1).after([answer], config.model_copy(
            update={"broadcasts": "float32"}), OuterStep(config.outer_lr, config.outer_momentum))
        moved = {name: moved[name] + exact.value[name] - state.value[name] for name in moved}
        state = state.after([answer], config, OuterStep(config.outer_lr, config.outer_momentum))
        for name, array in state.value.items():
            assert np.allclose(array + state.error[name], start[name] + moved[name], atol=1e-5)
            assert state.error[name].any()


def test_what_is_no_compressed_gradient_is_refused_and_costs_only_itself(make_cluster):
    cluster = make_cluster(**INT4)
    cluster.run(until=1.0)
    syncer = cluster.syncer
    peer = syncer.peers["learner-1"]
    answer = OuterGradient(round=0, fragment=0, base_version=0, first_step=1, last_step=1, steps=1, tokens=1, digest="")
    effects = list(syncer.on_message(peer.connection, answer, {"codes": np.zeros(3, np.int8)}, 1.0))
    assert [effect.reason for effect in effects if isinstance(effect, Event)] == ["wrong shapes"]
    cluster.run()
    assert cluster.over
