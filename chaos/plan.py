"""Frozen plans: a scenario and a seed with nothing left to chance. The plan, not the seed, is what repeats."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from chaos.bounds import Bounds
from chaos.scenario import Problem, Scenario, ScenarioError
from faults import AnyFault
from harness.trainer.config import TrainerConfig
from harness.units import Seconds


class PlannedFault(BaseModel):
    """A fault with an identity that tape and report use."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    fault: AnyFault


class Plan(BaseModel):
    """Everything that decides what a run does."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    scenario: str
    description: str
    seed: int
    cluster: TrainerConfig
    deadline: Seconds
    faults: tuple[PlannedFault, ...]
    checks: Bounds

    @property
    def digest(self) -> str:
        """SHA-256 over the plan in canonical JSON: the same on every machine and under every hash seed."""
        text = json.dumps(self.model_dump(mode="json", by_alias=True), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def predicted_availability(self) -> float:
        """Share of learner time that the faults leave, over the nominal time of the run."""
        run = (self.cluster.budget - self.cluster.warm_start) * self.cluster.step_time
        total = run * self.cluster.learners
        if total <= 0:
            return 1.0
        learners = set(self.cluster.names)
        lost = sum(min(planned.fault.downtime(), run) * len(learners.intersection(planned.fault.targets))
                   for planned in self.faults)
        return max(0.0, 1 - lost / total)

    def without_faults(self) -> Plan:
        """The fault-free twin."""
        return self.model_copy(update={"faults": (), "checks": Bounds()})


def freeze(scenario: Scenario, seed: int) -> Plan:
    """Make every choice that the scenario leaves open."""
    document = scenario.model_dump(mode="json", by_alias=True)
    return Plan.model_validate({
        "scenario": scenario.name, "description": scenario.description, "seed": seed,
        "cluster": document["cluster"] | {"seed": seed}, "deadline": document["deadline"],
        "faults": [{"id": f"f{number}", "fault": fault} for number, fault in enumerate(document["faults"], 1)],
        "checks": document["checks"]})


def save(plan: Plan, path: Path) -> None:
    """Write a plan with its digest."""
    document = {"digest": plan.digest, "plan": plan.model_dump(mode="json", by_alias=True)}
    path.write_text(json.dumps(document, indent=2) + "\n")


def load(path: Path) -> Plan:
    """Read a plan.

    Raises:
        ScenarioError: it is not a plan, or it was altered since it was frozen.
    """
    try:
        document = json.loads(path.read_text())
        plan = Plan.model_validate(document["plan"])
        digest = document["digest"]
    except OSError as error:
        raise ScenarioError(path, [Problem(f"can't be read: {error.strerror}")]) from error
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise ScenarioError(path, [Problem(f"not a frozen plan ({_first_line(error)}); `diloco-chaos run` saves one as "
                                           f"plan.json in the run's folder")]) from error
    if digest != plan.digest:
        raise ScenarioError(path, [Problem("the plan was altered after it was frozen: its digest does not match; "
                                           "change the scenario and freeze it again")])
    return plan


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
