"""The experiment: plan, inject, observe, judge, report.

What is named here is the public interface; everything else may change from one version to the next.

    from chaos import freeze, load, simulate
    result = simulate(freeze(load("kill-one")[0], seed=0))
    assert result.judgement.exit_code == 0

- load(name or file) -> (Scenario, its file); freeze(scenario, seed) -> Plan
- run(plan, folder for runs, audience) -> Result; simulate(plan) -> Simulated
- launch(scenario) -> a run that goes on beside the test's own lines: `Launched`
- judge(history) -> Judgement; `History` is a recorded run
- Fault, LinkFault, Drawn, Effect: what a fault is made from; check, Finding, Figure, Late, Unknown: what a check is
- Trainer, Workload, TrainerSettings: what a trainer is made from; RoundTrainer, SimpleSettings: one that works in
  rounds
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chaos.checks import judge as judge
    from chaos.checks.base import Figure as Figure
    from chaos.checks.base import Finding as Finding
    from chaos.checks.base import Late as Late
    from chaos.checks.base import Unknown as Unknown
    from chaos.checks.base import check as check
    from chaos.evidence.history import History as History
    from chaos.launched import Launched as Launched
    from chaos.launched import launch as launch
    from chaos.runner.backends import Backend as Backend
    from chaos.runner.run import Result as Result
    from chaos.runner.run import run_plan as run  # noqa: F401 - what users import
    from chaos.runner.simulate import simulate as simulate
    from chaos.scenario.loading import load as load
    from chaos.scenario.plan import Plan as Plan
    from chaos.scenario.plan import freeze as freeze
    from faults.base import Drawn as Drawn
    from faults.base import Fault as Fault
    from faults.evidence import Effect as Effect
    from faults.links.base import LinkFault as LinkFault
    from harness.trainer_api.rounds import RoundTrainer as RoundTrainer
    from harness.trainer_api.settings import SimpleSettings as SimpleSettings
    from harness.trainer_api.settings import TrainerSettings as TrainerSettings
    from harness.trainer_api.trainer import Trainer as Trainer
    from harness.trainer_api.trainer import Workload as Workload

_PUBLIC = {
    "load": "chaos.scenario.loading", "freeze": "chaos.scenario.plan", "Plan": "chaos.scenario.plan",
    "run": "chaos.runner.run:run_plan", "simulate": "chaos.runner.simulate", "judge": "chaos.checks",
    "launch": "chaos.launched", "Launched": "chaos.launched", "History": "chaos.evidence.history",
    "Result": "chaos.runner.run", "Fault": "faults.base", "LinkFault": "faults.links.base", "Drawn": "faults.base",
    "Effect": "faults.evidence", "check": "chaos.checks.base", "Finding": "chaos.checks.base",
    "Figure": "chaos.checks.base", "Late": "chaos.checks.base", "Unknown": "chaos.checks.base",
    "Backend": "chaos.runner.backends",
    "Trainer": "harness.trainer_api.trainer", "Workload": "harness.trainer_api.trainer",
    "RoundTrainer": "harness.trainer_api.rounds", "SimpleSettings": "harness.trainer_api.settings",
    "TrainerSettings": "harness.trainer_api.settings"}
"""Name -> where it is: imported when it is asked for, so that pytest's plugin costs nothing where nobody needs it."""

__all__ = [*_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, other = _PUBLIC[name].partition(":")
    return getattr(import_module(module), other or name)
