"""What a run measured that another one can be held against: its phases of recovery, its figures, its verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from diloco_chaos.chaos.checks.base import Unknown
from diloco_chaos.chaos.checks.outcome import goodput
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.evidence.phases import Phase, recoveries
from diloco_chaos.chaos.report.comparison.variants import faults_of, settings_of
from diloco_chaos.chaos.report.model import WORDS, Word
from diloco_chaos.chaos.report.story import because
from diloco_chaos.chaos.runner.run import Result, exit_code, reason
from diloco_chaos.chaos.scenario.bounds import Goodput
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.base.lines import text
from diloco_chaos.harness.base.units import shortened

Ending = Literal["", "never", "untold", "idle"]
_LONGEST = 200
GOODPUT, LOST, STALL, TOOK = "goodput", "lost work", "longest stall", "took"


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PhaseMeasured(_Told):
    """When a phase of a recovery ended."""

    seconds: float | None
    """After the injection; None: it has no time."""
    ending: Ending = ""
    """Where it has no time: it did not end (`never`), nothing tells (`untold`), or there was none (`idle`)."""
    why: str = ""


class RunMeasured(_Told):
    """A run."""

    run: str
    """Its folder."""
    seed: int
    plan: str
    """Digest."""
    verdict: Word
    why: str
    """What did not hold, or why it proves nothing."""
    faults: list[str]
    """As `faults_of` tells them."""
    recoveries: dict[str, dict[str, PhaseMeasured]]
    """Fault and target -> phase -> when it ended."""
    figures: dict[str, float | None]
    """None: not told."""
    checks: dict[str, Literal["passed", "failed", "unknown"]]

    @property
    def trained(self) -> bool:
        """Return whether it began to train."""
        return self.figures.get(STALL) is not None


class WayMeasured(_Told):
    """The runs of one way."""

    name: str
    scenario: str
    trainer: str
    unit: str
    """What its lost work is counted in."""
    says: list[str]
    """In which settings it differs from the first."""
    settings: dict[str, Any] = {}
    """As `settings_of` tells them; empty where an earlier version wrote the comparison."""
    runs: list[RunMeasured]
    baseline: bool = False
    """Whether its runs were made before."""


def measured(result: Result) -> RunMeasured:
    """Return what a run measured."""
    history, code = result.history, exit_code(result)
    followed = history.once(recoveries)
    failed = [verdict.name for verdict in result.judgement.checks if verdict.verdict == "failed"]
    lost = [each.lost_steps for each in followed]
    return RunMeasured(
        run=str(result.folder.path), seed=history.plan.seed, plan=history.plan.digest, verdict=WORDS[code],
        why="" if code == 0 else ", ".join(failed) if code == 1 else _first(reason(result)),
        faults=faults_of(history.plan),
        recoveries={f"{each.span.id} {each.target}": {phase.name: _phase(phase, each.span.began)
                                                      for phase in each.phases} for each in followed},
        figures={GOODPUT: _goodput(history), STALL: _stall(history), TOOK: _took(result),
                 LOST: None if None in lost else float(sum(filter(None, lost)))},
        checks={verdict.name: verdict.verdict for verdict in result.judgement.checks})


def unstarted(result: Result) -> str:
    """Return what broke in a run that never began to train; empty: it did."""
    if result.history.zero is not None:
        return ""
    said = [text(line, result.history.origin) for verdict in result.judgement.checks if verdict.verdict == "failed"
            for line in verdict.lines]
    return _first(said[0] if said else because(result))


def way_of(name: str, plan: Plan, runs: Sequence[RunMeasured], *, baseline: bool = False) -> WayMeasured:
    """Return a way with its runs. `plan`: of any of them."""
    return WayMeasured(name=name, scenario=plan.scenario, trainer=plan.trainer.name, unit=unit_of_work(plan),
                       says=[], settings=settings_of(plan), runs=list(runs), baseline=baseline)


def unit_of(figure: str, way: WayMeasured) -> str:
    """Return what a figure is measured in."""
    units: Mapping[str, str] = {GOODPUT: "share", LOST: way.unit}
    return units.get(figure, "s")


def unit_of_work(plan: Plan) -> str:
    """Return what lost work of a plan's runs is counted in."""
    return "steps" if plan.cluster.exchanges_fragments else "rounds"


def _first(words: str) -> str:
    return shortened(words.partition("\n")[0], _LONGEST)


def _phase(phase: Phase, began: float) -> PhaseMeasured:
    if phase.t is None:
        return PhaseMeasured(seconds=None, ending=phase.ending, why=phase.missing)
    return PhaseMeasured(seconds=round(phase.t - began, 4))


def _goodput(history: History) -> float | None:
    try:
        finding = goodput.function(history, Goodput(at_least=0.0))
    except Unknown:
        return None
    value = finding.figures[0].value if finding is not None and finding.figures else None
    return None if value is None else round(value, 5)


def _stall(history: History) -> float | None:
    if history.zero is None:
        return None
    return round(max(history.gaps(history.zero, history.end), default=0.0), 3)


def _took(result: Result) -> float | None:
    """From the steady state to the end of training; None where it did not get there."""
    history = result.history
    if history.zero is None or result.outcome.kind != "finished":
        return None
    return round(history.end - history.zero, 3)
