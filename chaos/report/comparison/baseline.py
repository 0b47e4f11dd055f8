"""Runs that were made before, to hold new ones against: what got slower since."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from pydantic import ValidationError

from diloco_chaos.chaos.evidence.run_folder import RunFolder, all_runs
from diloco_chaos.chaos.report.comparison.measured import WayMeasured, measured, unit_of_work, way_of
from diloco_chaos.chaos.report.comparison.model import Pairing, Row
from diloco_chaos.chaos.report.comparison.variants import faults_of, other_faults
from diloco_chaos.chaos.report.comparison.words import between, change, value
from diloco_chaos.chaos.runner.run import judged
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.base.errors import UserError, first, nearest
from diloco_chaos.harness.base.units import names
from diloco_chaos.harness.places.registry import DEFAULT

NAME = "baseline"
_FILE = "compare.json"
_LEAST = 2


class BaselineError(UserError):
    """Runs that nothing can be held against."""


def baseline_of(path: Path, plan: Plan, typed: str, place: str, seeds: Sequence[int]) -> WayMeasured:
    """Return the runs of a baseline: of compare.json, of a folder that has one, or of a folder of runs.

    Args:
        plan: of the scenario that is held against it.
        typed: the scenario as the user named it.
        place: where the new runs will be.
        seeds: those that must be there; all that are there, if none are given.

    Raises:
        BaselineError: it can't be read, is of other runs than these, or has too few.
    """
    file, make = path / _FILE if path.is_dir() else path, _making(path, typed, place)
    way, its_place = _of_file(file) if file.is_file() else _of_folder(path, plan, place, make)
    if way.scenario != plan.scenario:
        raise BaselineError(f"--baseline {path} is of scenario {way.scenario}, not of {plan.scenario}"
                            f"{nearest(way.scenario, [plan.scenario])}: {make}")
    if way.trainer != plan.trainer.name:
        raise BaselineError(f"--baseline {path} was made with trainer {way.trainer}, not with {plan.trainer.name}: "
                            f"{make}")
    if way.unit != unit_of_work(plan):
        raise BaselineError(f"--baseline {path} counts lost work in {way.unit}, and {typed} in {unit_of_work(plan)}: "
                            f"{make}")
    if its_place not in ("", place):
        raise BaselineError(f"--baseline {path} was made on {its_place}, and these runs would be on {place}: type "
                            f"--on {its_place}, or {make}")
    runs = {run.seed: run for run in way.runs}  # the newest of each seed
    if absent := [str(seed) for seed in seeds if seed not in runs]:
        raise BaselineError(f"--baseline {path} has no run of seed {names(absent)}: it has "
                            f"{names(list(map(str, sorted(runs))))}; leave --seed and --repeat out to run those")
    wanted = [runs[seed] for seed in seeds or sorted(runs)]
    if not any(run.trained for run in wanted):
        raise BaselineError(f"--baseline {path}: none of its runs began to train, so nothing can be slower: seed "
                            f"{wanted[0].seed}: {wanted[0].why or 'nothing says why'}; {make}")
    if len(wanted) < _LEAST:
        few = "one run only is taken of it" if len(runs) >= _LEAST else "it has one run only"
        raise BaselineError(f"--baseline {path}: {few}, which tells nothing of the noise: "
                            f"{'give --repeat 5, or leave it out' if len(runs) >= _LEAST else make}")
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


def _making(path: Path, typed: str, place: str) -> str:
    """What to type for a baseline that fits, in a folder that is not there yet."""
    folder = NAME if path.exists() or path.suffix else str(path)
    on = "" if place == DEFAULT else f" --on {place}"
    return (f"make one with `diloco-chaos run {quote(typed)} --repeat 5{on} --runs-dir {quote(folder)}`, and name "
            f"that folder")


def _of_file(file: Path) -> tuple[WayMeasured, str]:
    """The first way of a comparison with runs of its own, and where they were."""
    try:
        content: Any = json.loads(file.read_text())
        ways = [WayMeasured.model_validate(way) for way in content["ways"]]
        place = str(content["place"])
    except OSError as error:
        raise BaselineError(f"--baseline {file}: can't be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise BaselineError(f"--baseline {file}: no comparison: {_unreadable(error)}; `diloco-chaos compare` writes "
                            f"one as {_FILE}") from error
    own = [way for way in ways if not way.baseline and way.runs]
    if not own:
        raise BaselineError(f"--baseline {file}: none of its ways has runs of its own")
    return own[0], place


def _unreadable(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return f"ways: {first(error)}"
    if isinstance(error, UnicodeDecodeError):
        return "it is no text"
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno} is no JSON" if error.doc.strip() else "it is empty"
    return f"it has no {error.args[0]!r}" if isinstance(error, KeyError) else "its JSON is something else"


def _of_folder(path: Path, plan: Plan, place: str, make: str) -> tuple[WayMeasured, str]:
    """The runs of the scenario that a folder has, and where they were; those that the plan can be held against, if
    there are any."""
    if (path / "plan.json").is_file():
        folders = [path]
    elif path.is_dir():
        folders = all_runs(path)
    else:
        what = "file" if path.suffix else "folder"
        raise BaselineError(f"--baseline {path}: there is no such {what}: {make}")
    runs = [(run, run.plan()) for run in map(RunFolder.open, folders)]
    scenarios = sorted({its.scenario for _, its in runs})
    if plan.scenario not in scenarios:
        held = f"runs of {names(scenarios)}" if scenarios else "no runs"
        raise BaselineError(f"--baseline {path} has {held}, and none of scenario {plan.scenario}: {make}")
    own = [(run, its) for run, its in runs if its.scenario == plan.scenario and run.over]
    if not own:
        raise BaselineError(f"--baseline {path}: none of its runs of {plan.scenario} is over; wait until they are")
    alike = [(run, its) for run, its in own
             if (its.trainer.name, unit_of_work(its), run.place) == (plan.trainer.name, unit_of_work(plan), place)]
    used = alike or own[-1:]
    way = way_of(NAME, used[0][1], [measured(judged(run)) for run, _ in used], baseline=True)
    return way, used[0][0].place
