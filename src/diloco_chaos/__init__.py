"""Chaos engineering for fault-tolerant model training: plan, inject, observe, judge, report.

What is named here is the public interface; everything else may change from one version to the next.

    from diloco_chaos import freeze, load, simulate
    result = simulate(freeze(load("kill-one")[0], seed=0))
    assert result.judgement.exit_code == 0

- load(name or file) -> (Scenario, its file); freeze(scenario, seed) -> Plan
- run(plan, folder for runs, audience) -> Result; simulate(plan) -> SimulatedRun
- launch(scenario) -> a run that goes on beside the test's own lines: `Launched`
- judge(history) -> Judgement; `History` is a recorded run
- events: the module of what a tape's lines are read as; units: the module of seconds, bytes and rates in a scenario
- Fault, LinkFault, Drawn, Effect, FaultContext, Observation, Sounding, Toxic: what a fault is made from
- check, Finding, Figure, Late, Unknown: what a check is made from; line: evidence with moments of the run in it;
  at_most, at_least: what a check allows
- Place, Site, LocalSite, Process, Simulated, Parameters, Option, Requirement, Ability, EVERYWHERE, Recorder, UndoLog,
  Undo: what a place is made from, where runs are performed; Backend: one with its settings
- Trainer, Workload, TrainerSettings, Coupling, Tensors: what a trainer is made from; RoundTrainer, SimpleSettings: one
  that works in rounds
- progress: the module that a trainer calls to report its rounds

The folders `chaos`, `faults`, `harness` and `scenarios` of the repository are this package's subpackages.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diloco_chaos.chaos import progress as progress
    from diloco_chaos.chaos.checks import judge as judge
    from diloco_chaos.chaos.checks.base import Figure as Figure
    from diloco_chaos.chaos.checks.base import Finding as Finding
    from diloco_chaos.chaos.checks.base import Late as Late
    from diloco_chaos.chaos.checks.base import Unknown as Unknown
    from diloco_chaos.chaos.checks.base import at_least as at_least
    from diloco_chaos.chaos.checks.base import at_most as at_most
    from diloco_chaos.chaos.checks.base import check as check
    from diloco_chaos.chaos.evidence.history import History as History
    from diloco_chaos.chaos.launched import Launched as Launched
    from diloco_chaos.chaos.launched import launch as launch
    from diloco_chaos.chaos.runner.backends import Backend as Backend
    from diloco_chaos.chaos.runner.run import Result as Result
    from diloco_chaos.chaos.runner.run import run_plan as run  # noqa: F401 - what users import
    from diloco_chaos.chaos.runner.simulate import simulate as simulate
    from diloco_chaos.chaos.scenario.loading import load as load
    from diloco_chaos.chaos.scenario.plan import Plan as Plan
    from diloco_chaos.chaos.scenario.plan import freeze as freeze
    from diloco_chaos.faults.base import Drawn as Drawn
    from diloco_chaos.faults.base import Fault as Fault
    from diloco_chaos.faults.base import FaultContext as FaultContext
    from diloco_chaos.faults.base import Observation as Observation
    from diloco_chaos.faults.evidence import Effect as Effect
    from diloco_chaos.faults.links.base import LinkFault as LinkFault
    from diloco_chaos.harness.base import units as units
    from diloco_chaos.harness.base.lines import line as line
    from diloco_chaos.harness.base.tensors import Tensors as Tensors
    from diloco_chaos.harness.links.probe import Sounding as Sounding
    from diloco_chaos.harness.links.toxic import Toxic as Toxic
    from diloco_chaos.harness.places.base import EVERYWHERE as EVERYWHERE
    from diloco_chaos.harness.places.base import Ability as Ability
    from diloco_chaos.harness.places.base import Recorder as Recorder
    from diloco_chaos.harness.places.local.site import LocalSite as LocalSite
    from diloco_chaos.harness.places.nodes.process import Process as Process
    from diloco_chaos.harness.places.place import Option as Option
    from diloco_chaos.harness.places.place import Place as Place
    from diloco_chaos.harness.places.place import Requirement as Requirement
    from diloco_chaos.harness.places.simulated.place import Simulated as Simulated
    from diloco_chaos.harness.places.site import Site as Site
    from diloco_chaos.harness.record.tape import events as events
    from diloco_chaos.harness.record.undo_log import UndoLog as UndoLog
    from diloco_chaos.harness.record.undos import Undo as Undo
    from diloco_chaos.harness.simulation.parameters import Parameters as Parameters
    from diloco_chaos.harness.trainers.api.rounds import RoundTrainer as RoundTrainer
    from diloco_chaos.harness.trainers.api.settings import Coupling as Coupling
    from diloco_chaos.harness.trainers.api.settings import SimpleSettings as SimpleSettings
    from diloco_chaos.harness.trainers.api.settings import TrainerSettings as TrainerSettings
    from diloco_chaos.harness.trainers.api.trainer import Trainer as Trainer
    from diloco_chaos.harness.trainers.api.trainer import Workload as Workload

__version__ = "0.1.0"

_PUBLIC = {
    "load": "chaos.scenario.loading:load", "freeze": "chaos.scenario.plan:freeze", "Plan": "chaos.scenario.plan:Plan",
    "run": "chaos.runner.run:run_plan", "Result": "chaos.runner.run:Result",
    "simulate": "chaos.runner.simulate:simulate", "judge": "chaos.checks:judge",
    "launch": "chaos.launched:launch", "Launched": "chaos.launched:Launched",
    "History": "chaos.evidence.history:History", "Backend": "chaos.runner.backends:Backend",
    "check": "chaos.checks.base:check", "Finding": "chaos.checks.base:Finding", "Figure": "chaos.checks.base:Figure",
    "Late": "chaos.checks.base:Late", "Unknown": "chaos.checks.base:Unknown", "line": "harness.base.lines:line",
    "at_most": "chaos.checks.base:at_most", "at_least": "chaos.checks.base:at_least",
    "Fault": "faults.base:Fault", "Drawn": "faults.base:Drawn", "LinkFault": "faults.links.base:LinkFault",
    "Effect": "faults.evidence:Effect", "FaultContext": "faults.base:FaultContext",
    "Observation": "faults.base:Observation", "Sounding": "harness.links.probe:Sounding",
    "Toxic": "harness.links.toxic:Toxic", "units": "harness.base.units:", "events": "harness.record.tape.events:",
    "Place": "harness.places.place:Place", "Option": "harness.places.place:Option",
    "Requirement": "harness.places.place:Requirement", "Ability": "harness.places.base:Ability",
    "EVERYWHERE": "harness.places.base:EVERYWHERE", "Recorder": "harness.places.base:Recorder",
    "Site": "harness.places.site:Site", "LocalSite": "harness.places.local.site:LocalSite",
    "Process": "harness.places.nodes.process:Process", "Simulated": "harness.places.simulated.place:Simulated",
    "Parameters": "harness.simulation.parameters:Parameters", "UndoLog": "harness.record.undo_log:UndoLog",
    "Undo": "harness.record.undos:Undo", "Tensors": "harness.base.tensors:Tensors",
    "Coupling": "harness.trainers.api.settings:Coupling",
    "Trainer": "harness.trainers.api.trainer:Trainer", "Workload": "harness.trainers.api.trainer:Workload",
    "RoundTrainer": "harness.trainers.api.rounds:RoundTrainer",
    "SimpleSettings": "harness.trainers.api.settings:SimpleSettings",
    "TrainerSettings": "harness.trainers.api.settings:TrainerSettings",
    "progress": "chaos.progress:"}
"""Name -> `module:name`, or `module:` for a module itself. Each is imported on first use, so that pytest's plugin is
cheap in sessions without scenarios."""

__all__ = [*_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, member = _PUBLIC[name].partition(":")
    loaded = import_module(f"{__name__}.{module}")
    return getattr(loaded, member) if member else loaded
