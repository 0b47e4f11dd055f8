"""Which batch of its shard a learner trains on, and what it tells of that."""

from diloco_chaos.harness.base.tensors import digest
from diloco_chaos.harness.record.tape.events import Step
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.protocol.messages import Broadcast, Welcome
from diloco_chaos.harness.trainer.runtime.cores import learner_core
from diloco_chaos.harness.trainer.runtime.replica_factory import replicas
from diloco_chaos.harness.trainers.core.effects import Compute

CONFIG = TrainerConfig(model="quadratic", learners=2, fragments=1, step_time=0.0)


def a_learner():
    """It holds everything, and has begun its first step."""
    value = CONFIG.spec.initial(0)
    learner = learner_core(CONFIG, "learner-1", 0, "token", replicas(CONFIG, None, value)(0))
    told = Broadcast(fragment=0, version=0, digest=digest(value))
    effects = [*learner.on_connected(0.0), *learner.on_message(told, value, 0.1)]
    return learner, next(effect for effect in effects if isinstance(effect, Compute))


def welcome(position):
    return Welcome(step=0, tokens=0, position=position, steady=False)


def test_a_lease_that_comes_while_a_step_is_under_way_counts_from_the_next_one_on():
    learner, step = a_learner()
    list(learner.on_message(welcome(40), {}, 0.2))
    effects = list(learner.on_computed(learner.compute(step), 0.1, 0.3))
    [told] = [effect for effect in effects if isinstance(effect, Step)]
    assert (step.position, told.position) == (0, 0), "it says what it did train on"
    [then] = [effect for effect in effects if isinstance(effect, Compute)]
    assert then.position == 40


def test_without_one_it_goes_on_with_the_next_batch():
    learner, step = a_learner()
    effects = list(learner.on_computed(learner.compute(step), 0.1, 0.3))
    assert [effect.position for effect in effects if isinstance(effect, Compute)] == [1]
