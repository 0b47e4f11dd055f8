"""Runs that were made before, to hold new ones against: what got slower since."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from diloco_chaos.chaos.evidence.run_folder import RunFolder, all_runs
from diloco_chaos.chaos.report.comparison.measured import RunMeasured, WayMeasured, measured, way_of
from diloco_chaos.chaos.report.comparison.model import Pairing, Row
from diloco_chaos.chaos.report.comparison.variants import faults_of, hindrance, other_faults
from diloco_chaos.chaos.report.comparison.words import between, change, value
from diloco_chaos.chaos.runner.run import judged
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.base.errors import UserError, first, nearest
from diloco_chaos.harness.base.units import names

NAME = "baseline"
_FILE = "compare.json"
_LEAST = 2


class BaselineError(UserError):
    """Runs that nothing can be held against."""


def baseline_of(path: Path, plan: Plan, seeds: Sequence[int]) -> WayMeasured:
    """Return the runs of a baseline: of compare.json, of a folder that has one, or of a folder of runs.

    Args:
        plan: of the scenario that is held against it.
        seeds: those that must be there; all that are there, if none are given.

    Raises:
        BaselineError: it can't be read, is of another scenario, or has too few runs.
    """
    file = path / _FILE if path.is_dir() else path
    way = _of_file(file) if file.is_file() else _of_folder(path, plan)
    if way.scenario != plan.scenario:
        raise BaselineError(f"--baseline {path} is of scenario {way.scenario}, not of {plan.scenario}: name one that "
                            f"was made with {plan.scenario}{nearest(way.scenario, [plan.scenario])}")
    if way.trainer != plan.trainer.name:
        raise BaselineError(f"--baseline {path} was made with trainer {way.trainer}, not with {plan.trainer.name}")
    runs = {run.seed: run for run in way.runs}  # the newest of each seed
    if absent := [str(seed) for seed in seeds if seed not in runs]:
        raise BaselineError(f"--baseline {path} has no run of seed {names(absent)}: it has "
                            f"{names(list(map(str, sorted(runs))))}; leave --seed and --repeat out to run those")
    wanted = [runs[seed] for seed in seeds or sorted(runs)]
    if len(wanted) < _LEAST:
        raise BaselineError(f"--baseline {path} has one run only, which tells nothing of the noise: make one of "
                            f"several, as in `diloco-chaos run {plan.scenario} --repeat 5 --runs-dir baseline`, and "
                            f"name its folder")
    return way.model_copy(update={"name": NAME, "runs": wanted, "baseline": True, "says": []})


def must_be_same(path: Path, way: WayMeasured, plans: Sequence[Plan]) -> None:
    """Go on only where the baseline's faults are those of the plans.

    Raises:
        BaselineError: they are not.
    """
    for run, plan in zip(way.runs, plans, strict=True):
        if why := other_faults(run.faults, faults_of(plan)):
            raise BaselineError(f"--baseline {path} and seed {plan.seed} can't be compared: {why}")


def slower(pairing: Pairing, share: float) -> list[str]:
    """Return a sentence for each phase that got slower by more than the noise and this share of what it was, or that
    ends less often than it did, and for runs that pass less often."""
    return [_sentence(row, share) for row in pairing.called("worse")
            if row.kind in ("ended", "passed") or (row.kind == "phase" and _share(row) > share)]


def _share(row: Row) -> float:
    """How much longer it takes, as a share of what it took."""
    was, told = row.first.estimate, row.difference.estimate
    if was is None or told is None:
        return 0.0
    return told.mean / was.mean if was.mean > 0 else math.inf


def _sentence(row: Row, share: float) -> str:
    was, now = value(row, row.first), value(row, row.second)
    if row.kind != "phase":
        return f"{row.name}: {now} runs, {was} in the baseline: less often by more than chance"
    return (f"{row.name} got slower: {now} after the fault, {was} in the baseline ({change(row)}, 95% interval "
            f"{between(row)}): more than the noise, and more than {share:.0%}")


def _of_file(file: Path) -> WayMeasured:
    try:
        content: Any = json.loads(file.read_text())
        ways = [WayMeasured.model_validate(way) for way in content["ways"]]
    except OSError as error:
        raise BaselineError(f"--baseline {file}: can't be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise BaselineError(f"--baseline {file}: no comparison ({first(error)}); `diloco-chaos compare` writes one as "
                            f"{_FILE}") from error
    own = [way for way in ways if not way.baseline and way.runs]
    if not own:
        raise BaselineError(f"--baseline {file}: none of its ways has runs of its own")
    return own[0]


def _of_folder(path: Path, plan: Plan) -> WayMeasured:
    if (path / "plan.json").is_file():
        folders = [path]
    elif path.is_dir():
        folders = all_runs(path)
    else:
        raise BaselineError(f"--baseline {path}: no such folder; make one with `diloco-chaos run {plan.scenario} "
                            f"--repeat 5 --runs-dir {path}`")
    runs = [RunFolder.open(folder) for folder in folders]
    scenarios = [run.plan().scenario for run in runs]
    if plan.scenario not in scenarios:
        held = names(sorted(set(scenarios))) if scenarios else "no runs"
        raise BaselineError(f"--baseline {path} has {'runs of ' if scenarios else ''}{held}, and none of scenario "
                            f"{plan.scenario}: make them with `diloco-chaos run {plan.scenario} --repeat 5 --runs-dir "
                            f"{path}`")
    own = [run for run, scenario in zip(runs, scenarios, strict=True) if scenario == plan.scenario and run.over]
    if not own:
        raise BaselineError(f"--baseline {path}: none of its runs is over")
    if why := hindrance(plan, _at_seed(plan, own[-1].plan())):
        raise BaselineError(f"--baseline {path} can't be compared: {why}")
    return way_of(NAME, own[0].plan(), [_measured(run) for run in own], baseline=True)


def _measured(run: RunFolder) -> RunMeasured:
    return measured(judged(run))


def _at_seed(plan: Plan, other: Plan) -> Plan:
    """The other plan with this one's faults: those are looked at seed by seed."""
    return other.model_copy(update={"faults": plan.faults})
