"""What the syncer must not forget: one committed file per fragment."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np

from diloco_chaos.harness.base.tensors import (
    Tensors,
    add,
    add_prefix,
    all_finite,
    digest,
    same_shapes,
    strip_prefix,
    subtract,
)
from diloco_chaos.harness.record.storage import checkpoint
from diloco_chaos.harness.record.storage.disk import Disk
from diloco_chaos.harness.trainer.algorithm import outer_optimizer
from diloco_chaos.harness.trainer.algorithm.fragments import Fragment
from diloco_chaos.harness.trainer.algorithm.merge import merge, token_weight
from diloco_chaos.harness.trainer.algorithm.outer_optimizer import OuterStep
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.coordinator.rounds import FragmentContribution
from diloco_chaos.harness.trainer.protocol.messages import OuterGradient
from diloco_chaos.harness.trainers.core.effects import Working

_VALUE, _MOMENTUM, _ERROR, _BEFORE = "value/", "momentum/", "error/", "before-{}/"
NOT_FINITE, TOO_LARGE = BROKEN = ("not finite", "too large")
"""Why an outer gradient is refused whose learner can't go on from what it has."""
IMPOSSIBLE = "impossible counters"
_FURTHEST = 100.0
"""Times the largest of a fragment's values, or 1, that an outer gradient may be long in any of them. Between two merges
training moves them by hundredths; a bit that has turned over in an exponent does so by 30 orders of magnitude, or by
hardly more than training."""
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
    outer gradients are anchored at the learner's own base. A syncer that died has forgotten them; a checkpoint has
    them."""
    step: OuterStep | None = None
    """The outer step that made this very version, for the same reason as `contributions`; None for version 0."""

    @classmethod
    def initial(cls, value: Tensors) -> FragmentState:
        """Version 0, momentum at rest."""
        return cls(value, {name: np.zeros_like(array) for name, array in value.items()})

    @cached_property
    def digest(self) -> str:
        """Return the digest of the value. A value never changes: a merge makes another."""
        return digest(self.value)

    @cached_property
    def kept(self) -> str:
        """The digest of all that is kept of it: value, momentum, what rounding has cost, and the counts."""
        counts = [self.version, self.merged_tokens, *sorted([name, *last] for name, last in self.merged.items())]
        return blake2b(f"{digest(self.tensors())} {json.dumps(counts)}".encode(), digest_size=16).hexdigest()

    def already_merged(self, learner: str, incarnation: int, first_step: int) -> str:
        """Return why a contribution that begins at this step must be refused; empty where it may be merged."""
        newest, last = self.merged.get(learner, (-1, 0))
        if incarnation < newest:
            return "old incarnation"
        return "already merged" if incarnation == newest and first_step <= last else ""

    def objection(self, learner: str, incarnation: int, answer: OuterGradient, tensors: Tensors,
                  config: TrainerConfig) -> str:
        """Return why this answer can't be merged into this version; empty where it can."""
        if not same_shapes(tensors, self.value):
            return "wrong shapes"
        if not all_finite(tensors):
            return NOT_FINITE
        if too_large(tensors, self.value):
            return TOO_LARGE
        if digest(tensors) != answer.digest:
            return "wrong digest"
        if (answer.base_version > self.version or answer.steps != answer.last_step - answer.first_step + 1
                or answer.tokens != answer.steps * config.tokens_per_step_of(learner)):
            return IMPOSSIBLE
        return (self.already_merged(learner, incarnation, answer.first_step)
                or self.out_of_reach(answer.base_version, config))

    def out_of_reach(self, base_version: int, config: TrainerConfig) -> str:
        """Return why nothing that begins from this version can be merged any more; empty where it can."""
        behind = self.version - base_version
        if behind > config.max_staleness:
            return "stale"
        return "forgotten base" if config.anchor == "latest" and behind > len(self.before) else ""

    def after(self, answers: list[FragmentContribution], config: TrainerConfig, step: OuterStep) -> FragmentState:
        """The version that follows from merging these (in the order of the learners' names) and this outer step."""
        gradient = merge([self._anchored(answer, config) for answer in answers],
                         [token_weight(answer.tokens, answer.steps) for answer in answers],
                         config.merge, config.spec.embeddings())
        value, momentum = outer_optimizer.nesterov(self.value, self.momentum, gradient, step)
        value, update, error = self._as_received(value, config)
        merged = dict(self.merged) | {answer.learner: (answer.incarnation, answer.last_step) for answer in answers}
        parts = tuple((answer.learner, answer.incarnation, answer.first_step, answer.last_step) for answer in answers)
        tokens = self.merged_tokens + sum(answer.tokens for answer in answers)
        before = (self.value, *self.before)[:config.max_staleness] if config.anchor == "latest" else ()
        return FragmentState(value, momentum, self.version + 1, merged, tokens, parts, error, update, before,
                             step)

    def working(self, fragment: int, answers: Iterable[FragmentContribution], after: FragmentState) -> Working:
        """Return what the next version was made of, and what came of it."""
        parts = {"value": self.value, "momentum": self.momentum, "error": self.error, "after/value": after.value,
                 "after/momentum": after.momentum, "after/error": after.error}
        for answer in answers:
            parts[f"answer/{answer.learner}"] = answer.tensors
            if 0 < (behind := self.version - answer.base_version) <= len(self.before):
                parts[f"base/{answer.learner}"] = self.before[behind - 1]
        return Working("merge", {"fragment": fragment, "version": after.version}, parts)

    def _anchored(self, answer: FragmentContribution, config: TrainerConfig) -> Tensors:
        """Its outer gradient: its base minus what it has now, as it sent it, or this version minus what it has now. The
        two differ where it has not received the newest version yet."""
        behind = self.version - answer.base_version
        if config.anchor == "base" or not behind:
            return answer.tensors
        return add(answer.tensors, subtract(self.value, self.before[behind - 1]))

    def _as_received(self, value: Tensors, config: TrainerConfig) -> tuple[Tensors, Tensors, Tensors]:
        """Return the new value as a learner that holds this version reads it from a broadcast, so that every node has
        the same one; what travels; and the rounding error that this leaves."""
        codec = config.broadcast_codec
        if not codec.lossy:
            return value, {}, {}
        update, read, error = codec.send(subtract(value, self.value), self.error,
                                         f"{config.seed}/{min(value)}/{self.version + 1}")
        return add(self.value, read), update, error

    def tensors(self) -> Tensors:
        """Everything of the size of the model under one roof, for a file."""
        return add_prefix(_VALUE, self.value) | add_prefix(_MOMENTUM, self.momentum) | add_prefix(_ERROR, self.error)

    def older(self) -> Tensors:
        """The versions before, for the same file: too much to be written at every merge."""
        return {name: array for age, value in enumerate(self.before, 1)
                for name, array in add_prefix(_BEFORE.format(age), value).items()}

    def meta(self) -> dict[str, Any]:
        """Everything else, for the file's metadata."""
        return {"version": self.version, "merged": dict(self.merged), "merged_tokens": self.merged_tokens,
                "contributions": self.contributions, "outer": self.step}

    @classmethod
    def restored(cls, tensors: Tensors, meta: dict[str, Any]) -> FragmentState:
        """The inverse of `tensors` (and `older`) and `meta`."""
        merged = {name: (int(incarnation), int(step)) for name, (incarnation, step) in meta["merged"].items()}
        parts = tuple((name, int(incarnation), int(first), int(last))
                      for name, incarnation, first, last in meta["contributions"])
        ages = map(_BEFORE.format, itertools.count(1))
        before = tuple(itertools.takewhile(bool, (strip_prefix(age, tensors) for age in ages)))
        return cls(strip_prefix(_VALUE, tensors), strip_prefix(_MOMENTUM, tensors), int(meta["version"]), merged,
                   int(meta["merged_tokens"]), parts, strip_prefix(_ERROR, tensors), before=before,
                   step=OuterStep(*meta["outer"]) if meta.get("outer") else None)


@dataclass
class ProgressCounters:
    """Counts that belong to the whole run: the global step, its phase, and what every learner processed."""

    step: int = 0
    tokens: dict[str, dict[int, int]] = field(default_factory=dict)
    """Learner -> incarnation -> tokens processed."""
    positions: dict[str, int] = field(default_factory=dict)
    """Learner -> batches of its shard that are leased."""
    heard: dict[str, float] = field(default_factory=dict)
    """Learner -> until when what it said of itself is known to be true, seconds since the run began."""
    processed: int = 0
    """Tokens processed by all learners together, as far as they could report it."""
    phase: float = 0.0
    """The global step as it would be had H never been smaller (harness/trainer/coordinator/phase.py)."""

    def __post_init__(self) -> None:
        self.phase = max(self.phase, self.step)

    def report(self, learner: str, incarnation: int, tokens: int, position: int, said: float) -> None:
        """Take in cumulative counts. `said`: no later than when the learner said them, seconds since the run began;
        when they arrive says nothing of that, since they may have waited while the syncer stood."""
        mine = self.tokens.setdefault(learner, {})
        more = tokens - mine.setdefault(incarnation, 0)
        if more > 0:
            mine[incarnation] = tokens
            self.processed += more
        self.positions[learner] = max(position, self.positions.get(learner, 0))
        self.heard[learner] = max(said, self.heard.get(learner, said))

    def lease(self, learner: str, now: float, config: TrainerConfig) -> None:
        """Have a new process begin behind all that an older one can have trained on since it was last heard of, and
        until it is told that it is superseded; the first one behind the warm start."""
        if self.newest(learner) < 0:
            self.positions[learner] = config.warm_start
            return
        unheard = max(0.0, now - self.heard[learner]) + config.heartbeat_timeout
        self.positions[learner] += math.ceil(unheard / config.quickest_step(learner))

    def resume(self, now: float) -> None:
        """A new syncer counts on from here. Where its clock is behind that of the one before, nobody knows for how long
        a learner was not heard of: so it counts as not heard of since the run began."""
        self.heard = {learner: t if t <= now else 0.0 for learner, t in self.heard.items()}

    def newest(self, learner: str) -> int:
        """Its newest incarnation that was ever heard of; -1 for none."""
        return max(self.tokens.get(learner, ()), default=-1)

    def meta(self) -> dict[str, Any]:
        """Return the counters for a file's metadata."""
        return {"step": self.step, "phase": self.phase, "positions": dict(self.positions), "heard": dict(self.heard),
                "tokens": {name: dict(counts) for name, counts in self.tokens.items()}}

    def absorb(self, meta: dict[str, Any]) -> None:
        """Take what a file remembers, where it is further than what is known. One from before the syncer kept the time
        says nothing of it: then a successor leaves out more than it has to."""
        self.step = max(self.step, int(meta["step"]))
        self.phase = max(self.phase, float(meta.get("phase", self.step)))
        for learner, counts in meta["tokens"].items():
            for incarnation, tokens in counts.items():
                self.report(learner, int(incarnation), int(tokens), int(meta["positions"].get(learner, 0)),
                            float(meta.get("heard", {}).get(learner, 0.0)))


def too_large(gradient: Tensors, value: Tensors) -> bool:
    """Return whether no training can have moved a fragment of this value so far."""
    furthest = _FURTHEST * max(1.0, *(float(np.abs(array).max()) for array in value.values()))
    return any(float(np.abs(array).max()) > furthest for array in gradient.values())


def fragment_file(index: int) -> str:
    """Name of the fragment's file in the state folder."""
    return f"fragment-{index:02d}.safetensors"


@dataclass
class Restored:
    """The state from which a new syncer goes on."""

    states: list[FragmentState]
    counters: ProgressCounters = field(default_factory=ProgressCounters)
    resumed: bool = False
    """Whether any committed state was found."""
    to_commit: list[int] = field(default_factory=list)
    """Fragments that have no committed file yet, or lack a whole copy."""
    repaired: dict[str, str] = field(default_factory=dict)
    """Damaged or missing files -> why, where the other copy was whole."""


def restore(disk: Disk, table: list[Fragment], initial: Tensors, step: int) -> Restored:
    """Return every fragment's newest committed version, or its initial one, and the run's counts.

    `step` is the global step at which a run that has no committed state begins. Temporary files of a write that never
    ended are removed.

    Raises:
        CheckpointError: no copy of a fragment can be trusted.
    """
    present = checkpoint.tidied(disk)
    restored, missing = Restored([], ProgressCounters(step)), []
    for fragment in table:
        name = fragment_file(fragment.index)
        if not present.intersection(checkpoint.copies(name)):
            missing.append(fragment.index)
            restored.states.append(FragmentState.initial({name: initial[name] for name in fragment.names}))
            continue
        content, damaged = checkpoint.load_either(disk, name, present)
        restored.states.append(FragmentState.restored(content.tensors, content.meta))
        restored.counters.absorb(content.meta["counters"])
        restored.repaired |= damaged
        restored.to_commit += [fragment.index] if damaged else []
        restored.resumed = True
    restored.to_commit += missing
    if missing and any(state.version for state in restored.states):
        lost = ", ".join(fragment_file(index) for index in missing)
        raise checkpoint.CheckpointError(f"both copies of {lost} are gone, and training had begun")
    return restored
