"""Every setting of a cluster and of the training that runs on it; docs/scenarios.md explains each to users."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    Strict,
    model_serializer,
    model_validator,
)

from diloco_chaos.harness.base.device import Device
from diloco_chaos.harness.base.units import MOST_STEPS, Seconds, Share, Steps, steps
from diloco_chaos.harness.trainer.algorithm.codec import Codec, Precision
from diloco_chaos.harness.trainer.algorithm.fragments import Fragment, Shape, plan_fragments
from diloco_chaos.harness.trainer.config.decoupled import Decoupled, Settings
from diloco_chaos.harness.trainer.config.diloco import DiLoCo
from diloco_chaos.harness.trainer.config.streaming import Streaming
from diloco_chaos.harness.trainer.model.quadratic import QuadraticSpec
from diloco_chaos.harness.trainer.model.replica import GRADIENT
from diloco_chaos.harness.trainer.model.spec import MODELS, ModelSpec
from diloco_chaos.harness.trainers.api.settings import Coupling, Misfit, MisfitError, TrainerSettings

_EXCHANGES: dict[str, type[Decoupled]] = {"decoupled": Decoupled, "streaming": Streaming, "diloco": DiLoCo}
SYNCHRONOUS = ("synchronous", "data_parallel", "elastic_data_parallel")
"""Modes that average the gradients of every inner step."""
BLOCKING = tuple(mode for mode, exchange in _EXCHANGES.items() if exchange.complete)
"""Modes that exchange fragments, in which nobody goes on without all the others."""
COMPLETE = (*BLOCKING, "data_parallel")
"""Modes that can't go on, or begin, without all learners."""
MODES = ("data_parallel", "elastic_data_parallel", "diloco", "streaming", "decoupled")
"""What can be put under test; the synchronous run from scratch is what losses are held against."""
_OF_STEPS = ("float32", "bfloat16")
"""How gradients of single steps, and their means, may travel."""
_MOST_VARIANCE = 0.9
_MOST_KEPT = 64
"""Versions of every fragment: as many models in the syncer's memory."""
_RISE = 0.15
"""Share of the budget over which the learning rate rises, where nothing is said."""
CHECKPOINT_S = 0.005
"""What a checkpoint of data parallelism costs, while the state goes to the hub and is committed (docs/figures.md)."""
HEARTBEAT = 0.5
"""The longest time between two heartbeats, seconds. A shorter `heartbeat_timeout` has shorter ones: a peer that stands,
and hears nothing else, would give its connection up."""


def _usual_warmup(budget: int) -> int:
    return round(_RISE * budget)


def _without_default(schema: dict[str, Any]) -> None:
    del schema["default"]


def implied(mode: str, learners: int) -> Settings:
    """Settings that follow from a mode."""
    if mode in _EXCHANGES:
        return _EXCHANGES[mode].implied(learners)
    whom = Streaming if mode in COMPLETE else Decoupled  # all learners are waited for as in streaming, or not
    exact = {"gradients": "float32", "broadcasts": "float32"} if mode == "synchronous" else {}
    return whom.implied(learners) | exact


def _known(mode: Any) -> Any:
    if mode not in (*MODES, "synchronous"):
        raise ValueError(f"no mode {mode!r}: choose one of {', '.join(MODES)}")
    return mode


def _of_models(model: str) -> str:
    if model not in MODELS:
        raise ValueError(f"no model {model!r}: choose one of {', '.join(MODELS)}")
    return model


_MOST_SEQUENCES = 4096
_Sequences = Annotated[int, Field(ge=1, le=_MOST_SEQUENCES)]


def _sequences(given: Any) -> Any:
    """Check the batch first, so that an error has one sentence and not one for every form that a batch can have."""
    several = isinstance(given, (list, tuple))
    for batch in given if several else [given]:
        if not isinstance(batch, int) or isinstance(batch, bool) or not 1 <= batch <= _MOST_SEQUENCES:
            raise ValueError(f"a batch of {batch!r}: a step takes 1 to {_MOST_SEQUENCES} sequences; give one number "
                             f"for all learners, or a list with one for each")
    return tuple(given) if several else given


class TrainerConfig(TrainerSettings):
    """The `cluster:` section of a scenario. Symbols are those of arXiv 2604.21428."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)

    mode: Annotated[Literal["decoupled", "streaming", "diloco", "data_parallel", "elastic_data_parallel",
                            "synchronous"], BeforeValidator(_known)] = "decoupled"
    """The algorithm: Decoupled DiLoCo; Streaming DiLoCo and DiLoCo, which wait for all learners (K = M); data
    parallelism, which stands still while anybody is gone, or elastic, which goes on with those who are left; or the
    synchronous run from scratch that all are held against."""
    learners: int = Field(4, ge=1, le=64)
    """M, the number of learners."""
    joining: int = Field(0, ge=0)
    """Of these, so many that are not there from the beginning: the last ones. Set when a plan is frozen."""
    quorum: int = Field(1, ge=1)
    """K, complete answers before a fragment may be merged."""
    fragments: int = Field(8, ge=1, le=4096)
    """P, pieces of the model that travel one at a time."""
    sync_every: int = Field(8, ge=1, le=1_000_000)
    """H, inner steps between two merges of the same fragment."""
    sync_from: int = Field(1, ge=1, le=1_000_000)
    """What H begins at where it grows."""
    sync_growth: Steps = 0
    """Steps after the warm start over which H grows from `sync_from` to `sync_every`; 0: it does not."""
    overlap: float = Field(2, ge=0)
    """tau, inner steps that an exchange may overlap with. 0: a learner waits for the merge."""
    grace: float = Field(0.8, ge=0, le=1)
    """gamma, the share of the measured slack that the grace window may use."""
    max_staleness: int = Field(16, ge=1, le=1_000_000)
    """S: an outer gradient whose base is more than this many versions old is refused."""
    on_receipt: Literal["overwrite", "carry"] = "carry"
    """What becomes of the steps taken during the exchange: lost (the paper), or added on top of what was received."""
    anchor: Literal["latest", "base"] = "latest"
    """What a learner's value is subtracted from to make its outer gradient: the syncer's newest version before the
    merge (the paper), for which the syncer keeps the last S, or the version that it began from."""
    merge: Literal["rda", "average"] = "rda"
    """Radial-directional averaging, or the plain weighted average; embeddings are always averaged."""
    outer_lr: float = Field(0.3, gt=0)
    """Outer learning rate (Nesterov)."""
    outer_momentum: float = Field(0.8, ge=0, lt=1)
    """mu, outer momentum; outer_lr / (1 - mu) between 1.2 and 1.5 suits runs of this length."""
    momentum_ramp: Steps = 0
    """Steps after the warm start over which mu rises from 0, and the outer rate falls so that outer_lr / (1 - mu) is
    the same all the time; 0: none."""
    recovery: Literal["syncer", "peer"] = "syncer"
    """Who brings a new process up to date; the syncer does where no peer can."""
    gradients: Precision = "float32"
    """How outer gradients travel; gradients of single steps, as in data parallelism, as float32 or bfloat16."""
    broadcasts: Precision = "float32"
    """How a merge's result travels: itself (float32), or as what has changed, to those who hold the version before; in
    data parallelism the mean gradient, as float32 or bfloat16."""
    rounding: Literal["nearest", "stochastic"] = "nearest"
    """Of integers."""
    error_feedback: bool = False
    """What rounding has cost is added to what is sent next."""

    device: Device = "cpu"
    """What learners compute on; on `cuda` the forward pass is in bfloat16 where that is enough (autocast)."""
    model: Annotated[str, AfterValidator(_of_models)] = "tiny"
    corpus: str = "stdlib"
    """`stdlib`, `markov`, or a path to a file or folder."""
    batch: Annotated[_Sequences | Annotated[tuple[_Sequences, ...], Strict(False)], BeforeValidator(_sequences)] = 16
    """Sequences per learner and inner step: of all, or one number for each."""
    lr: float = Field(6e-3, gt=0)
    """Peak learning rate of the inner AdamW."""
    synchronous_lr: float = Field(6e-3, gt=0)
    """The same for the synchronous run: each stands at its own best."""
    warmup: Steps = Field(120, json_schema_extra=_without_default)  # which is 15% of the budget's default
    """Steps over which the learning rate rises; 15% of the budget if not given."""
    final_lr: Share = 0.1
    """What the cosine decay ends at, as a share of the peak."""
    budget: Steps = 800
    """T, inner steps per learner: training ends when learners * budget * batch (on average) * context tokens were
    processed."""
    warm_start: Steps = 0
    """The first steps of the budget, taken synchronously from one checkpoint that every run shares."""
    step_time: Seconds = 0.06
    """Nominal wall time of an inner step; a step that computes faster waits. 0s: no pace."""
    speeds: tuple[Annotated[float, Field(gt=0, le=4)], ...] = Field((), strict=False)
    """Of every learner, as a share of nominal: hardware of several generations. Empty: all alike."""
    variance: Share = 0.0
    """By up to so much, as a share, each step takes more or less than its learner's time."""
    heartbeat_timeout: Seconds = 3.0
    """A peer that says nothing for so long counts as gone."""
    checkpoint_every: int = Field(0, ge=0, le=1_000_000)
    """Data parallelism: steps between two checkpoints. 0: by Young and Daly, from the plan's faults."""
    checkpoint_interval: int = Field(100, ge=0, le=1_000_000)
    """Global steps between two consistent checkpoints of the whole run, from which `diloco-chaos resume` goes on. 0:
    none. In data parallelism the first checkpoint after so many is one."""
    reconfiguration: Seconds = 1.0
    """Elastic data parallelism: how long all stand still when somebody goes or comes."""
    snapshots: int = Field(20, ge=1, le=200)
    """Parameter snapshots over the budget, from which the loss curve is made."""
    seed: int = Field(0, ge=0, le=2**63 - 1)

    @model_validator(mode="before")
    @classmethod
    def _of_mode(cls, given: Any) -> Any:
        """Return the given settings, and what the mode and the budget imply where it is not given."""
        if not isinstance(given, dict):
            return given
        budget = given.get("budget", cls.model_fields["budget"].default)
        with suppress(ValueError):  # its own field says what is wrong with it
            budget = steps(budget)
        if isinstance(budget, int) and 0 <= budget <= MOST_STEPS:  # else what is wrong is the budget
            given = {"warmup": _usual_warmup(budget)} | given
        mode, learners = (given.get(key, cls.model_fields[key].default) for key in ("mode", "learners"))
        return implied(mode, learners) | given if isinstance(learners, int) and isinstance(mode, str) else given

    @model_serializer(mode="wrap")
    def _serialized(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the document with `warmup`, unless the budget implies it, even where it is the field's default."""
        document: dict[str, Any] = serialize(self)
        return document if self.warmup == _usual_warmup(self.budget) else {"warmup": self.warmup} | document

    @model_validator(mode="after")
    def _fits(self) -> TrainerConfig:
        if wrong := [Misfit(key, message) for key, message in self._misfits()]:
            raise MisfitError(*wrong)
        self.fragment_table()
        return self

    def _misfits(self) -> Iterator[tuple[str, str]]:
        """Yield what does not go together: the key that it stands at, and a sentence."""
        for key, value in implied(self.mode, self.learners).items():
            if getattr(self, key) != value:
                yield "mode", f"mode {self.mode} means {key} {value}: leave {key} out"
        for key in ("gradients", "broadcasts"):
            if self.mode in SYNCHRONOUS and getattr(self, key) not in _OF_STEPS:
                yield key, (f"{key} {getattr(self, key)}: mode {self.mode} averages gradients of single steps, "
                            f"and they travel as {' or '.join(_OF_STEPS)}")
        if self.quorum > self.learners:
            yield "quorum", f"quorum {self.quorum} can't be reached by {self.learners} learners"
        elif self.joining and self.quorum > self.learners - self.joining:
            yield "quorum", (f"quorum {self.quorum} can't be reached before {self.joining} of {self.learners} learners "
                             f"have joined")
        yield from self._unfit_schedules()
        if self.anchor == "latest" and self.max_staleness > _MOST_KEPT:
            yield "max_staleness", (f"max_staleness {self.max_staleness}: the syncer keeps so many versions of "
                                    f"everything, {_MOST_KEPT} at most; it keeps none with `anchor: base`")
        if self.overlap == 0 and self.quorum != self.learners:
            yield "overlap", "overlap 0 leaves no time for a grace window: set quorum to the number of learners"
        if self.speeds and len(self.speeds) != self.learners:
            yield "speeds", f"speeds: {len(self.speeds)} of them for {self.learners} learners: give one for each"
        if isinstance(self.batch, tuple) and len(self.batch) != self.learners:
            yield "batch", (f"batch: {len(self.batch)} of them for {self.learners} learners: give one for each, or "
                            f"one number for all")
        if self.variance > _MOST_VARIANCE:
            yield "variance", (f"variance {self.variance:.0%}: a step can't take less than no time; "
                               f"{_MOST_VARIANCE:.0%} at most")
        if self.heartbeat_timeout <= 2 * max(map(self.step_time_of, self.names)):
            yield "heartbeat_timeout", (
                f"heartbeat_timeout {self.heartbeat_timeout:g}s is too short for steps of {self.step_time:g}s: a "
                f"learner says something once a step; use more than two steps")

    def _unfit_schedules(self) -> Iterator[tuple[str, str]]:
        if self.warm_start * 4 > self.budget:
            yield "warm_start", f"warm_start {self.warm_start} is more than a quarter of the budget {self.budget}"
            return
        left = self.budget - self.warm_start
        if left <= 0:
            yield "budget", f"budget: {self.budget} steps leave nothing to train"
            return
        for key, what in (("sync_growth", f"H never reaches {self.sync_every}"),
                          ("momentum_ramp", f"the outer momentum never reaches {self.outer_momentum}")):
            if getattr(self, key) >= left:
                yield key, f"{key} {getattr(self, key)}: {what} in the {left} steps after the warm start"
        if self.sync_growth and self.sync_from > self.sync_every:
            yield "sync_from", f"sync_from {self.sync_from} is more than sync_every {self.sync_every}: H grows"
        if not self.sync_growth and self.sync_from != type(self).model_fields["sync_from"].default:
            yield "sync_from", (f"sync_from {self.sync_from} means nothing without sync_growth: say over how many "
                                f"steps H grows")
        if self.sync_growth and self.mode not in SYNCHRONOUS and self.blocking:
            yield "sync_growth", ("sync_growth: learners that wait for a merge do so after sync_every steps: leave it "
                                  "out with overlap 0 and in the modes streaming and diloco")

    @property
    def exchange(self) -> Decoupled:
        """Return the rules for when which fragments are exchanged, and which learners wait for that; not where
        gradients are averaged."""
        return _EXCHANGES[self.mode](self)

    @property
    def blocking(self) -> bool:
        """Return whether a learner waits for the merge of what it answered."""
        return self.mode in SYNCHRONOUS or self.exchange.blocking

    @property
    def averages_gradients(self) -> bool:
        """Return whether every step is one of the whole group, as in data parallelism: there are no fragments of one's
        own."""
        return self.mode in SYNCHRONOUS

    def contributors_needed(self, live: int) -> int:
        """Return how many distinct learners a merge needs: K, or all live ones where every step averages gradients."""
        return live if self.mode in SYNCHRONOUS else self.quorum

    @property
    def merges_from_all(self) -> bool:
        """Return whether K = M, or all are alike and the grace window is open for a whole step; true where gradients
        are averaged."""
        alike = not self.variance and len(set(self.speeds)) <= 1
        return self.averages_gradients or self.quorum == self.learners or (alike and self.grace * self.overlap >= 1)

    @property
    def waits_for_nobody(self) -> bool:
        """Return whether K < M and there is no grace window: a learner slower than the K-th is late in every round."""
        return not self.averages_gradients and self.quorum < self.learners and not self.grace * self.overlap

    @property
    def learners_needed(self) -> int:
        """K."""
        return self.quorum

    @property
    def heartbeat_s(self) -> float:
        """Seconds between two heartbeats, at which everybody hears something, and who was silent is given up."""
        return min(HEARTBEAT, self.sign_s)

    @property
    def coupling(self) -> Coupling:
        """Return how far learners depend on each other. A learner whose connection stands is missed at the first
        heartbeat after the timeout, on average half of one later; data parallelism does half the interval of its
        checkpoints again."""
        unseen = self.heartbeat_timeout + self.heartbeat_s / 2
        if self.mode in SYNCHRONOUS:
            elastic = self.mode == "elastic_data_parallel"
            return Coupling("group" if elastic else "all", 1.0, self.checkpoint_every * self.step_time / 2,
                            self.reconfiguration if elastic else 0.0, unseen)
        if self.blocking:
            return Coupling("all", 1 + self.overlap / self.sync_every, unseen_s=unseen)
        return Coupling(unseen_s=unseen)

    def checkpointed(self, losses: int) -> Self:
        """Return the same settings with a checkpoint interval by Young (1974) and Daly (2006): the square root of twice
        the cost of a checkpoint times the mean time between failures. Where nothing fails, checkpoints are as often as
        snapshots."""
        if not self.averages_gradients or self.checkpoint_every:
            return self
        if not self.nominal_s or not losses:
            every = math.ceil((self.budget - self.warm_start) / self.snapshots)
        else:
            every = max(1, round(math.sqrt(2 * CHECKPOINT_S * self.nominal_s / losses) / self.step_time))
        return self.model_copy(update={"checkpoint_every": every})

    @property
    def checkpoint_steps(self) -> int:
        """Return the steps between two checkpoints of data parallelism; 0 in other modes."""
        return self.checkpoint_every if self.averages_gradients else 0

    @property
    def exchanges_fragments(self) -> bool:
        """Return whether fragments are exchanged: in all modes that don't average gradients."""
        return not self.averages_gradients

    @property
    def longest_grace_s(self) -> float:
        """gamma of what an exchange may overlap with, a step at most."""
        return min(self.grace * self.overlap, 1.0) * self.step_time

    @property
    def steps_behind(self) -> int:
        """Return the number of steps by which a place on the global clock may differ from it. The trainer has a formula
        of its own."""
        return math.ceil(1 + 14 * self.variance ** 2)

    def merges_per_s(self, living: Collection[str]) -> float:
        """One a step where gradients are averaged, else every fragment once in H steps: as quick as the last that a
        merge needs."""
        if not self.step_time:
            return math.inf
        merges = 1.0 if self.averages_gradients else len(self.exchange.offsets) / self.sync_every
        return merges * self.merging_speed(living) / self.step_time

    @property
    def merges_at_once(self) -> int:
        """The fragments that are due at the same step."""
        return 1 if self.averages_gradients else max(Counter(self.exchange.offsets).values())

    def longest_gap_s(self, living: Collection[str]) -> float:
        """Twice the steps between two fragments that are due, or all that somebody may make who waits; the steps by
        which a place on the global clock may be behind; one in which somebody answers, and one of grace: each as long
        as those of the last that a merge needs."""
        if self.averages_gradients:
            return math.inf
        offsets, speed = self.exchange.offsets, self.merging_speed(living)
        between = max(later - earlier for earlier, later in pairwise([*offsets, offsets[0] + self.sync_every]))
        steps = max(2 * between, self.exchange.patience if self.blocking else 0) + self.steps_behind + 3
        return steps * self.step_time * (1 + self.variance) / speed if speed else math.inf

    def at_stake_s(self, learner: str) -> float:
        """Return the seconds of training that a learner does between two merges, and while one is under way; 0 where
        gradients are averaged."""
        return 0.0 if self.averages_gradients else (self.sync_every + self.overlap) * self.step_time_of(learner)

    @property
    def begun_tokens(self) -> int:
        """Return the tokens of the warm start; 0 for the synchronous run, which makes it."""
        return 0 if self.mode == "synchronous" else self.warm_tokens

    @property
    def first_position(self) -> int:
        """Behind the warm start."""
        return self.warm_start

    @property
    def exchanges_with_all(self) -> bool:
        """Return whether fragments are exchanged, and every learner is waited for."""
        return self.mode in BLOCKING

    @property
    def donates(self) -> bool:
        """Return whether learners bring others up to date."""
        return self.recovery == "peer" and self.mode not in SYNCHRONOUS

    @property
    def gradient_codec(self) -> Codec:
        """Return the codec in which outer gradients travel, or gradients of single steps."""
        return self._codec(self.gradients)

    @property
    def broadcast_codec(self) -> Codec:
        """Return the codec in which what a merge has changed travels, or a mean gradient."""
        return self._codec(self.broadcasts)

    @property
    def gradient_shapes(self) -> dict[str, Shape]:
        """Return the shape of a gradient of a single step, by its name: flat, one value for each of the model's."""
        return {GRADIENT: (sum(math.prod(shape) for shape in self.spec.shapes().values()),)}

    def _codec(self, precision: Precision) -> Codec:
        return Codec(precision, self.rounding == "stochastic", self.error_feedback)

    @property
    def spec(self) -> ModelSpec | QuadraticSpec:
        """Shapes and initial values of the model."""
        return MODELS[self.model]

    def fragment_table(self) -> list[Fragment]:
        """The P fragments of the model, every node's own copy of the same table; one where gradients are averaged."""
        count = 1 if self.mode in SYNCHRONOUS else self.fragments
        return plan_fragments(self.spec.shapes(), count, self.spec.embeddings())

    @property
    def batches(self) -> tuple[int, ...]:
        """Sequences of every learner's inner step."""
        return self.batch if isinstance(self.batch, tuple) else (self.batch,) * self.learners

    def tokens_per_step_of(self, learner: str) -> int:
        """Tokens that one inner step of this learner processes."""
        return self.batches[self.names.index(learner)] * self.spec.context

    @property
    def tokens_of_all(self) -> int:
        """Tokens that one inner step of every learner processes, all together."""
        return sum(self.batches) * self.spec.context

    @property
    def budget_tokens(self) -> int:
        """Tokens of the whole run, warm start included, over all learners."""
        return self.budget * self.tokens_of_all

    @property
    def warm_tokens(self) -> int:
        """Tokens of the shared warm start, over all learners."""
        return self.warm_start * self.tokens_of_all
