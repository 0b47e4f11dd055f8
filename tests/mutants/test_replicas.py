"""Bugs that are planted into data parallelism: replicas that are no longer the same, wrong means and counts."""

import numpy as np

from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.data_parallel import group_checkpoint, hub, worker
from diloco_chaos.harness.trainer.data_parallel.elastic import ElasticDataParallel
from diloco_chaos.harness.trainer.data_parallel.group_checkpoint import GroupCheckpoint
from diloco_chaos.harness.trainer.data_parallel.worker import DataParallelWorker
from diloco_chaos.harness.trainer.model.quadratic import Quadratic
from diloco_chaos.harness.trainers.core.effects import Compute
from planting import Mutant, finds

RIGID, ELASTIC = {"mode": "data_parallel"}, {"mode": "elastic_data_parallel"}
UNEQUAL = ELASTIC | {"batch": [1, 2, 3]}
KILL = {"kill": "learner-2", "at": "6s", "restart_after": "1s"}
COORDINATOR = {"kill": "syncer", "at": "6s", "restart_after": "1s"}


# -- who holds what ------------------------------------------------------------------------------------------------

def survivors_keep_their_state(patch):
    """They go on at the step that they are told, with the weights that they have."""
    usual = DataParallelWorker._resume

    def kept(self, message, tensors, now):
        before = self.replica.state() if self.number else tensors
        for effect in usual(self, message, tensors, now):
            self.replica.load(before)
            yield effect
    patch.setattr(DataParallelWorker, "_resume", kept)


def newcomers_keep_their_own(patch):
    usual = DataParallelWorker._resume

    def kept(self, message, tensors, now):
        before = self.replica.state() if self.incarnation else tensors
        for effect in usual(self, message, tensors, now):
            self.replica.load(before)
            yield effect
    patch.setattr(DataParallelWorker, "_resume", kept)


def a_step_is_taken_twice_by_one(patch):
    apply = Quadratic.apply
    last = []

    def twice(self, gradient, lr):
        apply(self, gradient, lr)
        last.append(lr)
        if len(last) == 90:
            apply(self, gradient, lr)
    patch.setattr(Quadratic, "apply", twice)


def a_coordinator_comes_back_with_another_state(patch):
    usual = GroupCheckpoint.restored

    def drifted(disk, config, initial):
        saved = usual(disk, config, initial)
        if not saved.resumed:
            return saved
        state = {name: (array * np.float32(0.5)).astype(np.float32) for name, array in saved.state.items()}
        return GroupCheckpoint(saved.step, saved.tokens, state, saved.incarnations, True, saved.repaired)
    patch.setattr(GroupCheckpoint, "restored", staticmethod(drifted))


# -- what is computed ----------------------------------------------------------------------------------------------

def one_gradient_is_left_out(patch):
    usual = hub.averaged
    patch.setattr(hub, "averaged", lambda gradients, tokens: usual(gradients[:-1], tokens[:-1]))


def the_mean_is_of_the_whole_cluster(patch):
    """Who is away counts as a gradient of zeros."""
    usual = hub.averaged
    patch.setattr(hub, "averaged", lambda gradients, tokens: {
        name: (array * np.float32(len(gradients) / 3)).astype(np.float32)
        for name, array in usual(gradients, tokens).items()})


def tokens_give_no_weight(patch):
    usual = hub.averaged
    patch.setattr(hub, "averaged", lambda gradients, tokens: usual(gradients))


def the_rate_forgets_the_tokens(patch):
    usual = worker.learning_rate
    patch.setattr(worker, "learning_rate", lambda config, tokens: usual(config, tokens // 2))


def one_batch_again_and_again(patch):
    patch.setattr(worker, "Compute", lambda position, lr: Compute(0, lr))


def tokens_of_those_who_are_away_count(patch):
    patch.setattr(TrainerConfig, "tokens_per_step_of", lambda self, name: self.tokens_of_all // 2)


def everybody_takes_the_first_ones_step(patch):
    usual = hub.averaged
    patch.setattr(hub, "averaged", lambda gradients, tokens: usual(gradients[:1]))


def begins_a_step_late(patch):
    """A group that goes back says one step more than it went back to."""
    usual = group_checkpoint.GroupCheckpoint

    def begin(self, names, now, state, have_it=()):
        if state is not None and state.step:
            state = usual(state.step + 1, state.tokens, state.state, state.incarnations, state.resumed)
        yield from started(self, names, now, state, have_it)
    started = ElasticDataParallel.begin
    patch.setattr(ElasticDataParallel, "begin", begin)


MUTANTS = [
    *(Mutant(plant, "replica_consistency", faults, cluster) for plant, faults, cluster in (
        (survivors_keep_their_state, [KILL], RIGID), (newcomers_keep_their_own, [KILL], ELASTIC),
        (a_step_is_taken_twice_by_one, [], RIGID),
        (a_coordinator_comes_back_with_another_state, [COORDINATOR], RIGID))),
    *(Mutant(plant, "arithmetic_correct", faults, cluster) for plant, faults, cluster in (
        (one_gradient_is_left_out, [], RIGID), (the_mean_is_of_the_whole_cluster, [KILL], ELASTIC),
        (tokens_give_no_weight, [], UNEQUAL), (the_rate_forgets_the_tokens, [], ELASTIC),
        (one_batch_again_and_again, [], RIGID), (tokens_of_those_who_are_away_count, [], ELASTIC),
        (everybody_takes_the_first_ones_step, [KILL], ELASTIC), (begins_a_step_late, [KILL], ELASTIC)))]
test_each_is_found_by_its_check = finds(MUTANTS)
