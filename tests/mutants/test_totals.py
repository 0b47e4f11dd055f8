"""Bugs that are planted into the trainer, each with the check that must find it: counts of the whole run, and rates.

The product has no switch for them: they are patched in from outside, and every one is run under virtual time.
"""

import math

from msgspec.structs import replace

from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.coordinator import syncer
from diloco_chaos.harness.trainer.coordinator.fragment_state import ProgressCounters
from diloco_chaos.harness.trainer.coordinator.syncer import Syncer
from diloco_chaos.harness.trainer.learner import learner
from diloco_chaos.harness.trainer.learner.learner import Learner
from diloco_chaos.harness.trainer.protocol.messages import Clock, Welcome
from planting import Mutant, finds

KILL = {"kill": "learner-2", "at": "6s", "restart_after": "2s"}
CUT_OFF = {"partition": "learner-2", "at": "6s", "for": "3s"}
COORDINATOR = {"kill": "syncer", "at": "6s", "restart_after": "1s"}
RAMP = {"momentum_ramp": "60 steps"}
RATE, COUNT = "learning_rate_correct", "processed_correct"


def no_warm_up(patch):
    rate = learner.learning_rate
    patch.setattr(learner, "learning_rate", lambda config, tokens: rate(
        config.model_copy(update={"warmup": 0}), tokens))


def linear_decay(patch):
    def falling(config, tokens):
        step = tokens / config.tokens_of_all
        if step < config.warmup:
            return config.lr * (step + 1) / (config.warmup + 1)
        done = min(1.0, (step - config.warmup) / (config.budget - config.warmup))
        return config.lr * (1 - done * (1 - config.final_lr))
    patch.setattr(learner, "learning_rate", falling)


def decays_to_nothing(patch):
    rate = learner.learning_rate
    patch.setattr(learner, "learning_rate", lambda config, tokens: rate(
        config.model_copy(update={"final_lr": 0.0}), tokens))


def half_a_cosine_too_much(patch):
    def falling(config, tokens):
        done = min(1.0, tokens / config.budget_tokens)
        return config.lr * (config.final_lr + (1 - config.final_lr) * (1 + math.cos(2 * math.pi * done)) / 2)
    patch.setattr(learner, "learning_rate", falling)


def position_of_its_own_steps(patch):
    compute = Learner._compute

    def own(self):
        self._global_tokens = self.step * self._per_step
        return compute(self)
    patch.setattr(Learner, "_compute", own)


def starts_anew_after_a_restart(patch):
    """A new process takes its first step for the beginning of training, and hears of no other."""
    message = Learner.on_message

    def forgetful(self, told, tensors, now):
        if self.incarnation and isinstance(told, (Clock, Welcome)):
            told = replace(told, tokens=0)
        return message(self, told, tensors, now)
    patch.setattr(Learner, "on_message", forgetful)


def clock_is_not_listened_to(patch):
    """Only its own steps move its place in the schedule, once it was told where training is."""
    message = Learner.on_message

    def deaf(self, told, tensors, now):
        before = self._global_tokens
        yield from message(self, told, tensors, now)
        if isinstance(told, Clock) and before:
            self._global_tokens = before
    patch.setattr(Learner, "on_message", deaf)


def counts_steps_twice(patch):
    report = ProgressCounters.report

    def twice(self, name, incarnation, tokens, position, said):
        before = self.processed
        report(self, name, incarnation, tokens, position, said)
        self.processed += self.processed - before
    patch.setattr(ProgressCounters, "report", twice)


def adds_up_cumulative_counts(patch):
    """After a connection that broke, what a learner has done is added again."""
    hello = Syncer._hello

    def again(self, connection, said, now):
        self.counters.processed += said.tokens
        return hello(self, connection, said, now)
    patch.setattr(Syncer, "_hello", again)


def forgets_what_the_dead_did(patch):
    """A new process of a learner takes the place of the old one in the count."""
    report = ProgressCounters.report

    def forgetful(self, name, incarnation, tokens, position, said):
        mine = self.tokens.setdefault(name, {})
        for old in [number for number in mine if number < incarnation]:
            self.processed -= mine[old]
            mine[old] = 0
        report(self, name, incarnation, tokens, position, said)
    patch.setattr(ProgressCounters, "report", forgetful)


def counts_one_learner_only(patch):
    report = ProgressCounters.report

    def deaf(self, name, incarnation, tokens, position, said):
        report(self, name, incarnation, tokens if name != "learner-2" else 0, position, said)
    patch.setattr(ProgressCounters, "report", deaf)


def ends_at_half_the_budget(patch):
    init = Syncer.__init__

    def early(self, *given, **named):
        init(self, *given, **named)
        self._budget //= 2
    patch.setattr(Syncer, "__init__", early)


def forgets_the_count_when_it_is_born_again(patch):
    init = Syncer.__init__

    def blank(self, config, found, incarnation=0):
        init(self, config, found, incarnation)
        if incarnation:
            self.counters.processed = 0
    patch.setattr(Syncer, "__init__", blank)


def steps_of_half_their_tokens(patch):
    """Everybody counts half of a batch, and all agree."""
    usual = TrainerConfig.tokens_per_step_of
    patch.setattr(TrainerConfig, "tokens_per_step_of", lambda self, name: usual(self, name) // 2)


def momentum_at_once(patch):
    step = syncer.outer_step
    patch.setattr(syncer, "outer_step", lambda config, tokens: step(
        config.model_copy(update={"momentum_ramp": 0}), tokens))


def rate_does_not_fall_with_the_momentum(patch):
    step = syncer.outer_step
    patch.setattr(syncer, "outer_step", lambda config, tokens: step(config, tokens)._replace(lr=config.outer_lr))


MUTANTS = [Mutant(*one) for one in [
    (no_warm_up, RATE, [], {}), (linear_decay, RATE, [], {}), (decays_to_nothing, RATE, [], {}),
    (half_a_cosine_too_much, RATE, [], {}), (position_of_its_own_steps, RATE, [], {}),
    (starts_anew_after_a_restart, RATE, [KILL], {}), (clock_is_not_listened_to, RATE, [], {}),
    (counts_steps_twice, COUNT, [], {}), (adds_up_cumulative_counts, COUNT, [CUT_OFF], {}),
    (forgets_what_the_dead_did, COUNT, [KILL], {}), (counts_one_learner_only, COUNT, [], {}),
    (ends_at_half_the_budget, COUNT, [], {}), (forgets_the_count_when_it_is_born_again, COUNT, [COORDINATOR], {}),
    (steps_of_half_their_tokens, COUNT, [], {}), (momentum_at_once, "weights_correct", [], RAMP),
    (rate_does_not_fall_with_the_momentum, "weights_correct", [], RAMP)]]

test_a_bug_of_the_totals_is_found = finds(MUTANTS)
