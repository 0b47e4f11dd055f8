"""Trainers that are not ours under the same faults, and the built-in one beside them: `python -m benchmarks.trainers`.

Every scenario of `examples/` is run as a user would, three times, in a copy of its folder; torchft's once as data
parallelism and once as DiLoCo. What came of it goes to `benchmarks/trainers.json`, a cell at a time, and
docs/trainers.md is made of that. Run it on a machine that does nothing else, where torchft is installed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_ROOT = Path(__file__).resolve().parent.parent
_SAVED = Path(__file__).with_name("trainers.json")
_PAGE = _ROOT / "docs" / "trainers.md"

_FAULTS = {
    "kill": "{kill: learner-1, at: 4s, restart_after: 2s}",
    "pause": "{pause: learner-1, at: 4s, for: 3s}",
    "far": "{latency: learner-1, at: 4s, for: 4s, delay: 50ms}",
    "cut-off": "{partition: learner-1, at: 4s, for: 4s}",
    "lighthouse": "{kill: syncer, at: 4s, restart_after: 4s}",
    "both": "{kill: [learner-1, learner-2], at: 4s, restart_after: 2s}",
}
"""What the faults of torchft's scenarios are to the built-in trainer; its learners have nothing to do with each other,
so that `apart` has no counterpart."""

_BUILT_IN = """diloco_chaos: 1
name: built-in-{name}
description: Two learners of the built-in trainer at the pace of torchft's, under the faults of {name}.yaml.
cluster: {{learners: 2, quorum: 1, step_time: 50ms, budget: 300 steps}}
deadline: 120s
faults:
  - {fault}
checks:
  no_global_stall: {{max_gap: {gap}}}
  self_healing: {{within: 15s}}
  reintegration: {{within: 15s}}
  uptime: {{at_least: 80%}}
  blast_radius: {{at_least: 0%}}
  goodput: {{at_least: 0%}}              # of the others it is not asked either
"""

_TOLD = {"no_global_stall": "longest gap ", "reintegration": "", "rounds_never_go_back": " rounds lost"}
"""Checks whose figures are told, and what of them the table's head says."""


class Cell(NamedTuple):
    """A trainer under a scenario."""

    trainer: str
    scenario: str

    @property
    def example(self) -> str:
        """The folder of `examples/` that it is in; empty for the built-in one."""
        return "" if self.trainer == "built-in" else self.trainer.split()[0]

    def prepare(self, folder: Path) -> Path:
        """A scenario file of its own, with all that it needs beside it."""
        file = folder / "scenarios" / f"{self.scenario}.yaml"
        if not self.example:
            file.parent.mkdir()
            gap = "15s" if self.scenario == "both" else "3s"
            file.write_text(_BUILT_IN.format(name=self.scenario, fault=_FAULTS[self.scenario], gap=gap))
            return file
        shutil.copytree(_ROOT / "examples" / self.example, folder, dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("runs", "__pycache__"))
        if self.trainer.endswith("DiLoCo"):  # four steps to a round
            base = file.with_name("base.yaml")
            text = base.read_text()
            assert text.count("train.py ddp") == text.count("rounds: 300") == 1, base
            base.write_text(text.replace("train.py ddp", "train.py diloco").replace("rounds: 300", "rounds: 75"))
            file.write_text(file.read_text().replace("rounds: 1800", "rounds: 450"))
        return file


def cells() -> list[Cell]:
    """All of them, in the table's order."""
    return [*(Cell(trainer, scenario) for scenario in (*_FAULTS, "apart")
              for trainer in ("torchft DDP", "torchft DiLoCo", "built-in")
              if trainer != "built-in" or scenario in _FAULTS),
            *(Cell("torchrun", scenario) for scenario in ("kill-worker", "kill-agent", "kill-first-agent")),
            Cell("own", "kill-one")]


def performed(cell: Cell) -> dict[str, Any]:
    """One run of it: exit code, and each check's verdict, what it measured, and the first line of its evidence.

    Raises:
        SystemExit: there was no run; it says what the command said.
    """
    with tempfile.TemporaryDirectory(prefix="diloco-chaos-trainers-") as name:
        folder = Path(name)
        scenario = cell.prepare(folder)
        done = subprocess.run(
            [Path(sys.executable).with_name("diloco-chaos"), "run", scenario, "--runs-dir", folder / "runs",
             "--retries-inconclusive", "2"], cwd=folder, capture_output=True, text=True, check=False)
        reports = sorted(folder.glob("runs/*/report.json"))
        if not reports:
            raise SystemExit(f"{cell.trainer}, {cell.scenario}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        report = json.loads(reports[-1].read_text())
        return {"exit": done.returncode, "tries": len(reports), "checks": {
            check["name"]: [check["verdict"], check["measured"], *check["evidence"][:1]] for check in report["checks"]}}


def page(results: Mapping[str, Sequence[dict[str, Any]]]) -> str:
    """docs/trainers.md."""
    lines = [f"| {cell.scenario} | {cell.trainer} | {' | '.join(columns(results[key]))} |"
             for cell in cells() if (key := f"{cell.trainer}/{cell.scenario}") in results]
    return f"""# Other trainers under the same faults

Made by `python -m benchmarks.trainers`, which runs every scenario of `examples/` three times, one run after the other:
two replicas of [torchft](../examples/torchft/README.md) 0.2.0, as data parallelism and as DiLoCo (a round is four
steps), and beside them two learners of the built-in trainer with quorum 1, at the same pace (50 ms a step) under the
same faults, the syncer in the lighthouse's place; two agents of [torchrun](../examples/torchrun/README.md) with two
workers each; and [a trainer of a hundred lines](../examples/own/README.md). *Longest stall* is the longest time without
a round, *reintegration* the time from a new process's start, or a fault's end, to its first round; one number for each
run. What fails is explained in [found.md](found.md). A stall may last 3 s (torchrun: 10 s, too short for the rendezvous
after an agent's death): a lighthouse, or a syncer, that is away for 4 s fails that by itself, and where replicas are
apart, or one stands still, for 3 s it is a matter of tenths.

| scenario | trainer | longest stall | reintegration | rounds lost | verdicts |
|---|---|---|---|---|---|
{chr(10).join(lines)}
"""


def columns(runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Longest stall, reintegration, rounds lost, and what the verdicts were."""
    for check, said in _TOLD.items():
        details = [run["checks"][check][1].replace(said, "") for run in runs if check in run["checks"]]
        yield ", ".join(details) or "-"
    outcomes = Counter({0: "passed", 1: "failed", 3: "inconclusive"}.get(run["exit"], f"exit {run['exit']}")
                       for run in runs)
    failed = Counter(name for run in runs for name, (verdict, *_) in run["checks"].items() if verdict == "failed")
    yield ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()) + (
        ": " if failed else "") + ", ".join(f"{name} ({count})" for name, count in failed.most_common())


def main() -> int:
    """The command line; see the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", default="", help="cells in whose trainer/scenario this is")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    results: dict[str, list[dict[str, Any]]] = json.loads(_SAVED.read_text()) if _SAVED.exists() else {}
    for cell in cells():
        key = f"{cell.trainer}/{cell.scenario}"
        if given.only not in key:
            continue
        results[key] = []
        for _ in range(given.runs):
            results[key].append(performed(cell))
            print(key, *columns(results[key][-1:]), sep=" | ", file=sys.stderr, flush=True)
        _SAVED.write_text(json.dumps(results, indent=1) + "\n")
        _PAGE.write_text(page(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
