"""Processor time of every form of a report, from the tape of a run of a minute."""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from diloco_chaos.chaos.evidence.run_folder import RunFolder
from diloco_chaos.chaos.report.forms import registry
from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.report.terminal import show
from diloco_chaos.chaos.runner.backends import named
from diloco_chaos.chaos.runner.run import Result, judged, run_plan
from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.chaos.scenario.plan import Plan, freeze

BAR_S = 3.0
"""Of all forms together, the judgement and their imports included."""
FORMS: dict[str, Callable[[Result], object]] = {
    "terminal": lambda result: show(result, Console(file=io.StringIO(), width=80)),
    "terminal --verbose": lambda result: show(result, Console(file=io.StringIO(), width=80), True),
    "html": registry.html, "md": registry.md, "json": registry.report_json, "model": registry.model_json,
    "junit": registry.junit, "svg": registry.svg, "png": registry.png, "perfetto": registry.perfetto,
    "prometheus": registry.prometheus, "otel": registry.otel}


def plan() -> Plan:
    """`kill-one` for 600 steps of 100 ms, with a model that takes no time: its tape is what any model's would be."""
    return freeze(load("kill-one", lambda document: document | {
        "cluster": document["cluster"] | {"budget": "600 steps", "model": "quadratic"}, "deadline": "120s"})[0], 0)


def measure(say: Callable[[str], None]) -> dict[str, Any]:
    """Judge it once and make each form once."""
    with tempfile.TemporaryDirectory() as runs:
        folder = run_plan(plan(), Path(runs), NullAudience(), named("simulated")).folder.path
        began = time.process_time()
        result = judged(RunFolder.open(folder))
        took = {"judged": time.process_time() - began}
        for name, form in FORMS.items():
            began = time.process_time()
            form(result)
            took[name] = time.process_time() - began
    together = sum(took.values())
    say(f"  reports of {result.took:.0f} s: {together:.2f} s of processor time, {len(FORMS)} forms")
    return {"run_s": round(result.took, 1), "events": len(result.history.tape), "bar_s": BAR_S,
            "together_s": round(together, 2), "met": together < BAR_S,
            "processor_s": {name: round(seconds, 3) for name, seconds in took.items()}}
