"""Several runs in a table: what came of each, and its figures that matter most."""

from __future__ import annotations

from typing import NamedTuple

from diloco_chaos.chaos.checks.base import Verdict, nearest_limit, show_figure
from diloco_chaos.chaos.report.model import WORDS
from diloco_chaos.chaos.report.story import headline
from diloco_chaos.chaos.runner.run import Result, exit_code

COLUMNS = ("scenario", "verdict", "tightest margin", "recovery", "goodput", "loss gap")
EXPECTED = "FAILED, as expected"
"""Verdict of a run whose failure is no news."""
_RECOVERY = ("reintegration", "self_healing")


class SuiteRow(NamedTuple):
    """A run in a table; plain words, for other processes to have."""

    scenario: str
    seed: int
    verdict: str
    tightest: str
    """The check that is nearest to its limit, and how much of the room to it is left."""
    recovery: str
    goodput: str
    loss_gap: str
    run: str
    """Its folder."""
    why: str
    """What did not hold; empty where all did."""

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the run's cells in the order of `COLUMNS`."""
        name = f"{self.scenario} seed {self.seed}" if self.seed else self.scenario
        return name, self.verdict, self.tightest, self.recovery, self.goodput, self.loss_gap


def row_of(result: Result) -> SuiteRow:
    """The line of a run that was judged."""
    plan, checks = result.history.plan, {check.name: check for check in result.judgement.checks}
    code = exit_code(result)
    recovery = next((_cell(checks[name]) for name in _RECOVERY if name in checks), "")
    return SuiteRow(plan.scenario, plan.seed, WORDS[code], margin(nearest_limit(checks.values())), recovery,
               _cell(checks.get("goodput")), _gaps(checks.get("loss_parity")), str(result.folder.path),
               headline(result) if code else "")


def margin(nearest: tuple[str, float] | None) -> str:
    """Describe the result of `nearest_limit`: the check, and the share of the room to its limit that is left."""
    if nearest is None:
        return ""
    name, share = nearest
    return f"{name} {1 - share:+.0%}" if share < 10 else f"{name} far beyond"


def _cell(check: Verdict | None) -> str:
    if check is None or check.verdict == "unknown" or not check.figures:
        return ""
    figure = check.figures[0]
    if figure.value is None:
        return "never"
    return show_figure(figure.value, figure.unit)


def _gaps(check: Verdict | None) -> str:
    figures = check.figures if check is not None and check.verdict != "unknown" else []
    return ", ".join(f"{figure.of} {figure.value:+.1%}" for figure in figures if figure.value is not None)
