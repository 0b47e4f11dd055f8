"""Performs a schedule: under virtual time in memory, or with real nodes at a place."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from diloco_chaos.chaos.runner.backends import named
from diloco_chaos.chaos.runner.experiment import Observer
from diloco_chaos.chaos.runner.run import Audience, Result, run_plan
from diloco_chaos.chaos.runner.simulate import NullObserver, SimulatedRun, simulate
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.places.simulated.place import Simulated

IN_MEMORY = Simulated.name
"""The place where schedules are tried if nothing else is said."""


class Nobody:
    """Implements `diloco_chaos.chaos.runner.run.Audience`: what is told is the schedule's result."""

    def watch(self, plan: Plan, what: str) -> Observer:
        """Return an observer that says nothing."""
        return NullObserver()

    def say(self, text: str) -> None:
        """Do nothing."""

    def far(self, done: int, of: int) -> None:
        """Do nothing."""


@cache
def abilities_of(on: str) -> frozenset[Ability]:
    """Return what can happen at a place, which is asked once: for containers it asks their engine."""
    return Simulated.can if on == IN_MEMORY else named(on).abilities


@contextmanager
def performed_on(on: str, plan: Plan, runs: str, audience: Audience | None = None) -> Iterator[SimulatedRun | Result]:
    """Perform a plan at a place; what it gives is of use in here. A folder of a real run lies in `runs`, and stays only
    if a check failed. `audience`: hears of a real run; nobody, if not given."""
    if on == IN_MEMORY:
        yield simulate(plan)
        return
    result = run_plan(plan, Path(runs), audience or Nobody(), named(on))
    yield result
    broken = result.outcome.kind != "finished" or "failed" in {each.verdict for each in result.judgement.checks}
    if not broken:
        shutil.rmtree(result.folder.path)
