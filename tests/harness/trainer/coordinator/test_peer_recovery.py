"""A healthy peer brings a new process up to date; whatever becomes of it, somebody does."""

import numpy as np
import pytest

from diloco_chaos.harness.base.tensors import digest
from diloco_chaos.harness.record.tape.events import Event, Recovering
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.coordinator import peer_recovery
from diloco_chaos.harness.trainer.coordinator.plausible import LearnerOrigin
from diloco_chaos.harness.trainer.coordinator.rounds import LearnerSession
from diloco_chaos.harness.trainer.protocol.messages import Broadcast, Donate, Donation
from diloco_chaos.harness.trainers.core.effects import Send


def events(cluster, name, node=None):
    return [event for event in cluster.tape if event.event == name and node in (None, event.node)]


def assert_up_to_date(cluster, learner, incarnation):
    """It began with committed versions, and counted again."""
    told = {(event.fragment, event.version): event.digest for event in events(cluster, "merge")}
    told |= {(index, 0): value for index, value in enumerate(events(cluster, "initial")[0].digests)}
    mine = [event for event in events(cluster, "received", learner) if event.inc == incarnation]
    assert {event.fragment for event in mine} == {0, 1, 2, 3}
    assert all(told[event.fragment, event.version] == event.digest for event in mine)
    assert any((part.learner, part.incarnation) == (learner, incarnation)
               for merge in events(cluster, "merge") for part in merge.contributions)


class Wire:
    """Remembers what was said; loses what it is told to."""

    def __init__(self, lose=lambda *_: False):
        self.said, self._lose = [], lose

    def __call__(self, sender, receiver, message):
        self.said.append((sender, receiver, message))
        return self._lose(sender, receiver, message)


@pytest.fixture
def restarted(make_cluster):
    """restarted(lose) -> a cluster whose learner-3 is a new process, and what was said since."""
    def make(lose=lambda *_: False, **settings):
        wire = Wire()
        cluster = make_cluster(lose=wire, recovery="peer", **settings)
        cluster.run(until=1.5)
        wire.said.clear()
        wire._lose = lose
        cluster.start_learner("learner-3")
        return cluster, wire
    return make


def asked(cluster):
    return [event.from_ for event in events(cluster, "recovering") if event.t > 1.5]


def test_a_peer_gives_what_it_holds_and_the_syncer_sends_no_value_of_its_own(restarted):
    cluster, wire = restarted()
    cluster.run()
    assert asked(cluster) == ["learner-1"]
    assert len([event for event in events(cluster, "donated", "learner-1") if event.t > 1.5]) == 1
    merges = {(event.fragment, event.version) for event in events(cluster, "merge") if event.t > 1.5}
    told = [message for _, name, message in wire.said if name == "learner-3" and isinstance(message, Broadcast)]
    assert told
    assert all((message.fragment, message.version) in merges for message in told)
    assert_up_to_date(cluster, "learner-3", 1)


@pytest.mark.parametrize("settings", [{}, {"broadcasts": "int4", "gradients": "int4"}], ids=["whole", "int4"])
@pytest.mark.parametrize("dying", [1, 2, 3])
def test_a_donor_that_dies_is_passed_over_for_the_next_and_the_syncer_is_the_last(restarted, dying, settings):
    lost = []

    def lose(sender, receiver, message):
        if isinstance(message, Donation) and receiver == "syncer" and len(lost) < dying:
            lost.append(sender)
            return True
        return False
    cluster, wire = restarted(lose, **settings)
    cluster.run()
    assert cluster.over
    assert asked(cluster) == ["learner-1", "learner-2", "learner-4", "syncer"][:dying + 1]
    told = [(message.fragment, message.version) for _, name, message in wire.said
            if name == "learner-3" and isinstance(message, Broadcast)]
    assert len(told) == len(set(told))
    assert_up_to_date(cluster, "learner-3", 1)


def test_a_donor_that_is_silent_is_not_waited_for(restarted):
    cluster, _ = restarted()
    while not asked(cluster):
        cluster.run(until=cluster.now + 0.001)
    assert cluster.syncer.peers["learner-1"].live
    effects = list(cluster.syncer.on_timer(peer_recovery.TIMER + "learner-1", cluster.now))
    assert [effect.message for effect in effects if isinstance(effect, Send)] \
        == [Donate(learner="learner-3")]
    assert effects[0].from_ == "learner-2"
    assert not list(cluster.syncer.on_timer(peer_recovery.TIMER + "learner-1", cluster.now))


@pytest.mark.parametrize("wrong", ["content", "digest", "version", "fragments"])
def test_a_donation_that_is_not_true_is_refused_and_the_next_peer_asked(restarted, wrong):
    cluster, _ = restarted(lambda *said: isinstance(said[2], Donation))
    syncer = cluster.syncer
    while not asked(cluster):
        cluster.run(until=cluster.now + 0.001)
    donor = syncer.peers["learner-1"]
    values = {name: array.copy() for state in syncer.fragments.states for name, array in state.value.items()}
    donation = Donation(learner="learner-3", versions=[state.version for state in syncer.fragments.states],
                        digests=[digest(state.value) for state in syncer.fragments.states])
    if wrong == "content":
        values[min(values)] = values[min(values)] + np.float32(1)
    elif wrong == "digest":
        donation.digests[0] = donation.digests[1]
    elif wrong == "version":
        donation.versions[0] += 1
    else:
        donation.versions.pop()
    effects = list(syncer.on_message(donor.connection, donation, values, cluster.now))
    assert effects[0].learner == "learner-1"
    assert [effect.from_ for effect in effects if isinstance(effect, Recovering)] == ["learner-2"]
    assert not any(isinstance(effect, Send) and isinstance(effect.message, Donation) for effect in effects)


def test_whoever_takes_the_newcomers_place_meanwhile_is_brought_up_to_date_too(restarted):
    cluster, _ = restarted()
    cluster.start_learner("learner-3")
    cluster.run()
    assert cluster.over
    assert_up_to_date(cluster, "learner-3", 2)


def test_only_who_was_told_all_that_is_committed_is_a_donor():
    origin = LearnerOrigin(0.0, 5, 0, 0)
    peers = {name: LearnerSession(name, 0, connection, 5, 5, [0, 0], 0.0, holds, origin) for name, connection,
             holds in (
        ("a", 1, [-1, -1]), ("b", 2, [3, 1]), ("c", None, [3, 2]), ("d", 4, [3, 2]),
        ("e", 5, [3, 2]), ("f", 6, [-1, -1]))}
    found = peer_recovery.Recoveries(TrainerConfig(recovery="peer", model="micro", fragments=2), peers)
    for expected in ("d", "e", "syncer"):
        effects = list(found.begin(peers["f"], [3, 2], 0.0))
        assert effects[0].from_ == expected
        assert ("f" in found) == (expected != "syncer")
    assert [effect.to for effect in found.begin(peers["a"], [3, 2], 0.0) if isinstance(effect, Send)] == [4]
    assert not [effect for effect in found.begin(peers["a"], [4, 2], 0.0) if isinstance(effect, Send)]


def test_the_syncer_tells_only_what_was_not_told_while_a_donor_was_waited_for(restarted):
    cluster, _ = restarted()
    while not asked(cluster):
        cluster.run(until=cluster.now + 0.001)
    syncer = cluster.syncer
    syncer.peers["learner-3"].holds[1] = syncer.fragments.states[1].version
    effects = [effect for donor in ("learner-1", "learner-2", "learner-4")
               for effect in syncer.on_timer(peer_recovery.TIMER + donor, cluster.now)]
    told = [effect.message.fragment for effect in effects
            if isinstance(effect, Send) and isinstance(effect.message, Broadcast)]
    assert told == [0, 2, 3]


def test_one_that_was_brought_up_to_date_is_told_what_changes(restarted):
    cluster, wire = restarted(gradients="int4", broadcasts="int4")
    cluster.run()
    told = [message for _, name, message in wire.said if name == "learner-3"]
    begun = next(index for index, message in enumerate(told) if isinstance(message, Donation))
    assert all(message.base == message.version - 1 for message in told[begun:] if isinstance(message, Broadcast))


def test_what_is_there_already_is_not_taken_from_a_donor(make_cluster):
    cluster = make_cluster()
    cluster.run(until=1.5)
    learner = cluster.learners["learner-2"]
    versions, steps = ([getattr(held, name) for held in learner.held] for name in ("version", "steps"))
    same = Donation(learner="learner-2", versions=versions, digests=[digest(held.base) for held in learner.held])
    bases = {name: array for held in learner.held for name, array in held.base.items()}
    learner._computing = False
    assert not [effect for effect in learner.on_message(same, bases, 1.5) if isinstance(effect, Event)]
    assert [held.steps for held in learner.held] == steps


def test_where_the_syncer_recovers_nobody_is_asked(make_cluster):
    cluster = make_cluster()
    cluster.run(until=1.5)
    cluster.start_learner("learner-3")
    cluster.run()
    assert not events(cluster, "recovering")
    assert not events(cluster, "donated")
    assert_up_to_date(cluster, "learner-3", 1)
