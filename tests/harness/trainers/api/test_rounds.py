"""A trainer that works in rounds: nobody is waited for who is gone, and nothing void counts."""

from collections.abc import Mapping

import numpy as np
import pytest

from diloco_chaos.harness.base.tensors import digest
from diloco_chaos.harness.record.storage import checkpoint
from diloco_chaos.harness.record.storage.disk import CheckpointError, Content
from diloco_chaos.harness.record.tape.events import Finished, Lost, Merge, Ready, Refused, Resumed, Steady, Step
from diloco_chaos.harness.simulation.disk import MemoryDisk
from diloco_chaos.harness.trainers.api.rounds import (
    Contribution,
    RoundCoordinator,
    RoundTrainer,
    RoundWorker,
    State,
)
from diloco_chaos.harness.trainers.api.settings import SimpleSettings
from diloco_chaos.harness.trainers.core.effects import Close, Commit, Compute, Send, Stop, Timer
from diloco_chaos.harness.trainers.wire.messages import Farewell, Introduction

SETTINGS = SimpleSettings(learners=3, budget=4, step_time="0.1s", heartbeat_timeout="3s")
TOKEN = "t"


class Adding(RoundTrainer):
    """A step gives the learner's number, and a round adds them up."""

    name = "adding"
    settings_type = SimpleSettings

    def initial(self):
        return number(0.0)

    def step(self, learner, round_, state):
        return number(learner), float(round_)

    def merge(self, state, contributions: Mapping):
        return number(state["n"][0] + sum(one["n"][0] for one in contributions.values()))


def number(value):
    return {"n": np.full(1, value, np.float32)}


class Hub:
    """A coordinator, what it asked for, and the learners that a test plays."""

    def __init__(self, disk=None):
        self.disk, self.told = disk or MemoryDisk(), []
        self.core = RoundCoordinator(Adding(SETTINGS), number(0.0), self.disk)
        self.now = 0.0
        self.do(self.core.start(0.0))

    def do(self, effects):
        new = list(effects)
        for effect in new:
            if isinstance(effect, Commit):
                list(checkpoint.saving_both(self.disk, effect.name, Content(effect.tensors, effect.meta)))
        self.told += new
        return new

    def hello(self, connection, learner, incarnation=0):
        return self.say(connection, Introduction(token=TOKEN, node=learner, incarnation=incarnation))

    def give(self, connection, round_, value, count=1):
        return self.say(connection, Contribution(round=round_, number=count), number(value))

    def say(self, connection, message, tensors=None):
        return self.do(self.core.on_message(connection, message, tensors or {}, self.now))

    def of(self, kind):
        return [effect for effect in self.told if isinstance(effect, kind)]


@pytest.fixture
def hub():
    hub = Hub()
    for connection in (1, 2, 3):
        hub.hello(connection, f"learner-{connection}")
    return hub


def test_a_round_is_over_when_everybody_who_is_there_has_contributed(hub):
    hub.give(1, 0, 1.0)
    hub.give(2, 0, 2.0)
    assert hub.of(Merge) == []
    said = hub.give(3, 0, 3.0)
    [merge] = hub.of(Merge)
    assert [part.learner for part in merge.contributions] == ["learner-1", "learner-2", "learner-3"]
    assert (merge.version, merge.processed, merge.digest) == (1, 3, digest(number(6.0)))
    kinds = [type(effect) for effect in said]
    assert kinds.index(Commit) < kinds.index(Merge) < kinds.index(Send), "told only when it is committed and recorded"
    assert {effect.to for effect in said if isinstance(effect, Send)} == {1, 2, 3}


def test_it_is_steady_when_all_who_begin_have_been_in_a_round(hub):
    for connection in (1, 2, 3):
        assert not hub.core.steady
        hub.give(connection, 0, 1.0)
    assert hub.core.steady
    assert len(hub.of(Steady)) == 1


def test_nobody_waits_for_a_learner_that_is_gone(hub):
    hub.give(1, 0, 1.0)
    hub.give(2, 0, 2.0)
    hub.do(hub.core.on_lost(3, "reset", 0.5))
    assert [part.learner for part in hub.of(Merge)[0].contributions] == ["learner-1", "learner-2"]


def test_what_a_learner_gave_before_it_was_lost_does_not_count(hub):
    hub.give(3, 0, 3.0)
    hub.do(hub.core.on_lost(3, "reset", 0.5))
    hub.give(1, 0, 1.0)
    hub.give(2, 0, 2.0)
    assert hub.of(Merge)[0].digest == digest(number(3.0))


def test_a_contribution_to_another_round_or_from_a_stranger_is_void(hub):
    for connection, round_ in ((1, 1), (1, -1), (9, 0)):
        hub.give(connection, round_, 5.0)
    hub.give(2, 0, 2.0)
    hub.give(3, 0, 3.0)
    assert hub.of(Merge) == []


def test_a_contribution_that_comes_twice_counts_once(hub):
    for connection in (1, 1, 2, 3):
        hub.give(connection, 0, 1.0)
    assert hub.of(Merge)[0].digest == digest(number(3.0))
    hub.give(1, 0, 1.0)
    assert len(hub.of(Merge)) == 1


def test_whoever_is_silent_for_too_long_is_gone(hub):
    hub.give(1, 0, 1.0)
    hub.give(2, 0, 2.0)
    hub.now = 2.0
    for connection in (1, 2):
        hub.say(connection, Contribution(round=-1, number=1))
    said = hub.do(hub.core.on_timer("sign", 3.5))
    assert [effect.to for effect in said if isinstance(effect, Close)] == [3]
    assert [lost.learner for lost in hub.of(Lost)] == ["learner-3"]
    assert len(hub.of(Merge)) == 1


def test_a_new_connection_takes_the_place_of_the_old_one_and_a_new_process_for_good(hub):
    closed = [effect for effect in hub.hello(4, "learner-1") if isinstance(effect, Close)]
    assert [(effect.to, effect.final) for effect in closed] == [(1, False)]
    closed = [effect for effect in hub.hello(5, "learner-1", 1) if isinstance(effect, Close)]
    assert [(effect.to, effect.final) for effect in closed] == [(4, True)]
    closed = [effect for effect in hub.hello(6, "learner-1", 0) if isinstance(effect, Close)]
    assert [(effect.to, effect.final) for effect in closed] == [(6, True)], "an earlier process"


def test_an_earlier_process_is_refused_when_its_successor_is_away_and_by_the_next_coordinator_too(hub):
    hub.hello(5, "learner-1", 1)
    for connection in (5, 2, 3):
        hub.give(connection, 0, 1.0)
    hub.do(hub.core.on_lost(5, "reset", 1.0))
    for one in (hub, Hub(hub.disk)):
        said = one.hello(6, "learner-1", 0)
        assert [effect.final for effect in said if isinstance(effect, Close)] == [True]
        assert one.of(Refused)[-1].reason == "old incarnation"


def test_a_stranger_is_refused(hub):
    assert [type(effect) for effect in hub.hello(7, "learner-9")] == [Close]


def test_a_new_coordinator_goes_on_from_what_was_committed(hub):
    for connection in (1, 2, 3):
        hub.give(connection, 0, 1.0)
    again = Hub(hub.disk)
    [resumed] = again.of(Resumed)
    assert (resumed.versions, resumed.processed, resumed.digests) == ([1], 3, [digest(number(3.0))])


def test_a_coordinator_whose_files_are_all_damaged_refuses_to_begin_anew(hub):
    for connection in (1, 2, 3):
        hub.give(connection, 0, 1.0)
    for name in list(hub.disk.names()):
        hub.disk.alter(name, b"garbage")
    with pytest.raises(CheckpointError):
        Hub(hub.disk)


def test_training_ends_with_its_budget_and_everybody_is_told(hub):
    for round_ in range(4):
        for connection in (1, 2, 3):
            said = hub.give(connection, round_, 1.0, round_ + 1)
    assert hub.of(Finished) == [Finished(step=4, processed=12, merged=12)]
    assert {effect.to for effect in said if isinstance(effect, Send) and effect.message.over} == {1, 2, 3}
    assert not any(isinstance(effect, Stop) for effect in said)


def ended(hub):
    """Training is over, at 10 s."""
    hub.now = 10.0
    for round_ in range(12):
        for connection in () if hub.core.finished else list(hub.core._by_connection):
            hub.give(connection, round_, 1.0, round_ + 1)
    assert hub.core.finished
    return hub


def test_it_goes_when_everybody_has_said_that_it_was_read(hub):
    ended(hub)
    assert hub.say(1, Farewell()) == hub.say(2, Farewell()) == []
    assert hub.do(hub.core.on_lost(1, "it ended", 10.1)) == [], "of the end nothing more is told"
    assert hub.say(3, Farewell()) == [Stop("finished")]


def test_one_whose_connection_was_lost_comes_back_to_hear_it(hub):
    ended(hub)
    hub.do(hub.core.on_lost(2, "closed by the peer", 10.0))
    hub.say(1, Farewell())
    hub.say(3, Farewell())
    [told] = hub.hello(9, "learner-2")
    assert told.to == 9
    assert told.message.over
    assert hub.say(9, Farewell()) == [Stop("finished")]


def test_one_that_was_lost_shortly_before_is_waited_for_and_one_that_is_gone_for_long_is_not(hub):
    hub.do(hub.core.on_lost(2, "killed", 1.0))
    hub.do(hub.core.on_lost(3, "killed", 9.0))
    ended(hub)
    assert hub.say(1, Farewell()) == []
    assert hub.do(hub.core.on_timer("leave", 13.0)) == [Stop("finished")]


def test_with_nobody_there_it_goes_at_once(hub):
    hub.do(hub.core.on_lost(2, "killed", 1.0))
    hub.do(hub.core.on_lost(3, "killed", 1.0))
    hub.core._by_connection.pop(1)
    hub.core.peers.clear()
    hub.core._left.clear()
    assert list(hub.core._finish(10.0, 4, 12, 12))[-1] == Stop("finished")


def test_strangers_and_timers_of_before_say_nothing_after_the_end(hub):
    ended(hub)
    assert hub.hello(9, "learner-99") == []
    assert hub.say(9, Farewell()) == []
    assert hub.do(hub.core.on_timer("heartbeat", 11.0)) == []


class Peer:
    """A worker, and what it asked for."""

    def __init__(self):
        self.core = RoundWorker(Adding(SETTINGS), "learner-2", 0, TOKEN)

    def state(self, round_, now=0.0, over=False):
        return list(self.core.on_message(State(round=round_, steady=True, over=over), number(0.0), now))

    def step(self, now=0.0):
        [compute] = self.core.on_timer("pace", now)
        assert isinstance(compute, Compute)
        return list(self.core.on_computed(self.core.compute(compute), now, now + 0.01))


def test_a_learner_takes_one_step_for_each_round_and_gives_it_again_when_it_is_asked():
    peer = Peer()
    assert [type(effect) for effect in peer.state(0)] == [Ready, Timer]
    record, send = peer.step()
    assert (record.event, record.step, record.position) == ("step", 1, 0)
    assert (send.message.round, send.tensors["n"][0]) == (0, 2.0)
    assert peer.state(0, 1.0) == [send]
    assert [type(effect) for effect in peer.state(1, 1.1)] == [Timer]


def test_while_it_computes_it_says_that_it_is_there_and_goes_on_to_the_newest_round():
    peer = Peer()
    peer.state(0)
    [compute] = peer.core.on_timer("pace", 0.0)
    result = peer.core.compute(compute)
    [sign] = peer.state(3, 0.05)
    assert sign.message.round == -1
    assert [type(effect) for effect in peer.core.on_computed(result, 0.0, 0.1)] == [Step, Timer], "its step is void"


def test_it_keeps_its_pace():
    peer = Peer()
    peer.state(0, 5.0)
    peer.step(5.0)
    [timer] = peer.state(1, 5.02)
    assert timer.at == pytest.approx(5.1)


def test_it_ends_when_training_is_over():
    assert [type(effect) for effect in Peer().state(4, over=True)] == [Finished, Send, Stop]
