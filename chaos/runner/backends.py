"""A place as runs need it: whether a plan can run there, and what the run is performed on."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from diloco_chaos.chaos.evidence.run_folder import RunFolder
from diloco_chaos.chaos.runner.cleanup import cleanup_guard
from diloco_chaos.chaos.runner.runtime import LiveStage, Stage
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.chaos.scenario.problems import Problem, ScenarioError
from diloco_chaos.harness.base import units
from diloco_chaos.harness.base.device import missing as unavailable
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.places.place import Place
from diloco_chaos.harness.places.registry import (
    DEFAULT,
    place_named,
    places,
    refusal,
    refused_parts,
    run_with,
)
from diloco_chaos.harness.record.undo_log import NoUndoLog, UndoLog
from diloco_chaos.harness.trainers.api.registry import BUILT_IN
from diloco_chaos.harness.trainers.node.settings import NodeSettings


@dataclass(frozen=True)
class Backend:
    """A place where runs are performed, with its settings."""

    place: Place

    @property
    def name(self) -> str:
        """Return the name that `--on` takes."""
        return self.place.name

    @property
    def abilities(self) -> frozenset[Ability]:
        """Return what the place can do."""
        return self.place.abilities

    @property
    def virtual(self) -> str:
        """Digest of what virtual time is made of; empty: time is real."""
        return self.place.parameters.digest if self.place.parameters else ""

    @property
    def most_load(self) -> float:
        """Share of this machine's processors that learners' steps may need."""
        return self.place.most_load

    @property
    def option(self) -> str:
        """Return what a command line needs to run a plan here, too; empty for the default place."""
        return "" if self.name == DEFAULT else f" --on {self.name}"

    def cleanup_guard(self) -> AbstractContextManager[UndoLog]:
        """An undo log, and a reaper that watches over it where anything could be left behind."""
        return nullcontext(NoUndoLog(self.name)) if self.virtual else cleanup_guard()

    def stage(self, plan: Plan, folder: RunFolder, settings: NodeSettings, undo_log: UndoLog) -> Stage:
        """Return the stage on which one run is performed."""
        if (parameters := self.place.parameters) is not None:
            from diloco_chaos.chaos.runner.virtual_runtime import (
                FolderStage,  # the trainer's cores are not needed elsewhere
            )
            return FolderStage(plan, parameters, settings, folder)
        return LiveStage(plan, folder, settings, self.place.site, undo_log)

    def refuse(self, plan: Plan) -> None:
        """Refuse a plan that can't run here, before anything starts.

        Raises:
            ScenarioError: the plan needs what this backend can't do.
            ClusterError: something is not there, or too old.
        """
        if reasons := self.refusals(plan):
            raise ScenarioError(plan.scenario, [Problem(why) for why in reasons])
        baseline = type(plan.trainer)(plan.trainer.baseline())
        self.place.must_be_ready([program for trainer in (plan.trainer, baseline)
                                  for program in trainer.programs().values()])

    def refusals(self, plan: Plan) -> list[str]:
        """Return the reasons why a plan can't run here; empty where it can."""
        missing = {planned.fault.kind: planned.fault.requires() - self.abilities for planned in plan.faults}
        reasons = [f"{kind}: {refusal(self.place, lacking)}" for kind, lacking in missing.items() if lacking]
        reasons += [f"{planned.fault.kind}: `file:`: files of nodes are on another machine there, "
                    f"and are not looked at: wait for a line of the log (`log:`)" for planned in plan.faults
                    if planned.fault.when is not None and planned.fault.when.file and not self.place.here]
        return reasons + self._of_trainer(plan) + self._of_machine(plan)

    def _of_trainer(self, plan: Plan) -> list[str]:
        trainer, programs = plan.trainer.name, plan.trainer.programs()
        if not programs and self.place.in_images and trainer != BUILT_IN:
            where = [f"--on {place.name}" for place in places() if place.here and not place.in_images]
            return [f"trainer {trainer}: the image of the containers has the built-in trainer only; run it with "
                    f"{units.names(where, 'or')}"]
        if programs and self.virtual:
            return [f"trainer {trainer}: commands are processes, and these take real time: they can't run under "
                    f"virtual time; {run_with([DEFAULT])}"]
        reasons = [f"{name}: {why}" for name, program in programs.items() for why in refused_parts(self.place, program)]
        return reasons + [f"progress: {file}: files of nodes are on another machine there, and are not read: write "
                          f"`log: '...'` for lines that the node prints, or `written: true`"
                          for file in plan.trainer.reports_in() if not self.place.here]

    def _of_machine(self, plan: Plan) -> list[str]:
        place = self.place
        # what commands run is where the place is, and told from there where it is missing
        elsewhere = place.has_programs and plan.trainer.programs()
        if why := "" if elsewhere else plan.trainer.lacking(containers=place.in_images):
            return [why]
        device = plan.trainer.computes_on
        why = place.only_cpu if place.only_cpu and device != "cpu" else unavailable(device)
        return [f"device {device}: {why}; run it with --device cpu"] if why else []


def named(name: str, given: Mapping[str, Any] | None = None) -> Backend:
    """A backend by its place's name. `given`: the place's options that were given; its usual settings, if none.

    Raises:
        ProviderError: there is none of this name, or it can't be loaded.
        OptionError: an option has no value that it takes.
        ClusterError, MissingExtraError: it can't be used here.
    """
    return Backend(place_named(name).chosen(given or {}))
