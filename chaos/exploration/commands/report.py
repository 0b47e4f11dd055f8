"""What a search in a trainer of commands found, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from diloco_chaos.chaos.exploration.commands.hunt import HuntState


def document(state: HuntState) -> dict[str, Any]:
    """Return the state of a search in a form for programs."""
    return {"runs": state.runs, "schedules": len(state.tried), "decided": state.decided,
            "from_before": state.taken_over, "seen": len(state.lessons.seen),
            "found": [asdict(finding) for finding in state.found],
            "failed_once": [{"schedule": tried.number, "checks": list(tried.failed), "faults": list(tried.faults)}
                            for tried in state.flakes]}


def show(state: HuntState, console: Console, option: str) -> None:
    """What broke, with the command that repeats it. `option`: what that needs to run at the same place."""
    before = f", {state.taken_over} of them from before" if state.taken_over else ""
    new = len(state.lessons.seen) - len(state.lessons.healthy)
    console.print(f"{len(state.tried)} schedules{before}, {state.decided} decided; {state.runs} runs")
    console.print(f"{new} kinds of lines, exits, files and phases that are not there without faults; the shortest "
                  f"schedules that bring them about are {len(state.lessons.entries)}")
    for tried in state.flakes:
        console.print(f"? schedule {tried.number} failed {', '.join(tried.failed)} in 1 of 2 runs, and counts as no "
                      f"find", markup=False, highlight=False)
    for finding in state.found:
        console.print(Text(f"✗ {', '.join(finding.checks)}: {finding.failed} of {finding.of} runs of the smallest "
                           f"schedule, which has {len(finding.faults)} faults; found in schedule {finding.number}"
                           + (f", and in {finding.times - 1} more" if finding.times > 1 else ""), "bold red"))
        for line in finding.evidence[:2]:
            console.print(f"  {line}", markup=False, highlight=False)
        console.print(f"  repeat it: diloco-chaos run {finding.file}{option}", markup=False, highlight=False,
                      soft_wrap=True)
    if state.exit_code == 3:
        console.print("[yellow]?[/] too few were decided to say that nothing broke; give the run more rounds, or name "
                      "other kinds with --faults")
    elif not state.found:
        console.print("[green]✓[/] nothing broke where it was decided")
