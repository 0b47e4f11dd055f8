"""The hub of data parallelism believes nobody: what is no hello, no gradient and no state of this run harms nobody."""

import numpy as np
import pytest

from diloco_chaos.harness.base.tensors import digest
from diloco_chaos.harness.record.tape.events import CheckpointBegun, CheckpointComplete, CheckpointIncomplete, Event
from diloco_chaos.harness.trainer.algorithm.codec import Codec
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.data_parallel.blocking import DataParallel
from diloco_chaos.harness.trainer.data_parallel.elastic import ElasticDataParallel
from diloco_chaos.harness.trainer.data_parallel.group_checkpoint import GroupCheckpoint
from diloco_chaos.harness.trainer.data_parallel.hub import averaged
from diloco_chaos.harness.trainer.model.replica import GRADIENT, VALUE
from diloco_chaos.harness.trainer.protocol.messages import Average, Clock, Fetch, Finish, Gradient, Hello, Resume, State
from diloco_chaos.harness.trainers.core.effects import Close, Commit, Save, Send, Timer

CONFIG = TrainerConfig(mode="data_parallel", learners=2, model="quadratic", budget=4, checkpoint_every=2)
INITIAL = CONFIG.spec.initial(0)
SIZE = sum(array.size for array in INITIAL.values())


def hello(name, incarnation=0, step=0):
    return Hello(token="", node=name, incarnation=incarnation, step=step, tokens=0, position=0, versions=[], steps=[])


def gradient(value=1.0, size=SIZE):
    return {GRADIENT: np.full(size, value, np.float32)}


def state(value=2.0):
    return {VALUE + name: np.full_like(array, value) for name, array in INITIAL.items()}


def same(left, right):
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


class Talk:
    """A hub, and what it answers: the last input's effects. Its timers are a test's to fire."""

    def __init__(self, kind=DataParallel, saved=None, **settings):
        self.hub = kind(CONFIG.model_copy(update=settings), saved or GroupCheckpoint(0, 0, state(), {}))
        self.effects = list(self.hub.start(0.0))
        self.now = 0.0

    def say(self, connection, message, tensors=None):
        self.now += 0.01
        self.effects = list(self.hub.on_message(connection, message, tensors or {}, self.now))
        return self

    def together(self):
        for number, name in enumerate(self.hub.config.names, start=1):
            self.say(number, hello(name))
        return self

    def lose(self, *connections):
        for connection in connections:
            self.now += 0.01
            self.effects = list(self.hub.on_lost(connection, "broken", self.now))
        return self

    def fire(self):
        self.effects = list(self.hub.on_timer("regroup", self.now))
        return self

    def timers(self):
        return [effect.at for effect in self.effects if isinstance(effect, Timer)]

    def sent(self, kind):
        return [effect for effect in self.effects if isinstance(effect, Send) and isinstance(effect.message, kind)]

    def told(self, event):
        return [effect for effect in self.effects
                if isinstance(effect, Event) and effect.event == event]

    def closed(self):
        return [effect.to for effect in self.effects if isinstance(effect, Close)]


@pytest.fixture
def talk():
    return Talk()


def epoch(talk):
    return talk.hub._epoch


def test_nobody_begins_before_all_are_there_and_then_all_get_the_same_state(talk):
    assert not talk.say(1, hello("learner-1")).sent(Resume)
    resumes = talk.say(2, hello("learner-2")).sent(Resume)
    assert [resume.to for resume in resumes] == [1, 2]
    assert [resume.message.writes for resume in resumes] == [True, False]
    assert all(resume.tensors is talk.hub.saved.state for resume in resumes)


def test_a_step_is_the_mean_of_all(talk):
    talk.together().say(1, Gradient(epoch=1, step=0, number=1), gradient(1.0))
    assert not talk.sent(Average)
    averages = talk.say(2, Gradient(epoch=1, step=0, number=1), gradient(2.0)).sent(Average)
    assert [average.to for average in averages] == [1, 2]
    assert (averages[0].tensors["gradient"] == 1.5).all()
    assert talk.sent(Clock)[0].message.steady


BOTH = {"gradients": "bfloat16", "broadcasts": "bfloat16"}


def test_gradients_that_travel_as_bfloat16_are_averaged_as_they_were_read_and_so_does_their_mean():
    talk = Talk(**BOTH).together()
    codec, fine = Codec("bfloat16"), [gradient(1 + 1 / 512), gradient(1 + 3 / 512)]
    for peer, one in enumerate(fine, start=1):
        talk.say(peer, Gradient(epoch=1, step=0, number=1), codec.pack(one, ""))
    read = [codec.unpack(codec.pack(one, ""), CONFIG.gradient_shapes) for one in fine]
    sent = codec.send(averaged(read), {}, "")
    assert not np.array_equal(read[0][GRADIENT], fine[0][GRADIENT])
    assert all(same(average.tensors, sent.payload) for average in talk.sent(Average))
    (merge,) = talk.told("merge")
    assert merge.digest == digest(sent.read)
    assert [part.digest for part in merge.contributions] == [digest(one) for one in read]


@pytest.mark.parametrize("tensors", [gradient(), Codec("int8").pack(gradient(), ""), {},
                                     Codec("bfloat16").pack(gradient(np.nan), ""),
                                     Codec("bfloat16").pack(gradient(size=SIZE - 1), "")], ids=str)
def test_what_is_no_gradient_in_bfloat16_costs_its_sender_the_connection(tensors):
    talk = Talk(**BOTH).together().say(2, Gradient(epoch=1, step=0, number=1), tensors)
    assert talk.closed() == [2]
    assert talk.told("refused")


def test_the_first_frame_must_be_a_hello_of_a_learner_of_this_run(talk):
    assert talk.say(1, Gradient(epoch=1, step=0, number=1), gradient()).closed() == [1]
    assert talk.say(2, hello("learner-9")).closed() == [2]


def test_an_older_incarnation_does_not_come_back(talk):
    talk.say(1, hello("learner-1", 1)).say(2, hello("learner-1", 0))
    (refused,) = [effect for effect in talk.effects if isinstance(effect, Close)]
    assert (refused.to, refused.final) == (2, True)
    assert talk.told("refused")[0].reason == "old incarnation"


def test_nor_does_it_at_the_hubs_successor():
    talk = Talk(saved=GroupCheckpoint(2, 2048, state(), {"learner-1": 3}, resumed=True))
    assert talk.say(1, hello("learner-1", 2)).closed() == [1]


@pytest.mark.parametrize("tensors", [gradient(np.nan), gradient(np.inf), gradient(size=SIZE + 1), {},
                                     {"gradient": np.ones((1, SIZE), np.float32)}], ids=str)
def test_what_is_no_gradient_costs_its_sender_the_connection_and_is_not_averaged(talk, tensors):
    talk.together().say(1, Gradient(epoch=1, step=0, number=1), gradient())
    talk.say(2, Gradient(epoch=1, step=0, number=1), tensors)
    assert talk.closed() == [2]
    assert talk.told("refused")
    assert talk.told("lost")
    assert not talk.sent(Average)


@pytest.mark.parametrize("message", [Gradient(epoch=0, step=0, number=1), Gradient(epoch=1, step=1, number=1),
                                     Gradient(epoch=9, step=0, number=1)], ids=str)
def test_a_gradient_of_another_group_or_step_is_void(talk, message):
    talk.together().say(1, Gradient(epoch=1, step=0, number=1), gradient()).say(2, message, gradient())
    assert talk.effects == []


@pytest.mark.parametrize("tensors", [state(np.nan), {}, {VALUE + "x": np.ones(3, np.float32)}], ids=str)
def test_what_is_no_state_is_not_committed_and_costs_its_sender_the_connection(talk, tensors):
    talk.together().say(1, State(epoch=1, step=2, tokens=99, digest=digest(tensors)), tensors)
    assert talk.told("refused")[0].reason == "not a state of this model"
    assert talk.closed() == [1]
    assert Commit not in map(type, talk.effects)
    assert talk.hub.saved.step == 0


def test_one_that_was_refused_begins_with_the_last_checkpoint_like_all_others(talk):
    resumes = talk.together().say(2, Gradient(epoch=1, step=0, number=1), gradient(np.nan)).say(3, hello("learner-2"))
    assert {resume.to: same(resume.tensors, talk.hub.saved.state) for resume in resumes.sent(Resume)} == {
        1: True, 3: True}


@pytest.mark.parametrize(("step", "tokens"), [(10**9, 0), (0, 10**15)])
def test_a_state_that_is_ahead_of_the_run_neither_is_kept_nor_ends_it(talk, step, tokens):
    talk.together().say(1, State(epoch=1, step=step, tokens=tokens, digest=digest(state())), state())
    assert talk.told("refused")[0].reason.startswith("impossible state")
    assert talk.hub.saved.step == 0
    assert not talk.hub.finished


def test_a_state_whose_digest_is_another_is_not_committed(talk):
    talk.together().say(1, State(epoch=1, step=2, tokens=99, digest="0" * 32), state())
    assert talk.told("refused")[0].reason == "not a state of this model"


def test_the_last_state_ends_the_run_once_it_is_committed(talk):
    tokens = CONFIG.budget_tokens
    reached(talk.together(), 4, tokens).say(1, State(epoch=1, step=4, tokens=tokens, digest=digest(state(3.0))),
                                            state(3.0))
    kinds = [type(effect) for effect in talk.effects]
    assert kinds.index(Commit) < kinds.index(Timer), "nobody is told before"
    assert isinstance(talk.effects[-2].message, Finish)


def reached(talk, step, tokens):
    """The same, so far into its training."""
    talk.hub.step, talk.hub.tokens = step, tokens
    return talk


def checkpoints(talk, *steps):
    """The kinds of effects of each."""
    told = []
    for step in steps:
        message = State(epoch=1, step=step, tokens=CONFIG.tokens_of_all * step, digest=digest(state()))
        told.append([type(effect) for effect in reached(talk, step, message.tokens).say(1, message, state()).effects])
    return told


def test_the_first_checkpoint_at_or_after_where_one_is_due_is_one_of_the_whole_run():
    talk = Talk(checkpoint_interval=3, budget=99).together()
    assert checkpoints(talk, 2, 4, 5, 6) == [
        [Commit], [Commit, CheckpointBegun, Save], [Commit], [Commit, CheckpointIncomplete, CheckpointBegun, Save]]
    assert [begun.step for begun in talk.told("checkpoint_begun")] == [6]
    assert talk.told("checkpoint_incomplete") == [
        CheckpointIncomplete(checkpoint=1, without="syncer")]  # it is not safe yet, and overtaken
    (save,) = [effect for effect in talk.effects if isinstance(effect, Save)]
    done = [*talk.hub.on_saved(save.checkpoint, 9.0)]
    assert (save.keep, done) == (0, [CheckpointComplete(checkpoint=2)])


def test_where_no_cuts_are_asked_for_or_the_run_is_over_a_checkpoint_is_the_hubs_alone():
    assert checkpoints(Talk(checkpoint_interval=0, budget=99).together(), 2, 98) == [[Commit], [Commit]]
    (last,) = checkpoints(Talk(checkpoint_interval=1, budget=2).together(), 2)
    assert Save not in last
    assert last[-1] is Timer


@pytest.fixture
def elastic():
    """Three peers at work on their first step."""
    return Talk(ElasticDataParallel, learners=3).together()


def groups(talk):
    return [(event.step, event.learners) for event in talk.told("grouped")]


def donated(talk, step=0):
    """The donor's answer."""
    tokens = CONFIG.tokens_per_step_of("learner-1") * step * 3
    return State(epoch=epoch(talk), step=step, tokens=tokens, digest=digest(state())), state()


def test_an_elastic_group_takes_a_connection_back_that_was_away_for_a_moment(elastic):
    resumes = elastic.lose(2).say(4, hello("learner-2")).sent(Resume)
    assert [(resume.to, resume.tensors) for resume in resumes] == [(1, {}), (4, {}), (3, {})]
    assert elastic.fire().effects == []  # of the rendezvous that nobody needs any more


def test_an_elastic_group_is_formed_anew_as_soon_as_a_connection_ends(elastic):
    assert elastic.lose(2).timers() == [pytest.approx(elastic.now + elastic.hub.config.reconfiguration)]
    assert groups(elastic.fire()) == [(0, ["learner-1", "learner-3"])]


def test_two_that_go_together_are_left_out_together(elastic):
    assert elastic.lose(2, 3).timers() == []  # the first of them has set the time
    assert groups(elastic.fire()) == [(0, ["learner-1"])]


def test_one_that_comes_back_as_a_new_process_meanwhile_begins_with_what_another_has(elastic):
    elastic.lose(2).say(4, hello("learner-2", 1))
    assert elastic.timers() == []
    assert [send.to for send in elastic.fire().sent(Fetch)] == [1]
    resumes = elastic.say(1, *donated(elastic)).sent(Resume)
    assert {resume.to: bool(resume.tensors) for resume in resumes} == {1: False, 4: True, 3: False}


def test_one_that_dies_again_before_the_group_is_formed_is_left_out(elastic):
    elastic.lose(2).say(4, hello("learner-2", 1)).lose(4)
    assert groups(elastic.fire()) == [(0, ["learner-1", "learner-3"])]


def test_where_the_donor_dies_while_it_is_asked_the_next_one_is(elastic):
    elastic.lose(2).say(4, hello("learner-2", 1)).fire()
    assert elastic.lose(1).timers() == [pytest.approx(elastic.now + elastic.hub.config.reconfiguration)]
    assert [send.to for send in elastic.fire().sent(Fetch)] == [3]
    assert groups(elastic.say(3, *donated(elastic))) == [(0, ["learner-2", "learner-3"])]


def test_one_whose_gradient_was_refused_begins_with_what_another_has_though_it_is_where_all_are(elastic):
    elastic.say(2, Gradient(epoch=1, step=0, number=1), gradient(np.nan)).say(4, hello("learner-2"))
    assert [send.to for send in elastic.fire().sent(Fetch)] == [1]
    resumes = elastic.say(1, *donated(elastic)).sent(Resume)
    assert {resume.to: bool(resume.tensors) for resume in resumes} == {1: False, 4: True, 3: False}
    elastic.lose(4)
    assert [resume.tensors for resume in elastic.say(5, hello("learner-2")).sent(Resume)] == [{}, {}, {}]  # all is well


def test_where_a_donors_state_is_refused_the_next_one_is_asked(elastic):
    elastic.lose(2).say(4, hello("learner-2", 1)).fire()
    message, _ = donated(elastic)
    elastic.say(1, message, state(np.nan))
    assert elastic.closed() == [1]
    assert [send.to for send in elastic.fire().sent(Fetch)] == [3]


def test_where_nobody_is_believed_all_begin_with_the_checkpoint(elastic):
    elastic.say(1, Gradient(epoch=1, step=0, number=1), gradient(np.nan)).say(4, hello("learner-1"))
    for donor in (2, 3):
        assert [send.to for send in elastic.fire().sent(Fetch)] == [donor]
        message, _ = donated(elastic)
        elastic.say(donor, message, state(np.nan)).say(donor + 3, hello(f"learner-{donor}"))
    assert all(same(resume.tensors, elastic.hub.saved.state) for resume in elastic.fire().sent(Resume))
    assert groups(elastic) == [(0, ["learner-1", "learner-2", "learner-3"])]


def test_what_a_donor_says_after_its_group_has_gone_on_is_void(elastic):
    elastic.lose(2).say(4, hello("learner-2", 1)).fire()
    late = donated(elastic)
    assert groups(elastic.lose(3, 4).fire()) == [(0, ["learner-1"])]
    assert elastic.say(1, *late).effects == []


def test_one_that_goes_after_a_moments_absence_is_given_the_whole_time_again(elastic):
    elastic.lose(2).say(4, hello("learner-2"))
    assert elastic.lose(4).timers() == [pytest.approx(elastic.now + elastic.hub.config.reconfiguration)]


def test_where_all_are_gone_the_first_to_come_waits_for_the_others(elastic):
    assert elastic.lose(1, 2, 3).fire().told("grouped") == []
    assert elastic.say(4, hello("learner-1", 1)).timers() == [
        pytest.approx(elastic.now + elastic.hub.config.reconfiguration)]
    assert groups(elastic.say(5, hello("learner-3", 1)).fire()) == [(0, ["learner-1", "learner-3"])]


def test_a_mean_is_in_float32_whatever_goes_in():
    mean = averaged([gradient(1.0), gradient(3e38), gradient(-3e38)])["gradient"]
    assert mean.dtype == np.float32
    assert np.isfinite(mean).all()
