"""Two runs side by side: which verdicts changed, which figures, and where their training first went different ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from diloco_chaos.chaos.checks.base import Figure, show_figure
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.report.model import CheckTold, ReportModel, model_of
from diloco_chaos.chaos.report.past import Past, earlier
from diloco_chaos.chaos.report.story import VERDICTS
from diloco_chaos.chaos.runner.run import Result
from diloco_chaos.chaos.scenario.plan import Plan

Kind = Literal["broken", "fixed", "changed", "figure", "as usual", "only before", "only after"]
_ORDER: tuple[Kind, ...] = ("broken", "fixed", "changed", "only before", "only after", "figure", "as usual")
_LEAST_RUNS = 5
"""So many of a scenario tell what is usual."""


class Change(NamedTuple):
    """A change in a check from one run to another."""

    kind: Kind
    name: str
    before: str
    after: str
    usual: str = ""
    """What earlier runs of the scenario measured, from the least to the most; empty where there are too few."""


class RunDifference(NamedTuple):
    """The difference between two runs."""

    warnings: list[str]
    """Why they can hardly be compared."""
    changes: list[Change]
    """What matters most first."""
    figures: list[tuple[str, str, str]]
    """(what, before, after)."""
    parted: str
    """Where training first went different ways; empty: nowhere."""

    @property
    def broken(self) -> bool:
        """Return whether something that had passed failed."""
        return any(change.kind == "broken" for change in self.changes)


def difference(before: Result, after: Result) -> RunDifference:
    """Return what became of a run's verdicts and figures in another one."""
    left, right = model_of(before), model_of(after)
    return RunDifference(_warnings(before, after), _changes(left, right, _usual(before, after)), _figures(left, right),
                         _parted(before.history, after.history))


def _warnings(before: Result, after: Result) -> list[str]:
    first, second = before.history.plan, after.history.plan
    made = [result.folder.manifest().get("created") for result in (before, after)]
    late = [f"{before.folder.path.name} is the later one: what it broke is told as fixed; name it as the second"] if (
        all(isinstance(time, str) for time in made) and str(made[0]) > str(made[1])) else []
    return late + _plans_apart(first, second)


def _plans_apart(first: Plan, second: Plan) -> list[str]:
    if first.digest == second.digest:
        return []
    if first.scenario != second.scenario:
        return [f"they are of different scenarios, {first.scenario} and {second.scenario}"]
    parts = [name for name in type(first).model_fields if getattr(first, name) != getattr(second, name)]
    return [f"their plans differ in {', '.join(parts) or 'the version that made them'}"]


class _Range(NamedTuple):
    """The range of what a check measured in so many runs."""

    least: float
    most: float
    unit: str
    runs: int

    def __str__(self) -> str:
        return f"{show_figure(self.least, self.unit)} to {show_figure(self.most, self.unit)} in {self.runs} runs"


def _usual(before: Result, after: Result) -> dict[str, _Range]:
    """Return, for each check that measures a number, the range of it in the other runs of the same scenario."""
    runs: dict[str, Past] = {}
    for result in (before, after):
        runs |= {run.run: run for run in earlier(result.folder, result.history.plan.scenario)}
    runs = {name: run for name, run in runs.items() if name not in (before.folder.path.name, after.folder.path.name)}
    figures: dict[str, list[Figure]] = {}
    for run in runs.values():
        for name, verdict in run.checks.items():
            figures.setdefault(name, []).extend(figure for figure in verdict.figures[:1] if figure.value is not None)
    return {name: _Range(min(values), max(values), recorded[0].unit, len(recorded))
            for name, recorded in figures.items()
            if len(recorded) >= _LEAST_RUNS and (values := [figure.value or 0.0 for figure in recorded])}


def _changes(left: ReportModel, right: ReportModel, usual: Mapping[str, _Range]) -> list[Change]:
    left_checks, right_checks = ({check.name: check for check in model.checks} for model in (left, right))
    changes = []
    for name in dict.fromkeys([*left_checks, *right_checks]):
        before, after = left_checks.get(name), right_checks.get(name)
        if before is None or after is None:
            changes.append(Change("only after" if before is None else "only before", name, _described(before),
                                  _described(after)))
        elif before.verdict != after.verdict:
            kinds: dict[str, Kind] = {"failed": "broken", "passed": "fixed", "unknown": "changed"}
            changes.append(Change(kinds[after.verdict], name, _described(before), _described(after),
                                  str(usual.get(name, ""))))
        elif before.measured != after.measured and not (before.figures and before.figures == after.figures):
            usual_range = usual.get(name)
            value = after.figures[0].value if after.figures else None
            within = usual_range is not None and value is not None and usual_range.least <= value <= usual_range.most
            changes.append(Change("as usual" if within else "figure", name, before.measured, after.measured,
                                  str(usual_range or "")))
    return sorted(changes, key=lambda change: _ORDER.index(change.kind))


def _described(check: CheckTold | None) -> str:
    return "-" if check is None else f"{VERDICTS[check.verdict]}: {check.measured}"


def _figures(left: ReportModel, right: ReportModel) -> list[tuple[str, str, str]]:
    figures = [("seconds", f"{left.took:.1f}", f"{right.took:.1f}"),
               *((f"tokens {fate}", f"{left.tokens.get(fate, 0):,}", f"{right.tokens.get(fate, 0):,}")
                 for fate in dict.fromkeys([*left.tokens, *right.tokens])),
               ("loss", *(f"{model.curves[0].points[-1][1]:.4f}" if model.curves else "-" for model in (left, right)))]
    return [(what, before, after) for what, before, after in figures if before != after]


def _parted(before: History, after: History) -> str:
    """Describe the first fragment version that differs, in the order in which the first run made them; empty: none
    differs."""
    versions = {(merge.fragment, merge.version): merge for merge in after.merges if merge.fragment is not None}
    for merge in before.merges:
        if merge.fragment is None:
            return ""
        other = versions.get((merge.fragment, merge.version))
        what = f"version {merge.version} of fragment {merge.fragment}"
        at = merge.t - before.origin
        if other is None:
            return f"{what}, made at {at:.2f} s, was never made in the second run"
        if other.digest != merge.digest:
            parts = [[part.learner for part in version.contributions] for version in (merge, other)]
            contributors = "" if parts[0] == parts[1] else f": of {', '.join(parts[0])}, and of {', '.join(parts[1])}"
            return f"{what}, made at {at:.2f} s and at {other.t - after.origin:.2f} s, is another one{contributors}"
    return ""
