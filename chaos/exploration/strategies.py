"""Hypothesis strategies: fault schedules for property tests, and what to do with one.

    from diloco_chaos.chaos.exploration.strategies import assert_holds, plans, run

    @given(plan=plans(learners=3, max_faults=2))
    def test_nothing_is_merged_twice(plan):
        assert_holds(run(plan))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from diloco_chaos.chaos.exploration.generate import Document, choose, document, known, plan_of, with_faults
from diloco_chaos.chaos.exploration.scenario_writer import text
from diloco_chaos.chaos.runner.backends import named
from diloco_chaos.chaos.runner.simulate import SimulatedRun, simulate
from diloco_chaos.chaos.scenario.model import Scenario
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.trainers.api.settings import TrainerSettings

T = TypeVar("T")
SMALL: dict[str, Any] = {"model": "quadratic", "learners": 3, "budget": "150 steps", "step_time": "60ms"}
"""The cluster that is meant where nothing else is said: nine seconds of virtual time."""


@dataclass(frozen=True)
class _ByHypothesis:
    """Implements `diloco_chaos.chaos.exploration.generate.Chooser`."""

    draw: Callable[[st.SearchStrategy[Any]], Any]

    def pick(self, options: Sequence[T]) -> T:
        """One of them; shrinks towards the first."""
        number: int = self.draw(st.integers(0, len(options) - 1))
        return options[number]


def scenario(cluster: TrainerSettings | Scenario | None = None, **settings: Any) -> Scenario:
    """A scenario without faults, for a cluster of these settings."""
    if isinstance(cluster, Scenario):
        return cluster
    chosen = cluster.model_dump(mode="json", exclude={"joining", "seed"}) if cluster else {**SMALL, **settings}
    return Scenario.model_validate({
        "diloco_chaos": 1, "name": "explored", "cluster": chosen, "deadline": "120s"})


@st.composite
def plans(draw: st.DrawFn, /, cluster: TrainerSettings | Scenario | None = None, *,
          faults: Sequence[str] | None = None, max_faults: int = 3, on: str = "simulated", **settings: Any) -> Plan:
    """Frozen plans of a cluster, with up to so many faults.

    Args:
        draw: given by Hypothesis.
        cluster: its configuration, or a scenario whose cluster and checks are used; a small one if not given.
        faults: the kinds to choose from; all that can be drawn if not given.
        max_faults: the most in one plan.
        on: the place that it is drawn for: on `local`, `compose` and `kubernetes` calls on files may fail, and nodes
            hang, too.
        settings: of the small cluster, where they shall differ: `learners=4`.
    """
    base = scenario(cluster, **settings)
    chooser = _ByHypothesis(draw)
    count = draw(st.integers(0, max_faults))
    abilities = named(on).abilities
    drawn = choose(chooser, base, known(faults, abilities, base), count, abilities)
    return plan_of(base, drawn, draw(st.integers(0, 7)), abilities)


def run(plan: Plan) -> SimulatedRun:
    """Perform a plan under virtual time, and judge it."""
    return simulate(plan)


def assert_holds(result: SimulatedRun) -> None:
    """Every check that could be decided holds.

    Raises:
        AssertionError: one failed; with the schedule as a scenario file, and how to repeat it.
    """
    if result.failed or result.outcome.kind != "finished":
        raise AssertionError(explain(result))


def explain(result: SimulatedRun) -> str:
    """Return what failed, the schedule as a scenario file, and the commands that repeat it."""
    failed = [f"{verdict.name}: {verdict.measured} (bound {verdict.bound}): {'; '.join(verdict.evidence[:3])}"
              for verdict in result.judgement.checks if verdict.verdict == "failed"]
    ended = [] if result.outcome.kind == "finished" else [f"{result.outcome.kind}: {result.outcome.message}"]
    seed = f" --seed {result.plan.seed}" if result.plan.seed else ""
    return "\n".join([*failed, *ended, "", "As a scenario file (found.yaml):", "", written(result.plan), "",
                      f"Repeat it: diloco-chaos run found.yaml{seed} --on simulated (or local, or compose)"])


def written(plan: Plan, name: str = "found", description: str = "Found by exploration.") -> str:
    """A plan as a scenario file, with what it was held to."""
    bare = Scenario.model_validate({
        "diloco_chaos": 1, "name": name, "deadline": f"{plan.deadline!r}s", "trainer": plan.trainer.name,
        "cluster": plan.cluster.model_dump(mode="json", exclude={"joining", "seed"}, exclude_defaults=True),
        "checks": plan.checks.model_dump(mode="json", by_alias=True, exclude_defaults=True)})
    return text(bare, [_document(planned.fault.model_dump(mode="json", by_alias=True, exclude_defaults=True)
                                 | {"kind": planned.fault.kind}) for planned in plan.faults], name, description)


def _document(fault: dict[str, Any]) -> Document:
    kind, targets = fault.pop("kind"), fault.pop("targets")
    fault.pop("seed", None)
    return {kind: targets[0] if len(targets) == 1 else targets, **fault}


class Schedule(RuleBasedStateMachine):
    """A stateful machine that makes a schedule fault by fault and runs it at the end. Use it as it is
    (`TestSchedule = Schedule.TestCase`), or subclass it with another `base`, `kinds` or rules."""

    base: Scenario = scenario()
    kinds: Sequence[str] = known(None)
    most = 4

    @initialize(seed=st.integers(0, 7))
    def begin(self, seed: int) -> None:
        """A quiet run."""
        self.seed = seed
        self.faults: list[Document] = []

    @precondition(lambda self: len(self.faults) < self.most)
    @rule(data=st.data())
    def add(self, data: st.DataObject) -> None:
        """Add a drawn fault, unless it makes no sense after the others."""
        fault = document(_ByHypothesis(data.draw), self.base, self.kinds, self.faults)
        if with_faults(self.base, [*self.faults, fault]) is not None:
            self.faults.append(fault)

    def teardown(self) -> None:
        """Run it."""
        if getattr(self, "faults", None):
            assert_holds(run(plan_of(self.base, self.faults, self.seed)))
