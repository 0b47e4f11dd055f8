"""What came of earlier runs, as their reports tell: in a list, and beside the same scenario's newest."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import ValidationError

from diloco_chaos.chaos.checks.base import Verdict, nearest_limit
from diloco_chaos.chaos.evidence.run_folder import RunFolder, all_runs

_MOST = 20


class Past(NamedTuple):
    """A run; what its folder lacks is left open."""

    run: str
    scenario: str
    created: str
    seed: int | str
    exit_code: int | None
    why: str
    """What did not hold, or why it proves nothing."""
    checks: dict[str, Verdict]

    @property
    def tightest(self) -> tuple[str, float] | None:
        """The check that was nearest to its limit, or farthest beyond it, and how much of the room was used."""
        return nearest_limit(self.checks.values())


def past(run: RunFolder) -> Past:
    """Return what the folder of a run says of it."""
    report, manifest = run.document("report.json"), run.manifest()
    checks = [check for check in map(_verdict, _list(report.get("checks"))) if check is not None]
    failed = [f"{check.name} {check.measured}" for check in checks if check.verdict == "failed"]
    unknown = ", ".join(check.name for check in checks if check.verdict == "unknown")
    code = report.get("exit_code")
    return Past(run.path.name, str(report.get("scenario", "")), str(manifest.get("created", "")),
                _seed(manifest.get("seed")),
                code if isinstance(code, int) else None,
                "; ".join(failed) or str(report.get("inconclusive") or report.get("message") or unknown),
                {check.name: check for check in checks})


def earlier(run: RunFolder, scenario: str, most: int = _MOST) -> list[Past]:
    """Return up to `most` earlier runs of the same scenario from the same folder: the newest ones, oldest first."""
    paths = [path for path in all_runs(run.path.parent) if f"-{scenario}-" in path.name and path.name < run.path.name]
    runs: list[Past] = []
    for path in reversed(paths):
        if len(runs) == most:
            break
        if (candidate := past(RunFolder(path))).scenario == scenario:
            runs.append(candidate)
    return runs[::-1]


def _verdict(recorded: object) -> Verdict | None:
    try:
        return Verdict.model_validate(recorded)
    except ValidationError:
        return None


def _list(recorded: object) -> list[object]:
    return recorded if isinstance(recorded, list) else []


def _seed(recorded: object) -> int | str:
    return recorded if isinstance(recorded, int) else ""
