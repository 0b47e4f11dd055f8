"""How soon a kill is felt on other machines, and made good:
`python -m benchmarks.measure.elsewhere --on kubernetes --kills 30`.

As `benchmarks.measure.recovery` has it, at the pace that `--step-time auto` finds there; and how far clocks came apart
while it ran, and how well that was known. Which cluster: as for a run, what DILOCO_CHAOS_KUBERNETES or
DILOCO_CHAOS_SLURM says. JSON on standard output.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.measure import recovery
from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.runner import backends
from diloco_chaos.chaos.runner.run import Result, run_plan
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.chaos.scenario.step_time import AUTO, paced
from diloco_chaos.harness.record.tape.events import Clock


def measure(on: str, runs: Path, kills: int) -> dict[str, Any]:
    """All of it, of runs of ten kills each."""
    backend, ran = backends.named(on), list[Result]()

    def perform(plan: Plan) -> Result:
        ran.append(result := run_plan(paced(plan, AUTO, backend.most_load), runs, NullAudience(), backend))
        print(f"  {_pace_ms(result)} ms a step: exit {result.judgement.exit_code} {result.judgement.inconclusive}",
              file=sys.stderr)
        return result
    recoveries = recovery.measure(perform, kills)
    clocks = [event for result in ran for event in result.history.tape.of(Clock)]
    return {"on": on, "step_ms": [_pace_ms(result) for result in ran],
            "exit_codes": [result.judgement.exit_code for result in ran],
            "inconclusive": [result.judgement.inconclusive for result in ran if result.judgement.inconclusive],
            **recoveries, "clocks": {"ahead": recovery.spread([abs(event.ahead) for event in clocks]),
                                     "error": recovery.spread([abs(event.error) for event in clocks])}}


def _pace_ms(result: Result) -> int:
    """Milliseconds that a step was to take."""
    return round(result.history.plan.cluster.step_time * 1000)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.measure.elsewhere", description=__doc__)
    parser.add_argument("--on", choices=["kubernetes", "slurm"], required=True)
    parser.add_argument("--kills", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="diloco-chaos-bench-") as folder:
        print(json.dumps(measure(options.on, Path(folder), options.kills), indent=2))


if __name__ == "__main__":
    main()
