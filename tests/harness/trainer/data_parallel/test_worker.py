"""A data-parallel peer, fed by hand: what it tells of its state, whatever it is computing."""

import numpy as np

from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.data_parallel.worker import DataParallelWorker
from diloco_chaos.harness.trainer.protocol.messages import Fetch, Resume, State
from diloco_chaos.harness.trainers.core.effects import Send

CONFIG = TrainerConfig(mode="elastic_data_parallel", learners=2, model="quadratic", budget=10)


class Held:
    """A replica that is one number."""

    def __init__(self, value):
        self.value = value

    def state(self):
        return {"value:x": np.float32([self.value])}

    def load(self, state):
        self.value = float(state["value:x"][0])

    def read(self, names):
        return self.state()


def peer(value=1.0):
    return DataParallelWorker(CONFIG, "learner-1", 0, "token", Held(value))


def resume(epoch, step):
    return Resume(epoch=epoch, step=step, tokens=step * 2 * CONFIG.tokens_per_step_of("learner-1"), writes=False)


def told(peer, message, tensors=None):
    """(step, value) of the states that it sends when it hears this."""
    return [(effect.message.step, float(effect.tensors["value:x"][0]))
            for effect in peer.on_message(message, tensors or {}, 0.0)
            if isinstance(effect, Send) and isinstance(effect.message, State)]


def test_a_donor_that_still_computes_for_an_older_group_gives_what_it_begins_with_in_the_newer_one():
    donor = peer(value=1.0)
    assert told(donor, resume(epoch=1, step=0)) == []  # it computes a gradient now
    told(donor, resume(epoch=2, step=4), {"value:x": np.float32([7.0])})
    assert told(donor, Fetch(epoch=2)) == [(4, 7.0)]


def test_a_donor_that_goes_on_with_its_own_state_gives_that():
    donor = peer(value=1.0)
    told(donor, resume(epoch=1, step=0))
    told(donor, resume(epoch=2, step=0))
    assert told(donor, Fetch(epoch=2)) == [(0, 1.0)]
