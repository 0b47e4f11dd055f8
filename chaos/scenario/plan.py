"""Frozen plans: a scenario and a seed with nothing left to chance. The plan, not the seed, is what repeats."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from diloco_chaos.chaos.registry import CHECKS
from diloco_chaos.chaos.scenario.availability import losses, predicted
from diloco_chaos.chaos.scenario.bounds import Bounds
from diloco_chaos.chaos.scenario.model import AnySettings, Scenario, TrainerName, joiners
from diloco_chaos.chaos.scenario.problems import Problem, ScenarioError
from diloco_chaos.faults import FAULTS, AbortWhen, AnyFault, Composite, Fault
from diloco_chaos.harness.base.errors import first, printable
from diloco_chaos.harness.base.registries import Registry
from diloco_chaos.harness.base.units import Seconds, Size, names
from diloco_chaos.harness.record.storage.files import bytes_of
from diloco_chaos.harness.trainers.api.registry import BUILT_IN, TRAINERS
from diloco_chaos.harness.trainers.api.settings import TrainerSettings
from diloco_chaos.harness.trainers.api.trainer import Trainer

COMMANDS_GRACE_S = 30.0
"""A command that is asked to end has this time for it unless the scenario says otherwise, as under most schedulers.
Plans that say nothing were frozen when it was two seconds."""
_REGISTRIES: dict[str, Registry[Any]] = {"fault": FAULTS, "trainer": TRAINERS, "check": CHECKS}
"""By what is in them, in a word."""


class PlannedFault(BaseModel):
    """A fault with an identity that tape and report use."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    fault: AnyFault
    domains: tuple[str, ...] = Field((), strict=False)
    """The failure domains that it hits, all of each."""

    @model_serializer(mode="wrap")
    def _said(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the document without domains where there are none: older frozen plans lack them."""
        document: dict[str, Any] = write(self)
        return {key: value for key, value in document.items() if value or key != "domains"}

    def describe(self) -> str:
        """Return what the fault does, in words for people, and to which domains."""
        whole = f" ({names([f'domain {name}' for name in self.domains])})" if self.domains else ""
        return self.fault.describe() + whole


class Plan(BaseModel):
    """Everything that decides what a run does."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    scenario: str
    description: Annotated[str, AfterValidator(printable)]
    seed: int
    trainer_name: TrainerName = Field(BUILT_IN, alias="trainer")
    cluster: AnySettings
    deadline: Seconds
    tape_limit: Size
    faults: tuple[PlannedFault, ...]
    abort_when: AbortWhen | None = None
    checks: Bounds
    drawn_from: str = ""
    """What chance was drawn from where faults were added on the way; empty: the plan itself (`chance`)."""

    @property
    def providers(self) -> dict[str, str]:
        """The packages, with their versions, that the plan's faults and the checks that it names come from."""
        kinds = sorted({planned.fault.kind for planned in self.faults})
        name = self.trainer_name
        trainer = {} if name == BUILT_IN else {f"trainer {name}": TRAINERS.provider(name)}
        return (trainer | {f"fault {kind}": FAULTS.provider(kind) for kind in kinds}
                | {f"check {name}": CHECKS.provider(name) for name in sorted(self.checks.foreign)})

    @property
    def digest(self) -> str:
        """SHA-256 over the plan in canonical JSON: the same on every machine and under every hash seed. The built-in
        trainer is the one that is meant where none is named."""
        content = self.model_dump(mode="json", by_alias=True, exclude=self._unsaid | (
            {"trainer_name"} if self.trainer_name == BUILT_IN else set()))
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def document(self) -> dict[str, Any]:
        """Return the plan as JSON's types."""
        return self.model_dump(mode="json", by_alias=True, exclude=self._unsaid)

    @property
    def _unsaid(self) -> set[str]:
        """Fields that stand in no plan's file as long as they are empty."""
        return set() if self.drawn_from else {"drawn_from"}

    @property
    def chance(self) -> str:
        """Return what virtual time draws from: cluster, seed and faults, not what the plan is called or held to."""
        if self.drawn_from:
            return self.drawn_from
        return self.model_copy(update={"scenario": "", "description": "", "checks": Bounds(), "deadline": 0.0}).digest

    def with_more(self, faults: Sequence[PlannedFault]) -> Plan:
        """Return the plan with faults that were not known when it began: chance stays what it was."""
        return self.model_copy(update={"faults": (*self.faults, *faults), "drawn_from": self.chance})

    @property
    def trainer(self) -> Trainer:
        """Return the trainer with the settings of the plan's cluster."""
        return TRAINERS[self.trainer_name](self.cluster)

    def predicted_availability(self, *, undisturbed: bool = False) -> float:
        """Goodput that the faults leave, as far as the plan tells; `undisturbed`: without any."""
        return predicted(self.cluster, [] if undisturbed else [planned.fault for planned in self.faults])

    def without_faults(self) -> Plan:
        """The fault-free baseline, whose learners are all alike."""
        cluster = self.cluster.model_copy(update={"joining": 0, "speeds": (), "variance": 0.0})
        return self.model_copy(update={"faults": (), "abort_when": None, "checks": Bounds(), "cluster": cluster,
                                       "drawn_from": ""})


def freeze(scenario: Scenario, seed: int) -> Plan:
    """Make every choice that the scenario leaves open: composites are taken apart, chance is drawn.

    Each fault has chance of its own, so that another one before it does not change it.
    """
    document = scenario.model_dump(mode="json", by_alias=True)
    faults = [single for number, fault in enumerate(scenario.faults, 1)
              for single in _singles(fault, fault.id or f"f{number}", seed, scenario.trainer)]
    plan = Plan.model_validate({
        "trainer": scenario.trainer.name, "scenario": scenario.name, "description": scenario.description, "seed": seed,
        "cluster": document["cluster"] | {"seed": seed, "joining": len(joiners(scenario.faults))}, "faults": faults,
        **{key: document[key] for key in ("deadline", "tape_limit", "abort_when", "checks")}})
    return plan.model_copy(update={"cluster": with_checkpoints(plan.cluster, plan.faults)})


def singles(fault: Fault, name: str, seed: int, trainer: Trainer) -> tuple[PlannedFault, ...]:
    """Return what a plan makes of a fault, with chance of its own."""
    return tuple(PlannedFault.model_validate(single) for single in _singles(fault, name, seed, trainer))


def with_checkpoints(cluster: TrainerSettings, faults: Sequence[PlannedFault]) -> TrainerSettings:
    """The cluster with an interval for its checkpoints, where its trainer has any and none was given."""
    return cluster.checkpointed(losses(cluster, [planned.fault for planned in faults]))


def _singles(fault: Fault, name: str, seed: int, trainer: Trainer) -> list[dict[str, Any]]:
    """A fault as a plan has it; a composite as its parts, called `name.1`, `name.2`, ..."""
    chance = random.Random(f"{seed}/{name}")  # seeded by SHA-512 of the text: the same everywhere
    if isinstance(fault, Composite):
        singles = {f"{name}.{number}": part for number, part in enumerate(fault.parts(name, chance), 1)}
    else:
        singles = {name: fault.model_dump(mode="json", by_alias=True, exclude=_unset_seed(fault))}
    for single in singles.values():
        if "seed" in FAULTS[single["kind"]].model_fields:
            single.setdefault("seed", chance.randrange(1 << 31))
        if "grace" in FAULTS[single["kind"]].model_fields and trainer.programs():
            single.setdefault("grace", f"{COMMANDS_GRACE_S!r}s")
    return [{"id": single_name, "fault": single} | _whole(fault, single["targets"])
            for single_name, single in singles.items()]


def _whole(fault: Fault, targets: Sequence[str]) -> dict[str, Any]:
    """Return the domains that a fault names all of whose members are among these targets; empty without any."""
    domains = [domain for domain, members in fault.domains.items() if members and set(members) <= set(targets)]
    return {"domains": domains} if domains else {}


def _unset_seed(fault: Fault) -> set[str]:
    return {"seed"} - fault.model_fields_set


def document(plan: Plan) -> dict[str, Any]:
    """A plan with its digest and with who provided what is in it, as JSON's types."""
    return {"digest": plan.digest, "providers": plan.providers, "plan": plan.document()}


def save(plan: Plan, path: Path) -> None:
    """Write a plan with its digest."""
    path.write_text(json.dumps(document(plan), indent=2) + "\n")


def _lacking(content: Any) -> list[str]:
    """Return a problem for everything that the plan has from a package that is not installed."""
    providers = content.get("providers") if isinstance(content, dict) else None
    problems = []
    for what, provider in providers.items() if isinstance(providers, dict) else ():
        room, _, name = str(what).partition(" ")
        registry = _REGISTRIES.get(room, CHECKS)
        if name not in registry:
            problems.append(". ".join([printable(f"the {room} {name[:80]!r} came from {str(provider)[:80]}, which is "
                                                 f"not installed: install it"), *registry.broken()]))
    return problems


def load(path: Path) -> Plan:
    """Read a plan.

    Raises:
        ScenarioError: it is not a plan, or it was altered since it was frozen.
    """
    try:
        content = json.loads(bytes_of(path))
        if lacking := _lacking(content):
            raise ScenarioError(path, [Problem(why) for why in lacking])
        plan = Plan.model_validate(content["plan"])
        digest = content["digest"]
    except OSError as error:
        raise ScenarioError(path, [Problem(f"can't be read: {error.strerror}")]) from error
    except (ValueError, KeyError, TypeError, ValidationError, RecursionError) as error:
        raise ScenarioError(path, [Problem(f"not a frozen plan ({first(error)}); `diloco-chaos run` saves one as "
                                           f"plan.json in the run's folder")]) from error
    if digest != plan.digest:
        raise ScenarioError(path, [Problem("the plan was altered after it was frozen: its digest does not match; "
                                           "change the scenario and freeze it again")])
    return plan
