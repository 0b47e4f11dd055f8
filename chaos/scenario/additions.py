"""A fault that a test adds while a run goes on: read as one of a scenario's file is, and held against the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from diloco_chaos.chaos.scenario.model import LEARNERS, Scenario, members_of, named
from diloco_chaos.chaos.scenario.plan import Plan, PlannedFault, singles
from diloco_chaos.chaos.scenario.problems import Problem, ScenarioError
from diloco_chaos.chaos.scenario.validation import objections
from diloco_chaos.faults import FAULTS, AnyEntry, Fault
from diloco_chaos.harness.base.errors import first, nearest
from diloco_chaos.harness.base.units import names as show_names
from diloco_chaos.harness.places.base import FROM_WITHIN

_ENTRY: TypeAdapter[Fault] = TypeAdapter(AnyEntry)


def added(scenario: Scenario, plan: Plan, kind: str, targets: str | Sequence[str], settings: Mapping[str, Any],
          abilities: Sequence[str], on: Sequence[PlannedFault], *, virtual: bool) -> tuple[PlannedFault, ...]:
    """Return what becomes part of a run's plan.

    Args:
        scenario: what the run was started with.
        plan: its plan so far.
        kind: of the fault: `kill`.
        targets: nodes or links, `learners`, or `domain NAME`.
        settings: keys as in a scenario's file, with `at`, `when` or `after`.
        abilities: what the place can do.
        on: the faults that last at the moment.
        virtual: whether nodes are simulated, and need nothing preloaded.

    Raises:
        ScenarioError: there is no such fault, a setting is wrong, or this cluster can't have it (now).
    """
    if kind not in FAULTS:
        raise ScenarioError(kind, [Problem(f"no fault of this name{nearest(kind, list(FAULTS))}")])
    aimed = targets if isinstance(targets, str) else list(targets)
    names = [planned.id for planned in plan.faults]
    try:
        fault = _ENTRY.validate_python(scenario.trainer.means(named(
            {kind: aimed, **settings}, scenario.cluster.names if targets == LEARNERS else LEARNERS,
            members_of(scenario.domains, scenario.cluster))))
    except ValidationError as error:
        raise ScenarioError(kind, [Problem(first(error).removeprefix(f"{kind}.").replace("Value error, ", ""))]
                            ) from error
    known = list(dict.fromkeys([*(name.partition(".")[0] for name in names), *names]))
    wrong = list(objections(scenario, fault, abilities, known, [planned.fault for planned in on]))
    if not virtual and (missing := _not_preloaded(scenario, fault)):
        wrong.append(f"nothing is preloaded into {show_names(missing)} for it: write it in the scenario")
    if fault.id in known:
        wrong.append(f"there is another fault {fault.id!r}")
    if wrong:
        raise ScenarioError(kind, [Problem(why) for why in wrong])
    return singles(fault, fault.id or _next(known), plan.seed, plan.trainer)


def _not_preloaded(scenario: Scenario, fault: Fault) -> list[str]:
    """Return the targets into which nothing was preloaded that the fault needs: what the scenario's own faults need
    was."""
    return [target for target in fault.targets if not fault.requires() & FROM_WITHIN <= {
        ability for other in scenario.faults if target in other.targets for ability in other.requires()}]


def _next(known: Sequence[str]) -> str:
    """The first name with a number that no fault has."""
    return next(name for number in range(1, len(known) + 2) if (name := f"f{number}") not in known)
