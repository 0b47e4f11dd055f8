"""The built-in trainer, as the experiment sees it: Decoupled DiLoCo and what it is compared with."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import ValidationError

from diloco_chaos.harness.base.errors import first
from diloco_chaos.harness.base.extras import lacking
from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.base.units import names
from diloco_chaos.harness.record.storage.disk import Content as Stored
from diloco_chaos.harness.record.storage.disk import Disk
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.trainer.config.cluster_config import COMPLETE, MODES, SYNCHRONOUS, TrainerConfig, implied
from diloco_chaos.harness.trainer.model.quadratic import FLOOR, QuadraticSpec
from diloco_chaos.harness.trainers.api.settings import FragmentRules, Pick, TrainerSettings
from diloco_chaos.harness.trainers.api.trainer import (
    OFTEN,
    ROUND_EVENTS,
    SELDOM,
    InnerSteps,
    Kind,
    Prepared,
    Recorded,
    Replay,
    Role,
    Trainer,
    TrainerError,
    Workload,
)
from diloco_chaos.harness.trainers.core.roles import Coordinator, Worker
from diloco_chaos.harness.trainers.wire.impostor import About, Content, Impostor

if TYPE_CHECKING:
    from diloco_chaos.harness.trainer.reference.rules import ReferenceRules
    from diloco_chaos.harness.trainer.reference.schedule import RateSchedule
    from diloco_chaos.harness.trainer.runtime.replica_factory import MakeReplica

_COPIES = 10
"""So many models fit onto a small disk: value, momentum and error (or weights and both moments), each twice, and room
to write the next ones."""
_SYNCHRONOUS_FIELDS = {"learners", "model", "corpus", "device", "batch", "synchronous_lr", "warmup", "final_lr",
                       "budget", "warm_start", "snapshots", "seed"}
_EXCHANGE = ("sync_every", "fragments", "on_receipt", "anchor", "merge", "outer_lr", "outer_momentum", "sync_growth",
             "momentum_ramp", "max_staleness", "error_feedback", "recovery")
"""Settings of how fragments are exchanged and merged."""
_OF_ROUNDS = ("quorum", "overlap")
"""Settings that mean nothing where every gradient is averaged."""
_OF_GRADIENTS = ("gradients", "broadcasts")
"""Settings that mean something else where gradients are of single steps."""
_BOTH = {"failpoint", "refused", "refused_frame", "not_saved"}
_SYNCER = {*ROUND_EVENTS["syncer"], *_BOTH, "listening", "repaired", "checkpoint_begun", "checkpoint_complete",
           "checkpoint_incomplete", "refused_checkpoint", "renewed"}
_LEARNER = {*ROUND_EVENTS["learner"], *_BOTH, "imported", "checkpoint_part", "inner_step", "skipped", "reset",
            "corrupted"}
_OF_MODES = {"outer_gradient", "received", "grouped", "rolled_back", "replica"}
_SYNCERS_POINTS = ("merge.before_commit", "checkpoint.before_rename", "checkpoint.between", "commit.before_broadcast")
_HALF, _DONATE = "upload.half", "donate.half"


class TrainingWorkload(Workload):
    """A model, what it is trained on, and the state machines that train it."""

    def __init__(self, config: TrainerConfig, data: Path | None, initial: Tensors, threads: int) -> None:
        self._config, self._data, self._initial, self._threads = config, data, initial, threads

    @cached_property
    def _replicas(self) -> MakeReplica:
        """Imports torch where the model needs it, which takes seconds: a syncer that is started again does without."""
        from diloco_chaos.harness.trainer.runtime.replica_factory import replicas
        return replicas(self._config, self._data, self._initial, self._threads)

    def coordinator(self, disk: Disk, incarnation: int) -> Coordinator:
        """The syncer, or the hub of data parallelism."""
        from diloco_chaos.harness.trainer.runtime.cores import syncer_core
        return syncer_core(self._config, disk, self._initial, incarnation)

    def worker(self, name: str, incarnation: int, token: str, part: Stored | None = None) -> Worker:
        """A learner, or a peer of data parallelism."""
        from diloco_chaos.harness.trainer.runtime.cores import learner_core
        replica = self._replicas(self._config.names.index(name))
        return learner_core(self._config, name, incarnation, token, replica, part)

    def put_back(self, part: Stored, disk: Disk) -> None:
        """Put back the files of all fragments."""
        from diloco_chaos.harness.trainer.coordinator.syncer_part import put_back
        put_back(part, disk)

    def evaluator(self) -> Callable[[Tensors], float]:
        """Held-out loss, in the unit of the model."""
        from diloco_chaos.harness.trainer.runtime.replica_factory import evaluator
        return evaluator(self._replicas(0))


class DecoupledDiLoCo(Trainer):
    """See the module."""

    name = "decoupled-diloco"
    settings_type = TrainerConfig
    settings: TrainerConfig
    modes: ClassVar[tuple[str, ...]] = MODES
    all_failpoints: ClassVar[tuple[str, ...]] = (*_SYNCERS_POINTS, _HALF, _DONATE)

    @property
    def algorithm(self) -> str:
        """Its mode."""
        return self.settings.mode.replace("_", " ")

    def lacking(self, *, containers: bool = False) -> str:
        """Return what must be installed before this model can be trained, as a sentence; empty where it can."""
        needless = isinstance(self.settings.spec, QuadraticSpec)
        return "" if needless else lacking("torch", "trainer", f"model {self.settings.model}")

    @property
    def computes_on(self) -> str:
        """The device."""
        return self.settings.device

    # -- what is trained -----------------------------------------------------------------------------------------------

    def workload(self, data: Path | None, initial: Tensors, threads: int = 1) -> Workload:
        """Imports torch where the model needs it, with the first replica."""
        return TrainingWorkload(self.settings, data, initial, threads)

    def prepare(self, cache: Path, undo_log: UndoLog | None = None) -> Prepared:
        """The corpus, as a file."""
        from diloco_chaos.harness.trainer.runtime.replica_factory import corpus_for
        file, digest = corpus_for(self.settings, cache, undo_log)
        return Prepared(file, digest, self.settings.corpus)

    def imports(self, role: Role) -> tuple[str, ...]:
        """Return the state machines, and for learners of a model that needs it torch."""
        room = "diloco_chaos.harness.trainer"
        learns = role == "learner" and not isinstance(self.settings.spec, QuadraticSpec)
        return (*super().imports(role), f"{room}.runtime.cores", f"{room}.runtime.replica_factory",
                *((f"{room}.model.transformer",) if learns else ()))

    def reads(self) -> tuple[str, ...]:
        """The corpus, which depends on how long the model's windows are."""
        return self.settings.model, self.settings.corpus

    def initial(self) -> Tensors:
        """Return the initial values of the model."""
        return self.settings.spec.initial(self.settings.seed)

    def stored_bytes(self) -> int:
        """Return the bytes that the files of all fragments take."""
        return _COPIES * 4 * sum(fragment.size for fragment in self.settings.fragment_table())

    def cheapest(self) -> TrainerSettings:
        """Return the same settings on the quadratic, which needs no torch, and is cut into as many fragments as it has
        tensors at the most."""
        from diloco_chaos.harness.trainer.model.spec import MODELS
        tensors = len(MODELS["quadratic"].shapes())
        fragments = min(self.settings.fragments, tensors)
        return self.settings.model_copy(update={"model": "quadratic", "fragments": fragments})

    def varied(self, pick: Pick) -> TrainerSettings:
        """See `diloco_chaos.harness.trainer.config.drawn`."""
        from diloco_chaos.harness.trainer.config.drawn import varied
        return varied(self.settings, pick)

    def calibrated(self, cores: int) -> float | None:
        """Measured in processes of their own, so that the harness needs no torch."""
        done = subprocess.run([sys.executable, "-m", "diloco_chaos.harness.trainer.runtime.calibrate", str(cores)],
                              check=False, text=True, input=self.settings.model_dump_json(), capture_output=True)
        if done.returncode != 0:
            raise TrainerError(f"a step's time could not be measured:\n{done.stderr.strip()[-1000:]}")
        return float(done.stdout)

    # -- what scenarios may say ----------------------------------------------------------------------------------------

    def objections(self) -> Iterable[tuple[str, str]]:
        """The synchronous run has no faults."""
        if self.settings.mode == "synchronous":
            yield "mode", ("mode: the synchronous run is made as a reference, from scratch; "
                           "data_parallel is the same with faults")

    def idle(self) -> list[str]:
        """Return a sentence on settings of the exchange of fragments that mean nothing in this mode; empty if none."""
        settings = self.settings
        ignored = [name for name in _EXCHANGE if settings.averages_gradients
                   and getattr(settings, name) != TrainerConfig.model_fields[name].default]
        return [f"mode {settings.mode} averages the gradients of every step: {', '.join(ignored)} "
                f"{'means' if len(ignored) == 1 else 'mean'} nothing there"] if ignored else []

    def events(self, role: Role) -> frozenset[str]:
        """Return the events of this role by the mode."""
        donors = self.settings.donates
        if role == "syncer":
            more = {"grouped", "rolled_back"} if self.settings.averages_gradients else set()
            return frozenset(_SYNCER | more | ({"recovering"} if donors else set()))
        more = {"replica"} if self.settings.averages_gradients else {"outer_gradient", "received"}
        return frozenset(_LEARNER | more | ({"donated"} if donors else set()))

    def most(self, event: str) -> int | None:
        """Return how often a node can record an event: every fragment once in H steps; more often while H grows."""
        steps = (self.settings.budget - self.settings.warm_start) * self.settings.learners
        exchanges = steps if self.settings.averages_gradients else _exchanges(self.settings, steps)
        return {"step": steps, "outer_gradient": exchanges, "upload": exchanges, "merge": exchanges}.get(event)

    def drawn_events(self, role: Role) -> Mapping[str, Sequence[int]]:
        """Return the events of an exchange, and of coming and going."""
        if role == "syncer":
            return {"merge": OFTEN, "hello": SELDOM, "lost": SELDOM, "resumed": SELDOM}
        often = (("step", "upload") if self.settings.averages_gradients else
                 ("step", "outer_gradient", "upload", "received"))
        return dict.fromkeys(often, OFTEN) | {"ready": SELDOM, "disconnected": SELDOM}

    def failpoints(self, role: Role) -> tuple[str, ...]:
        """Return the points in the middle of frames and of commits."""
        if role == "syncer":
            return _SYNCERS_POINTS
        return (_HALF, _DONATE) if self.settings.donates else (_HALF,)

    def absent(self, name: str) -> str:
        """Return why there is no such event or failpoint: by the mode, or without recovery from peers."""
        if name in _OF_MODES:
            return f" in mode {self.settings.mode}"
        return ": only with `recovery: peer` learners bring others up to date" if name == _DONATE else ""

    def refusal(self, kind: str, part: str = "") -> str:
        """What speaks the protocol of fragments needs some."""
        if kind in ("poison", "lie", "corrupt_memory") and self.settings.averages_gradients:
            return (f"{kind}: mode {self.settings.mode} takes no outer gradients, and this is about learners that give "
                    f"them")
        if kind == "corrupt_memory" and part == "moments" and isinstance(self.settings.spec, QuadraticSpec):
            return (f"corrupt_memory: model {self.settings.model} is trained by plain gradient descent, which has no "
                    f"moments")
        return ""

    def fragment_rules(self) -> FragmentRules | None:
        """Return the rules of Decoupled DiLoCo and its blocking forms; None where gradients are averaged. What changes
        as training goes on comes from the reference."""
        settings = self.settings
        if settings.averages_gradients:
            return None
        schedule = _schedule(settings, settings.lr)
        return FragmentRules(settings.quorum, settings.max_staleness, settings.overlap, settings.grace,
                             settings.on_receipt == "carry", schedule.warm_tokens, schedule.budget_tokens,
                             _turn(settings), schedule.outer, schedule.inner_rates,
                             {name: batch * schedule.context
                              for name, batch in zip(settings.names, schedule.batches, strict=True)},
                             settings.exchange.patience, settings.steps_behind,
                             [fragment.size for fragment in settings.fragment_table()],
                             settings.donates)

    # -- what it is held against ---------------------------------------------------------------------------------------

    def under(self, mode: str) -> TrainerSettings:
        """What its own mode implied is left to the other."""
        settings = self.settings
        if mode in COMPLETE and settings.joining:
            late = settings.names[-settings.joining:]
            raise TrainerError(f"mode {mode} waits for all learners from the beginning, and {names(late)} "
                               f"{'joins' if len(late) == 1 else 'join'} later")
        left = {*implied(settings.mode, settings.learners), *(_OF_ROUNDS if mode in SYNCHRONOUS else ())}
        left |= set(_OF_GRADIENTS) if (mode in SYNCHRONOUS) != (settings.mode in SYNCHRONOUS) else set()
        cluster = {name: value for name, value in settings.model_dump(mode="json").items() if name not in left}
        cluster |= {"mode": mode} | implied(mode, settings.learners)
        if cluster.get("overlap") == 0:  # there is no time for a grace window then
            cluster["quorum"] = settings.learners
        try:
            return TrainerConfig.model_validate(cluster)
        except ValidationError as error:
            raise TrainerError(f"mode {mode}: {first(error)}") from error

    def synchronous(self) -> TrainerSettings | None:
        """Data parallelism without pace, whatever else the settings say."""
        given = {name: getattr(self.settings, name) for name in _SYNCHRONOUS_FIELDS}
        return TrainerConfig(mode="synchronous", step_time=0.0, **given)

    @property
    def last_snapshot(self) -> int:
        """Return the number of the snapshot at the end of the budget."""
        return self.settings.snapshots

    @property
    def loss_unit(self) -> str:
        """Return the unit of the model's loss."""
        return self.settings.spec.loss_unit

    @property
    def loss_floor(self) -> float:
        """Return the least loss of the quadratic model; 0 for others."""
        return FLOOR if isinstance(self.settings.spec, QuadraticSpec) else 0.0

    def synchronous_loss(self) -> float | None:
        """Return the loss with which the synchronous run of the quadratic model ends; None for others."""
        import numpy as np

        from diloco_chaos.harness.trainer.reference.problem import synchronous
        settings = self.settings
        if settings.model != "quadratic":
            return None
        schedule = _schedule(settings, settings.synchronous_lr)
        shares = tuple(batch / sum(settings.batches) for batch in settings.batches)
        rates = schedule.inner_rate(np.arange(settings.budget, dtype=np.float64) * schedule.step)
        return synchronous(settings.seed, shares, tuple(rates))

    def decides(self, kind: Kind) -> dict[str, Any]:
        """Return the settings that a baseline of this kind depends on: of the synchronous run, few."""
        return self.settings.model_dump(mode="json", include=_SYNCHRONOUS_FIELDS if kind == "synchronous" else None)

    # -- what only some can --------------------------------------------------------------------------------------------

    def impostor(self, token: str, learner: str, incarnation: int, what: Content | About) -> Impostor:
        """Speaks the protocol of fragments."""
        from diloco_chaos.harness.trainer.protocol.byzantine import rogue
        return rogue(token, learner, incarnation, self.settings, what)

    def replay(self, recorded: Recorded, data: Path | None, initial: Tensors, tell: Callable[[int], None]) -> Replay:
        """Do a recorded run again, by the trainer's own cores."""
        from diloco_chaos.harness.base.device import missing
        from diloco_chaos.harness.trainer.replay.replay import replay
        from diloco_chaos.harness.trainer.runtime.replica_factory import replicas
        if why := missing(self.settings.device):
            raise TrainerError(f"it was computed on device {self.settings.device}: {why}; replay it where there is one")
        return replay(self.settings, recorded, initial, replicas(self.settings, data, initial), tell)

    def needs_workings(self) -> bool:
        """The quadratic model is computed again from its beginning."""
        return bool(self.settings.warm_start) or self.settings.model != "quadratic"

    def recomputed(self, recorded: Recorded) -> Replay | None:
        """Compute again all of the quadratic model; of others what was kept."""
        from diloco_chaos.harness.trainer.reference import averaging, recompute
        from diloco_chaos.harness.trainer.reference.recorded import held_against
        if not self.needs_workings() and self.settings.averages_gradients:
            schedule = _schedule(self.settings, self.settings.synchronous_lr)
            return averaging.recomputed(_rules(self.settings), schedule, recorded)
        if not self.needs_workings():
            return recompute.recomputed(_rules(self.settings), recorded)
        return None if recorded.workings is None else held_against(_rules(self.settings), recorded, recorded.workings)

    def inner_steps(self, recorded: Recorded) -> InnerSteps | None:
        """Hold what learners told of AdamW's steps against its formulas."""
        from diloco_chaos.harness.trainer.reference.inner_steps import InnerRules, held_against
        settings = self.settings
        peak = settings.synchronous_lr if settings.averages_gradients else settings.lr
        rules = InnerRules(settings.names, settings.starters, settings.seed, settings.averages_gradients,
                           _schedule(settings, peak))
        return held_against(rules, recorded)


def _rules(settings: TrainerConfig) -> ReferenceRules:
    """Return what decides what is computed, for the reference."""
    from diloco_chaos.harness.trainer.reference.codec import Rounding
    from diloco_chaos.harness.trainer.reference.problem import TABLES
    from diloco_chaos.harness.trainer.reference.rules import ReferenceRules
    gradients, broadcasts = (Rounding(precision, settings.rounding == "stochastic", settings.error_feedback)
                             for precision in (settings.gradients, settings.broadcasts))
    return ReferenceRules(settings.names, settings.seed, settings.fragments, settings.on_receipt == "carry",
                          settings.anchor == "latest", settings.merge == "rda", TABLES, gradients, broadcasts)


def _exchanges(settings: TrainerConfig, steps: int) -> int:
    """Return how many exchanges all fragments have at most in so many global steps."""
    grows = min(steps, settings.sync_growth * settings.learners)
    return (grows // settings.sync_from + (steps - grows) // settings.sync_every + 2
            + bool(grows)) * settings.fragments


def _turn(settings: TrainerConfig) -> float:
    """H, the steps by which a place on the global clock may be behind, one to answer in, one of grace and one that is
    told late; and two for each of the other fragments that may be in the way, as many as go at a time together."""
    at_a_time = math.ceil(settings.fragments / settings.exchange.most_rounds)
    return settings.sync_every + settings.steps_behind + 3 + 2 * at_a_time


def _schedule(settings: TrainerConfig, peak: float) -> RateSchedule:
    """The reference's, for an inner rate that rises to this."""
    from diloco_chaos.harness.trainer.reference.schedule import RateSchedule
    return RateSchedule(settings.batches, settings.spec.context, settings.budget, settings.warm_start, settings.warmup,
                        peak, settings.final_lr, settings.outer_lr, settings.outer_momentum, settings.momentum_ramp)
