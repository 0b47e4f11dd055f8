"""Bugs that are planted into the trainer's arithmetic: what is computed is not what the formulas say."""

from dataclasses import replace

import numpy as np

from diloco_chaos.harness.base import tensors as arrays
from diloco_chaos.harness.trainer.algorithm import codec, outer_optimizer
from diloco_chaos.harness.trainer.algorithm import merge as merging
from diloco_chaos.harness.trainer.algorithm.codec import Codec
from diloco_chaos.harness.trainer.coordinator import fragment_state
from diloco_chaos.harness.trainer.coordinator.fragment_state import FragmentState
from diloco_chaos.harness.trainer.learner.learner import Learner
from diloco_chaos.harness.trainer.model.quadratic import Quadratic
from planting import Mutant, finds

CUT_OFF = {"partition": "learner-2", "at": "6s", "for": "3s"}
LATE = {"latency": "learner-2", "at": "3s", "for": "5s", "delay": "150ms"}
COORDINATOR = {"kill": "syncer", "at": "6s", "restart_after": "1s"}
UNEQUAL = {"batch": [1, 2, 3]}
FEEDBACK = {"gradients": "int4", "broadcasts": "int8", "error_feedback": True}


def scaled(tensors, factor):
    return {name: (array * np.float32(factor)).astype(np.float32) for name, array in tensors.items()}


# -- the outer optimizer -------------------------------------------------------------------------------------------

def optimizer(change):
    def plant(patch):
        usual = outer_optimizer.nesterov
        patch.setattr(outer_optimizer, "nesterov", lambda value, momentum, gradient, step: change(
            usual, value, momentum, gradient, step))
    return plant


def against_the_gradient(usual, value, momentum, gradient, step):
    return usual(value, momentum, scaled(gradient, -1), step)


def heavy_ball(usual, value, momentum, gradient, step):
    _, buffer = usual(value, momentum, gradient, step)
    return arrays.subtract(value, scaled(buffer, step.lr)), buffer


def momentum_forgotten(usual, value, momentum, gradient, step):
    return usual(value, scaled(momentum, 0), gradient, step)


def momentum_decays_twice(usual, value, momentum, gradient, step):
    return usual(value, scaled(momentum, step.momentum), gradient, step)


def momentum_not_kept(usual, value, momentum, gradient, step):
    return usual(value, momentum, gradient, step)[0], momentum


def rate_of_one(usual, value, momentum, gradient, step):
    return usual(value, momentum, gradient, step._replace(lr=1.0))


def nothing_changes(usual, value, momentum, gradient, step):
    return value, momentum


def half_of_the_tensors(usual, value, momentum, gradient, step):
    after, buffer = usual(value, momentum, gradient, step)
    return after | {name: value[name] for name in sorted(value)[1::2]}, buffer


def in_half_precision(usual, value, momentum, gradient, step):
    after, buffer = usual(value, momentum, gradient, step)
    return {name: array.astype(np.float16).astype(np.float32) for name, array in after.items()}, buffer


OPTIMIZERS = [against_the_gradient, heavy_ball, momentum_forgotten, momentum_decays_twice, momentum_not_kept,
              rate_of_one, nothing_changes, half_of_the_tensors, in_half_precision]


# -- merging -------------------------------------------------------------------------------------------------------

def weighs_all_alike(patch):
    usual = fragment_state.merge
    patch.setattr(fragment_state, "merge", lambda gradients, weights, *rest: usual(
        gradients, [1.0] * len(weights), *rest))


def weighs_by_tokens_alone(patch):
    patch.setattr(fragment_state, "token_weight", lambda tokens, steps: float(tokens))


def weights_of_the_others(patch):
    usual = fragment_state.merge
    patch.setattr(fragment_state, "merge", lambda gradients, weights, *rest: usual(gradients, weights[::-1], *rest))


def leaves_one_out(patch):
    usual = fragment_state.merge
    patch.setattr(fragment_state, "merge", lambda gradients, weights, *rest: usual(
        gradients[:1], weights[:1], *rest))


def averages_everything(patch):
    usual = fragment_state.merge
    patch.setattr(fragment_state, "merge", lambda gradients, weights, _, averaged: usual(
        gradients, weights, "average", averaged))


def turns_embeddings_too(patch):
    usual = fragment_state.merge
    patch.setattr(fragment_state, "merge", lambda gradients, weights, method, _: usual(gradients, weights, method, ()))


def adds_up(patch):
    usual = fragment_state.merge
    patch.setattr(fragment_state, "merge", lambda gradients, *rest: scaled(
        usual(gradients, *rest), len(gradients)))


def directions_without_their_length(patch):
    usual = merging.radial_directional

    def unit(gradients, shares, into):
        usual(gradients, shares, into)
        into /= max(float(np.linalg.norm(into)), 1e-12)
    patch.setattr(merging, "radial_directional", unit)


def anchors_at_the_old_base(patch):
    patch.setattr(FragmentState, "_anchored", lambda self, answer, config: answer.tensors)


def anchors_twice(patch):
    usual = FragmentState._anchored

    def again(self, answer, config):
        behind = self.version - answer.base_version
        gradient = usual(self, answer, config)
        return arrays.add(gradient, arrays.subtract(self.value, self.before[behind - 1])) if behind else gradient
    patch.setattr(FragmentState, "_anchored", again)


def momentum_lost_with_the_syncer(patch):
    usual = FragmentState.restored

    def blank(tensors, meta):
        found = usual(tensors, meta)
        return replace(found, momentum=scaled(found.momentum, 0))
    patch.setattr(FragmentState, "restored", staticmethod(blank))


# -- compression ---------------------------------------------------------------------------------------------------

def cuts_off_the_lower_half(patch):
    patch.setattr(codec, "_to_bfloat16", lambda values: (
        np.ascontiguousarray(values, np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16))


def takes_feedback_away(patch):
    usual = Codec.send
    patch.setattr(Codec, "send", lambda self, tensors, error, key: usual(self, tensors, scaled(error, -1), key))


def forgets_feedback(patch):
    usual = Codec.send
    patch.setattr(Codec, "send", lambda self, tensors, error, key: usual(self, tensors, {}, key))


def feedback_of_what_was_not_merged(patch):
    usual = Learner._receive

    def kept(self, message, payload):
        owed = self.held[message.fragment].owed
        yield from usual(self, message, payload)
        self.held[message.fragment].error = owed
    patch.setattr(Learner, "_receive", kept)


def draws_the_same_chance_for_all(patch):
    usual = Codec.send
    patch.setattr(Codec, "send", lambda self, tensors, error, key: usual(self, tensors, error, "one"))


def one_scale_too_large(patch):
    patch.setitem(codec._LARGEST, "int4", 6)


# -- learners ------------------------------------------------------------------------------------------------------

def gives_the_wrong_sign(patch):
    usual = Learner._give

    def turned(self, request):
        held = self.held[request.fragment]
        base, current = held.base, self.replica.read(self.table[request.fragment].names)
        if base is not None:
            held.base = arrays.subtract(scaled(current, 2), base)
        yield from usual(self, request)
        held.base = base
    patch.setattr(Learner, "_give", turned)


def keeps_the_old_base(patch):
    usual = Learner._receive

    def stale(self, message, payload):
        before = self.held[message.fragment].base
        yield from usual(self, message, payload)
        if before is not None:
            self.held[message.fragment].base = before
    patch.setattr(Learner, "_receive", stale)


def carries_twice(patch):
    usual = Learner._receive

    def double(self, message, payload):
        names, held = self.table[message.fragment].names, self.held[message.fragment]
        extra = arrays.subtract(self.replica.read(names), held.answered) if held.answered is not None else None
        yield from usual(self, message, payload)
        if extra is not None:
            self.replica.write(arrays.add(self.replica.read(names), extra))
    patch.setattr(Learner, "_receive", double)


def carries_in_words_only(patch):
    usual = Learner._receive

    def dropped(self, message, payload):
        yield from usual(self, message, payload)
        self.replica.write(self.held[message.fragment].base)
    patch.setattr(Learner, "_receive", dropped)


def takes_half_of_what_it_is_told(patch):
    usual = Learner._receive

    def half(self, message, payload):
        names = self.table[message.fragment].names
        before = self.replica.read(names)
        yield from usual(self, message, payload)
        self.replica.write(scaled(arrays.add(before, self.replica.read(names)), 0.5))
    patch.setattr(Learner, "_receive", half)


def trains_on_one_batch(patch):
    usual = Quadratic.train
    patch.setattr(Quadratic, "train", lambda self, position, lr: usual(self, 0, lr))


def trains_twice(patch):
    usual = Quadratic.train

    def twice(self, position, lr):
        usual(self, position, lr)
        return usual(self, position, lr)
    patch.setattr(Quadratic, "train", twice)


def tells_one_rate_and_takes_another(patch):
    usual = Quadratic.train
    patch.setattr(Quadratic, "train", lambda self, position, lr: usual(self, position, lr * 1.1))


MUTANTS = [Mutant(plant, "arithmetic_correct", faults, cluster, name) for plant, faults, cluster, name in [
    *((optimizer(change), [], {"fragments": 4}, change.__name__) for change in OPTIMIZERS), *(
        (plant, faults, cluster, "") for plant, faults, cluster in [
            (weighs_all_alike, [], UNEQUAL), (weighs_by_tokens_alone, [], UNEQUAL),
            (weights_of_the_others, [], UNEQUAL), (leaves_one_out, [], {}), (averages_everything, [], {}),
            (turns_embeddings_too, [], {}), (adds_up, [], {}), (directions_without_their_length, [], {}),
            (anchors_at_the_old_base, [CUT_OFF], {}), (anchors_twice, [CUT_OFF], {}),
            (momentum_lost_with_the_syncer, [COORDINATOR], {}),
            (cuts_off_the_lower_half, [], {"gradients": "bfloat16"}),
            (takes_feedback_away, [], FEEDBACK), (forgets_feedback, [], FEEDBACK),
            (feedback_of_what_was_not_merged, [LATE], FEEDBACK),
            (draws_the_same_chance_for_all, [], {"gradients": "int4", "rounding": "stochastic"}),
            (one_scale_too_large, [], {"broadcasts": "int4"}), (gives_the_wrong_sign, [], {}),
            (keeps_the_old_base, [], {}), (carries_twice, [], {}), (carries_in_words_only, [], {}),
            (takes_half_of_what_it_is_told, [], {}), (trains_on_one_batch, [], {}), (trains_twice, [], {}),
            (tells_one_rate_and_takes_another, [], {})])]]

test_a_bug_of_the_arithmetic_is_found = finds(MUTANTS)
