"""Bugs that are planted into the inner optimizer of the real model, and into what it trains on."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from diloco_chaos.harness.trainer.data_parallel import worker
from diloco_chaos.harness.trainer.learner.learner import Learner
from diloco_chaos.harness.trainer.model import transformer
from diloco_chaos.harness.trainer.model.corpus import Corpus
from diloco_chaos.harness.trainer.model.transformer import Transformer
from planting import Mutant, finds

MICRO = {"model": "micro", "corpus": "markov", "batch": 2, "fragments": 4, "budget": "60 steps", "warmup": "10 steps"}
WARM = MICRO | {"warm_start": "10 steps", "budget": "90 steps"}
DILOCO, ELASTIC = MICRO | {"mode": "diloco"}, MICRO | {"mode": "elastic_data_parallel"}
KILL = {"kill": "learner-2", "at": "1500ms", "restart_after": "500ms"}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def fresh(replica):
    for tensor in replica._moments().values():
        tensor.zero_()


# -- moments and counts --------------------------------------------------------------------------------------------

def moments_are_dropped_at_every_receipt(patch):
    usual = Learner._receive

    def receive(self, message, payload):
        yield from usual(self, message, payload)
        fresh(self.replica)
    patch.setattr(Learner, "_receive", receive)


def second_moments_alone_are_dropped(patch):
    usual = Learner._receive

    def receive(self, message, payload):
        yield from usual(self, message, payload)
        self.replica._second.zero_()
    patch.setattr(Learner, "_receive", receive)


def a_receipt_overwrites_some_moments(patch):
    """Every fourth value, and the count goes on."""
    usual = Transformer.write

    def write(self, tensors):
        usual(self, tensors)
        self._first[::4] = 0.0
    patch.setattr(Transformer, "write", write)


def moments_fade_between_receipts(patch):
    """Now and then, where nothing is received."""
    usual = Transformer.train

    def train(self, position, lr):
        if position % 10 == 9:
            self._second.mul_(0.1)
        return usual(self, position, lr)
    patch.setattr(Transformer, "train", train)


def a_new_process_keeps_the_moments_of_the_warm_start(patch):
    """It begins with stale ones."""
    usual = Transformer.load
    patch.setattr(Transformer, "load", lambda self, state: usual(self, state) if state else None)


def the_warm_start_brings_no_moments(patch):
    usual = Learner.__init__

    def init(self, *given):
        usual(self, *given)
        fresh(self.replica)
    patch.setattr(Learner, "__init__", init)


def one_begins_with_other_moments_than_the_rest(patch):
    usual = Learner.__init__

    def init(self, *given):
        usual(self, *given)
        if self.name == "learner-2":
            self.replica._first.mul_(-1)
    patch.setattr(Learner, "__init__", init)


def a_restart_in_a_group_drops_the_moments(patch):
    usual = worker.DataParallelWorker._resume

    def resume(self, message, tensors, now):
        yield from usual(self, message, {name: array for name, array in tensors.items()
                                         if not (self.incarnation and name.startswith("adamw/"))}, now)
    patch.setattr(worker.DataParallelWorker, "_resume", resume)


def the_bias_is_corrected_as_in_the_first_step(patch):
    fused = torch._fused_adamw_

    def first_again(weights, gradients, first, second, most, counts, **settings):
        fused(weights, gradients, first, second, most, [torch.ones_like(count) for count in counts], **settings)
    patch.setattr(torch, "_fused_adamw_", first_again)


def the_count_begins_again(patch):
    usual = Learner._receive

    def receive(self, message, payload):
        yield from usual(self, message, payload)
        self.replica._count.zero_()
    patch.setattr(Learner, "_receive", receive)


# -- the step ------------------------------------------------------------------------------------------------------

def stepped(**settings):
    def plant(patch):
        fused = torch._fused_adamw_
        patch.setattr(torch, "_fused_adamw_", lambda *given, **usual: fused(*given, **usual | settings))
    return plant


def one_takes_another_rate(patch):
    usual = Transformer._step
    patch.setattr(Transformer, "_step", lambda self, lr, norm: usual(
        self, lr * 1.01 if self._learner == 1 else lr, norm))


def the_gradient_is_not_clipped(patch):
    patch.setattr(transformer, "_CLIP", 1e9)


def weights_are_rounded_to_bfloat16(patch):
    usual = Transformer._step

    def step(self, lr, norm):
        usual(self, lr, norm)
        before, _, *rest = self._newest
        with torch.no_grad():
            self._flat.copy_(self._flat.to(torch.bfloat16).to(torch.float32))
        self._newest = before, self._seen(self._flat, self._first, self._second), *rest
    patch.setattr(Transformer, "_step", step)


# -- the batch -----------------------------------------------------------------------------------------------------

def batches_of_another_learner(patch):
    usual = Corpus.batch
    patch.setattr(Corpus, "batch", lambda self, learner, position: usual(self, (learner + 1) % 3, position))


def one_batch_again_and_again(patch):
    usual = Corpus.batch
    patch.setattr(Corpus, "batch", lambda self, learner, position: usual(self, learner, 0))


def a_restart_draws_the_order_anew(patch):
    """The random state that the data is shuffled by is not that of the processes before."""
    usual = Transformer.load

    def load(self, state):
        usual(self, state)
        if not state:
            other = SimpleNamespace(**vars(self._corpus))
            other._order = np.random.default_rng(99).permutation(self._corpus._order)
            other._cut = lambda starts: Corpus._cut(other, starts)
            other.batch = lambda learner, position: Corpus.batch(other, learner, position)
            self._corpus = other
    patch.setattr(Transformer, "load", load)


MUTANTS = [Mutant(plant, "inner_steps_correct", faults, cluster, name) for plant, faults, cluster, name in [
    (moments_are_dropped_at_every_receipt, [], MICRO, ""), (moments_are_dropped_at_every_receipt, [], DILOCO, ""),
    (second_moments_alone_are_dropped, [], MICRO, ""), (a_receipt_overwrites_some_moments, [], MICRO, ""),
    (moments_fade_between_receipts, [], DILOCO, ""),
    (a_new_process_keeps_the_moments_of_the_warm_start, [KILL], WARM, ""),
    (the_warm_start_brings_no_moments, [], WARM, ""), (one_begins_with_other_moments_than_the_rest, [], WARM, ""),
    (a_restart_in_a_group_drops_the_moments, [KILL], ELASTIC, ""),
    (the_bias_is_corrected_as_in_the_first_step, [], MICRO, ""), (the_count_begins_again, [], MICRO, ""),
    (stepped(weight_decay=0.1), [], MICRO, "weights decay"), (stepped(beta2=0.999), [], MICRO, "another beta"),
    (stepped(eps=1e-3), [], MICRO, "another epsilon"), (stepped(maximize=True), [], MICRO, "uphill"),
    (one_takes_another_rate, [], MICRO, ""), (one_takes_another_rate, [], ELASTIC, ""),
    (the_gradient_is_not_clipped, [], MICRO, ""), (weights_are_rounded_to_bfloat16, [], MICRO, ""),
    (batches_of_another_learner, [], MICRO, ""), (batches_of_another_learner, [], ELASTIC, ""),
    (one_batch_again_and_again, [], MICRO, ""), (a_restart_draws_the_order_anew, [KILL], MICRO, "")]]

test_a_bug_of_the_inner_steps_is_found = finds(MUTANTS)
