"""Short runs that stand for all that figures rest on: one per mode, codec and way to go on after a fault.

Each is performed under virtual time, and nothing in it is left to chance that another setting, message or draw would
change: links and machines are always as quick, learners differ in speed so that no two events fall together, and what
chance is left is drawn from the run's own name, not from its plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.built_in import config_of
from diloco_chaos.chaos.runner.baselines import synchronous
from diloco_chaos.chaos.runner.experiment import Experiment
from diloco_chaos.chaos.runner.simulate import NullObserver, Performed, data_file
from diloco_chaos.chaos.runner.virtual_runtime import VirtualStage
from diloco_chaos.chaos.scenario.model import Scenario
from diloco_chaos.chaos.scenario.plan import Plan, freeze
from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.simulation.parameters import Parameters

STEADY = Parameters(start_learner=1.5931, start_syncer=0.4517, cores=16, delay=0.00061803, jitter=0, compute=0.020173,
                    compute_spread=0, write=0.00041411, sync=0.00039793, late=0, tick=0.01)
"""Odd numbers, so that times rarely stand just between two that they could be rounded to."""
_SMALL: Mapping[str, Any] = {"model": "quadratic", "learners": 3, "budget": "120 steps", "step_time": "60ms",
                             "speeds": [1.0, 0.97, 0.95], "snapshots": 6}
_MICRO: Mapping[str, Any] = {**_SMALL, "model": "micro", "corpus": "markov", "fragments": 4, "batch": 2,
                             "budget": "48 steps", "warm_start": "8 steps", "warmup": "6 steps", "snapshots": 3}
Fault = Mapping[str, Any]
_KILLS: Sequence[Fault] = ({"kill": "learner-2", "at": "1517ms", "restart_after": "600ms"},
                           {"kill": "syncer", "at": "4523ms", "restart_after": "300ms"})
_LEARNER: Sequence[Fault] = ({"kill": "learner-2", "at": "1517ms", "restart_after": "600ms"},)
_CUT_OFF: Sequence[Fault] = ({"partition": ["learner-2", "learner-3"], "at": "1517ms", "for": "1500ms"},)
_THIN: Sequence[Fault] = ({"latency": "learners", "at": "517ms", "for": "4s", "delay": "50ms", "rate": "20kB/s"},)
_CALM: Sequence[Fault] = ()


@dataclass(frozen=True)
class Canonical:
    """One such run."""

    about: str
    settings: Mapping[str, Any]
    faults: Sequence[Fault] = _CALM
    weighed: bool = False
    """Whether how many bytes it sends is part of what it does."""
    base: Mapping[str, Any] = field(default_factory=lambda: _SMALL)

    @property
    def plan(self) -> Plan:
        """Frozen, of seed 0."""
        return freeze(Scenario.model_validate({
            "diloco_chaos": 1, "name": "canonical", "deadline": "600s", "cluster": {**self.base, **self.settings},
            "faults": list(self.faults)}), 0)

    @property
    def torch(self) -> bool:
        """Whether its values depend on how torch was built."""
        return config_of(self.plan).model != "quadratic"


def _modes() -> dict[str, Canonical]:
    """Every mode, undisturbed and after a learner and the syncer were killed."""
    made = {"synchronous": Canonical("the synchronous run", {"mode": "synchronous"})}
    for mode in ("decoupled", "streaming", "diloco", "data_parallel", "elastic_data_parallel"):
        made[mode] = Canonical(f"mode {mode}", {"mode": mode})
        made[f"{mode}.kills"] = Canonical(f"mode {mode}, a learner and the syncer are killed", {"mode": mode}, _KILLS)
    return made


def _codecs() -> dict[str, Canonical]:
    """Every codec both ways; float32 is that of the run `decoupled`."""
    made = {name: Canonical(f"{name} both ways", {"gradients": name, "broadcasts": name})
            for name in ("bfloat16", "int8", "int4")}
    fed_back = {"gradients": "int4", "broadcasts": "int4", "error_feedback": True}
    return made | {"int4.feedback": Canonical("int4 both ways with error feedback", fed_back)}


def _settings() -> dict[str, Canonical]:
    """Other settings than the defaults', and what learners do where something is wrong."""
    return {
        "blocking": Canonical("tau = 0, K = M", {"overlap": 0, "quorum": 3}),
        "overlap.wide": Canonical("tau = 4", {"overlap": 4}),
        "quorum": Canonical("K = 2, unequal learners", {"quorum": 2, "speeds": [1.0, 0.82, 0.79]}),
        "grace.none": Canonical("gamma = 0, unequal learners", {"grace": 0, "speeds": [1.0, 0.82, 0.79]}),
        "unequal": Canonical("unequal learners, steps that vary", {"speeds": [1.0, 0.82, 0.79], "variance": 0.1}),
        "overwrite": Canonical("received values overwrite", {"on_receipt": "overwrite"}),
        "average": Canonical("plain averages", {"merge": "average"}),
        "every": Canonical("H = 24", {"sync_every": 24}),
        "paper": Canonical("the settings of scenario `paper`", {
            "sync_every": 24, "on_receipt": "overwrite", "gradients": "int4"}, _LEARNER),
        "cut_off": Canonical("two learners are cut off", {}, _CUT_OFF),
        "cut_off.own": Canonical("two learners are cut off, anchor: base", {"anchor": "base"}, _CUT_OFF),
        "cut_off.overwrite": Canonical("two learners are cut off, received values overwrite",
                                       {"on_receipt": "overwrite"}, _CUT_OFF),
        "recovery.peer": Canonical("a learner is brought up to date by another", {"recovery": "peer"}, _LEARNER),
        "slowed": Canonical("a straggler, and a pause", {}, [
            {"straggler": "learner-1", "at": "1517ms", "for": "2s", "factor": 0.4},
            {"pause": "learner-3", "at": "2523ms", "for": "1s"}]),
        "paused_syncer": Canonical("the syncer is paused", {}, [{"pause": "syncer", "at": "1517ms", "for": "700ms"}]),
        "joining": Canonical("a learner joins, and leaves again", {}, [
            {"join": "learner-3", "at": "1517ms"}, {"terminate": "learner-3", "at": "5s"}]),
        "thin": Canonical("a thin, long line", {"overlap": 10}, _THIN, True),
        "thin.data_parallel": Canonical("a thin, long line, data parallelism", {"mode": "data_parallel"}, _THIN, True),
        "bytes.int4": Canonical("what int4 both ways says over the wire",
                                {"gradients": "int4", "broadcasts": "int4", "sync_every": 24}, weighed=True),
        "bytes.data_parallel": Canonical("what data parallelism says over the wire", {"mode": "data_parallel"},
                                         weighed=True)}


def _micro() -> dict[str, Canonical]:
    """The real model with AdamW and a warm start, small."""
    return {"model.synchronous": Canonical("the real model, synchronous", {"mode": "synchronous"}, base=_MICRO),
            "model.decoupled": Canonical("the real model, decoupled, a learner is killed", {}, [
                {"kill": "learner-2", "at": "517ms", "restart_after": "0s"}], base=_MICRO),
            "model.data_parallel": Canonical("the real model, data parallelism", {"mode": "data_parallel"},
                                             base=_MICRO)}


RUNS: dict[str, Canonical] = _modes() | _codecs() | _settings() | _micro()
"""By name."""


def perform(name: str) -> Performed:
    """Do one of them."""
    run = RUNS[name]
    return _performed(run.plan, name)


def _performed(plan: Plan, name: str) -> Performed:
    if plan.cluster.begun_tokens:
        initial = _performed(synchronous(plan.without_faults()), name).snapshots[0][0]
    else:
        initial = plan.trainer.initial()
    snapshots: list[tuple[Tensors, dict[str, Any]]] = []
    workload = plan.trainer.workload(data_file(plan), initial)
    stage = VirtualStage(plan, STEADY, workload, lambda tensors, meta: snapshots.append((tensors, meta)))
    stage.world.chance.seed(name)  # a plan's digest changes with every setting that is added
    outcome = Experiment(plan, stage, NullObserver()).perform()
    assert outcome.kind == "finished", f"the canonical run {name!r} did not finish: {outcome.kind} {outcome.message}"
    return Performed(stage, outcome, snapshots, workload)
