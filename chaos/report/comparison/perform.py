"""Runs the ways in turn, seed by seed: what a machine does meanwhile hits all of them alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from diloco_chaos.chaos.program import PROGRAM
from diloco_chaos.chaos.report.comparison.baseline import slower
from diloco_chaos.chaos.report.comparison.measured import RunMeasured, WayMeasured, measured, unstarted, way_of
from diloco_chaos.chaos.report.comparison.model import Comparison, paired
from diloco_chaos.chaos.report.comparison.variants import Way, differing
from diloco_chaos.chaos.report.live import Terminal
from diloco_chaos.chaos.report.saved import kept
from diloco_chaos.chaos.runner.backends import Backend
from diloco_chaos.chaos.runner.run import run_plan

_LEAST = 2
"""Runs that don't begin to train before the others are given up: one alone may be bad luck."""
_STYLES: dict[str, str] = {"PASSED": "green", "FAILED": "bold red", "INCONCLUSIVE": "yellow"}


def side_by_side(ways: Sequence[Way], before: WayMeasured | None, share: float, runs: Path, console: Console,
                 backend: Backend) -> Comparison:
    """Run all ways, and hold them against each other; or against what was `before`: phases that got slower by more than
    this share are told.

    Raises:
        As `diloco_chaos.chaos.runner.run.run_plan`; nothing runs where one of the plans can't.
    """
    for way in ways:
        for plan in way.plans:
            backend.refuse(plan)
    found, missing, stopped = _performed(ways, runs, console, backend)
    told = [way_of(way.name, way.plans[0], measured_runs) for way, measured_runs in zip(ways, found, strict=True)]
    return held_against(before, told, share, backend.name, missing, stopped)


def held_against(before: WayMeasured | None, ways: Sequence[WayMeasured], share: float, place: str,
                 missing: int, stopped: Sequence[str] = ()) -> Comparison:
    """Return ways that have run beside the first of them; or all beside what was `before`: phases that got slower by
    more than this share are told. `missing`: how many runs Ctrl-C has kept from running; `stopped`: what broke where
    no run began to train."""
    known = [*([before] if before else []), *ways]
    first = known[0].settings
    told = tuple(way.model_copy(update={"says": differing(first, way.settings) if first else []}) for way in known)
    pairings = tuple(paired(told))
    return Comparison(told, pairings, place, tuple(
        line for pairing in pairings for line in slower(pairing, share)) if before else (),
        f"stopped by Ctrl-C: {missing} runs are missing" if missing else "", tuple(stopped))


def _performed(ways: Sequence[Way], runs: Path, console: Console,
              backend: Backend) -> tuple[list[list[RunMeasured]], int, list[str]]:
    """Return what the runs of each way measured, how many are missing because of Ctrl-C, and what broke if none of the
    first began to train: then the others don't run. Who is first changes from seed to seed."""
    found: list[list[RunMeasured]] = [[] for _ in ways]
    broke: list[str] = []
    order = [(pair, number) for pair in range(len(ways[0].plans))
             for number in (range(len(ways)) if pair % 2 == 0 else reversed(range(len(ways))))]
    for done, (pair, number) in enumerate(order, 1):
        way, plan = ways[number], ways[number].plans[pair]
        try:
            with Terminal(console, f"{way.name}, seed {plan.seed}, {done} of {len(order)}",
                          bool(backend.virtual)) as terminal:
                result = kept(run_plan(plan, runs, terminal, backend), "never")
        except KeyboardInterrupt:
            return found, len(order) - done + 1, []
        if result.outcome.kind == "interrupted":
            return found, len(order) - done + 1, []
        run = measured(result)
        found[number].append(run)
        console.print(Text.assemble(f"{way.name}, seed {plan.seed}: ", (run.verdict.lower(), _STYLES[run.verdict]),
                                    f"  {run.why}" if run.why else ""))
        broke += [f"{way.name}, seed {plan.seed}: {why}; more: {PROGRAM} check {run.run}"
                  ] if (why := unstarted(result)) else []
        if len(broke) == done == max(_LEAST, len(ways)):
            return found, 0, [f"stopped after {done} of {len(order)} runs: none of them began to train, and there is "
                              f"nothing to compare", *broke]
    return found, 0, []
