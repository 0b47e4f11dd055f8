"""What the syncer must not forget: one committed file per fragment."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from harness.trainer import checkpoint, outer
from harness.trainer.config import TrainerConfig
from harness.trainer.disk import Disk
from harness.trainer.fragments import Fragment
from harness.trainer.merge import merge, token_weight
from harness.trainer.messages import Answer
from harness.trainer.rounds import Contribution
from harness.trainer.tensors import Tensors, add, all_finite, digest, over, same_shapes, subtract, under

STATE = "state"
"""The syncer's folder, in the run's."""
_VALUE, _MOMENTUM, _ERROR, _BEFORE = "value/", "momentum/", "error/", "before-{}/"
_QUICKEST_S = 1e-3
"""No inner step is quicker."""
Part = tuple[str, int, int, int]
"""Of a merge: learner, incarnation, first and last step."""


@dataclass(frozen=True)
class FragmentState:
    """One version of a fragment; a merge makes a new one."""

    value: Tensors
    momentum: Tensors
    version: int = 0
    merged: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Learner -> (newest incarnation, its last merged step): what makes a double merge impossible."""
    merged_tokens: int = 0
    contributions: tuple[Part, ...] = ()
    """What was merged into this very version: its syncer may be killed before it can tell."""
    error: Tensors = field(default_factory=dict)
    """What rounding has cost the updates so far; for error feedback."""
    update: Tensors = field(default_factory=dict)
    """What has changed since the version before, as it travels; empty where it is not known, or not compressed."""
    before: tuple[Tensors, ...] = ()
    """Values of the versions before this one, the newest first, as far back as an answer's base may lie; empty where
    outer gradients are anchored at the learner's own base. A syncer that died has forgotten them; a cut holds them."""

    @classmethod
    def initial(cls, value: Tensors) -> FragmentState:
        """Version 0, momentum at rest."""
        return cls(value, {name: np.zeros_like(array) for name, array in value.items()})

    @cached_property
    def digest(self) -> str:
        """Of the value. Nobody changes one: a merge makes another."""
        return digest(self.value)

    def already_merged(self, learner: str, incarnation: int, first_step: int) -> str:
        """Why a contribution that begins at this step must be refused; empty where it may be merged."""
        newest, last = self.merged.get(learner, (-1, 0))
        if incarnation < newest:
            return "old incarnation"
        return "already merged" if incarnation == newest and first_step <= last else ""

    def objection(self, learner: str, incarnation: int, answer: Answer, tensors: Tensors, config: TrainerConfig) -> str:
        """Why this answer can't be merged into this version; empty where it can."""
        if not same_shapes(tensors, self.value):
            return "wrong shapes"
        if not all_finite(tensors):
            return "not finite"
        if digest(tensors) != answer.digest:
            return "wrong digest"
        if answer.base_version > self.version or answer.steps != answer.last_step - answer.first_step + 1:
            return "impossible counters"
        return (self.already_merged(learner, incarnation, answer.first_step)
                or self.out_of_reach(answer.base_version, config))

    def out_of_reach(self, base_version: int, config: TrainerConfig) -> str:
        """Why nothing that begins from this version can be merged any more; empty where it can."""
        behind = self.version - base_version
        if behind > config.max_staleness:
            return "stale"
        return "forgotten base" if config.anchor == "previous" and behind > len(self.before) else ""

    def after(self, answers: list[Contribution], config: TrainerConfig) -> FragmentState:
        """The version that follows from merging these (in the order of the learners' names)."""
        gradient = merge([self._anchored(answer, config) for answer in answers],
                         [token_weight(answer.tokens, answer.steps) for answer in answers],
                         config.merge, config.spec.embeddings())
        value, momentum = outer.nesterov(self.value, self.momentum, gradient, config.outer_lr, config.outer_momentum)
        value, update, error = self._as_told(value, config)
        merged = dict(self.merged) | {answer.learner: (answer.incarnation, answer.last_step) for answer in answers}
        parts = tuple((answer.learner, answer.incarnation, answer.first_step, answer.last_step) for answer in answers)
        tokens = self.merged_tokens + sum(answer.tokens for answer in answers)
        before = (self.value, *self.before)[:config.max_staleness] if config.anchor == "previous" else ()
        return FragmentState(value, momentum, self.version + 1, merged, tokens, parts, error, update, before)

    def _anchored(self, answer: Contribution, config: TrainerConfig) -> Tensors:
        """Its outer gradient: its base minus what it has now, as it sent it, or this version minus what it has now. The
        two differ where it has not received the newest version yet."""
        behind = self.version - answer.base_version
        if config.anchor == "own" or not behind:
            return answer.tensors
        return add(answer.tensors, subtract(self.value, self.before[behind - 1]))

    def _as_told(self, value: Tensors, config: TrainerConfig) -> tuple[Tensors, Tensors, Tensors]:
        """The new value as a learner that holds this version reads it from a broadcast, for nobody shall have another;
        what travels; and what that rounds off."""
        codec = config.broadcast_codec
        if not codec.lossy:
            return value, {}, {}
        update, read, error = codec.send(subtract(value, self.value), self.error,
                                         f"{config.seed}/{min(value)}/{self.version + 1}")
        return add(self.value, read), update, error

    def tensors(self) -> Tensors:
        """Everything of the size of the model under one roof, for a file."""
        return over(_VALUE, self.value) | over(_MOMENTUM, self.momentum) | over(_ERROR, self.error)

    def older(self) -> Tensors:
        """The versions before, for the same file: too much to be written at every merge."""
        return {name: array for age, value in enumerate(self.before, 1)
                for name, array in over(_BEFORE.format(age), value).items()}

    def meta(self) -> dict[str, Any]:
        """Everything else, for the file's metadata."""
        return {"version": self.version, "merged": dict(self.merged), "merged_tokens": self.merged_tokens,
                "contributions": self.contributions}

    @classmethod
    def restored(cls, tensors: Tensors, meta: dict[str, Any]) -> FragmentState:
        """The inverse of `tensors` (and `older`) and `meta`."""
        merged = {name: (int(incarnation), int(step)) for name, (incarnation, step) in meta["merged"].items()}
        parts = tuple((name, int(incarnation), int(first), int(last))
                      for name, incarnation, first, last in meta["contributions"])
        ages = map(_BEFORE.format, itertools.count(1))
        before = tuple(itertools.takewhile(bool, (under(age, tensors) for age in ages)))
        return cls(under(_VALUE, tensors), under(_MOMENTUM, tensors), int(meta["version"]), merged,
                   int(meta["merged_tokens"]), parts, under(_ERROR, tensors), before=before)


@dataclass
class Ledger:
    """Counts that belong to the whole run: the global step and what every learner processed."""

    step: int = 0
    tokens: dict[str, dict[int, int]] = field(default_factory=dict)
    """Learner -> incarnation -> tokens processed."""
    positions: dict[str, int] = field(default_factory=dict)
    """Learner -> batches of its shard that are leased."""
    heard: dict[str, float] = field(default_factory=dict)
    """Learner -> when it last said how far it is, seconds since the run began."""
    processed: int = 0
    """Tokens processed by all learners together, as far as they could report it."""

    def report(self, learner: str, incarnation: int, tokens: int, position: int, now: float) -> None:
        """Take in cumulative counts."""
        mine = self.tokens.setdefault(learner, {})
        more = tokens - mine.setdefault(incarnation, 0)
        if more > 0:
            mine[incarnation] = tokens
            self.processed += more
        self.positions[learner] = max(position, self.positions.get(learner, 0))
        self.heard[learner] = max(now, self.heard.get(learner, now))

    def lease(self, learner: str, now: float, config: TrainerConfig) -> None:
        """Have a new process begin behind all that an older one can have trained on since it was last heard of, and
        until it is told that it is superseded; the first one behind the warm start."""
        if self.newest(learner) < 0:
            self.positions[learner] = config.warm_start
            return
        quickest = max(_QUICKEST_S, config.step_time_of(learner) * (1 - config.variance))
        unheard = max(0.0, now - self.heard[learner]) + config.silence
        self.positions[learner] += math.ceil(unheard / quickest)

    def newest(self, learner: str) -> int:
        """Its newest incarnation that was ever heard of; -1 for none."""
        return max(self.tokens.get(learner, ()), default=-1)

    def meta(self) -> dict[str, Any]:
        """For a file's metadata."""
        return {"step": self.step, "tokens": {name: dict(counts) for name, counts in self.tokens.items()},
                "positions": dict(self.positions), "heard": dict(self.heard)}

    def absorb(self, meta: dict[str, Any]) -> None:
        """Take what a file remembers, where it is further than what is known. One from before the syncer kept the time
        says nothing of it: then a successor leaves out more than it has to."""
        self.step = max(self.step, int(meta["step"]))
        for learner, counts in meta["tokens"].items():
            for incarnation, tokens in counts.items():
                self.report(learner, int(incarnation), int(tokens), int(meta["positions"].get(learner, 0)),
                            float(meta.get("heard", {}).get(learner, 0.0)))


def fragment_file(index: int) -> str:
    """Name of the fragment's file in the state folder."""
    return f"fragment-{index:02d}.safetensors"


@dataclass
class Restored:
    """What a new syncer goes on from."""

    states: list[FragmentState]
    ledger: Ledger = field(default_factory=Ledger)
    resumed: bool = False
    """Whether any committed state was found."""
    to_commit: list[int] = field(default_factory=list)
    """Fragments that have no committed file yet, or lack a whole copy."""
    repaired: dict[str, str] = field(default_factory=dict)
    """Damaged or missing files -> why, where the other copy was whole."""


def restore(disk: Disk, table: list[Fragment], initial: Tensors, step: int) -> Restored:
    """Every fragment's newest committed version, or its initial one, and the run's counts.

    `step` is the global step at which a run that has no committed state begins. Temporary files of a write that never
    ended are removed.

    Raises:
        CheckpointError: no copy of a fragment can be trusted.
    """
    there = checkpoint.tidied(disk)
    restored, missing = Restored([], Ledger(step)), []
    for fragment in table:
        name = fragment_file(fragment.index)
        if not there.intersection(checkpoint.copies(name)):
            missing.append(fragment.index)
            restored.states.append(FragmentState.initial({name: initial[name] for name in fragment.names}))
            continue
        content, damaged = checkpoint.load_either(disk, name, there)
        restored.states.append(FragmentState.restored(content.tensors, content.meta))
        restored.ledger.absorb(content.meta["ledger"])
        restored.repaired |= damaged
        restored.to_commit += [fragment.index] if damaged else []
        restored.resumed = True
    restored.to_commit += missing
    if missing and any(state.version for state in restored.states):
        lost = ", ".join(fragment_file(index) for index in missing)
        raise checkpoint.CheckpointError(f"both copies of {lost} are gone, and training had begun")
    return restored
