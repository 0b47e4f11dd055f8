"""The same frozen plan in several modes, side by side: what each made of the time, of the tokens and of the links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from diloco_chaos.chaos.checks.outcome import goodput_between, loss_at
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.evidence.traffic import crossed
from diloco_chaos.chaos.report import charts
from diloco_chaos.chaos.report.live import Terminal
from diloco_chaos.chaos.report.saved import kept
from diloco_chaos.chaos.runner.backends import Backend
from diloco_chaos.chaos.runner.run import Result, run_plan
from diloco_chaos.chaos.scenario.plan import Plan, with_checkpoints
from diloco_chaos.harness.base.errors import UserError
from diloco_chaos.harness.trainers.api.trainer import TrainerError

_PATIENCE = 3
"""Times the plan's deadline: who waits for others takes longer."""
_LOOKS = {"decoupled": ("●", "bold green"), "streaming": ("x", "cyan"), "diloco": ("o", "magenta"),
          "data_parallel": ("+", "red"), "elastic_data_parallel": ("*", "yellow")}
_WIDEST = 100
_LEGEND = ("goodput: fraction of learner time whose work was merged, to that mode's end",
           "plan: the goodput that the faults leave in that mode",
           "loss: when as many tokens were processed; those that were taken back are not counted",
           "at time: the loss when the quickest mode ended", "stall: the longest time without a merge")


class CompareError(UserError):
    """A plan makes no sense in a mode."""


@dataclass(frozen=True)
class Compared:
    """One mode's figures; None where the run did not get there."""

    mode: str
    run: str
    """The run's folder."""
    why: str = ""
    """Why there are no figures, or why they prove nothing (a machine that was too busy); empty where all is well."""
    predicted: float | None = None
    """Goodput that the plan's faults leave in this mode, as far as the plan tells."""
    checkpoint_every: int | None = None
    """Steps between two checkpoints of data parallelism, by Young and Daly where the scenario does not say."""
    goodput: float | None = None
    """Share of learner time whose tokens were merged, from the steady state to the end of training."""
    loss: float | None = None
    """Held-out, at the end: of every mode when as many tokens were processed. What data parallelism took back is not
    counted: it is processed again."""
    loss_at_equal_time: float | None = None
    """Held-out, when the quickest mode ended."""
    bytes_per_token: float | None = None
    """At the syncer's sockets, both directions, headers and reports included, over processed tokens."""
    longest_stall_s: float | None = None
    """Longest time without a merge."""
    wall_s: float | None = None
    """From the steady state to the end of training."""


def under(plan: Plan, mode: str) -> Plan:
    """The plan in another mode, without references: what its own mode implied is left to the other.

    Raises:
        CompareError: the mode waits for all learners, and some of them join later; or its settings make no sense.
    """
    try:
        config = with_checkpoints(plan.trainer.under(mode), plan.faults)
    except TrainerError as error:
        raise CompareError(str(error)) from error
    return plan.model_copy(update={"cluster": config, "deadline": _PATIENCE * plan.deadline,
                                   "checks": plan.checks.model_copy(update={"loss_parity": None})})


def plans(plan: Plan, modes: Sequence[str]) -> tuple[dict[str, Plan], dict[str, str]]:
    """The plan in each mode in which it makes sense, and why it makes none in the others."""
    made, senseless = {}, {}
    for mode in modes:
        try:
            made[mode] = under(plan, mode)
        except CompareError as error:
            senseless[mode] = str(error)
    return made, senseless


def compared(by_mode: Mapping[str, Plan], runs: Path, console: Console,
             backend: Backend) -> tuple[list[Compared], dict[str, History]]:
    """Run the plan of every mode, one after the other: the figures, and the histories of those that finished.

    Raises:
        As `diloco_chaos.chaos.runner.run.run_plan`.
    """
    results = {}
    for number, (mode, each) in enumerate(by_mode.items(), 1):
        with Terminal(console, f"mode {mode}, {number} of {len(by_mode)}", bool(backend.virtual)) as terminal:
            results[mode] = kept(run_plan(each, runs, terminal, backend))
        if results[mode].outcome.kind == "interrupted":
            for result in results.values():
                console.print(f"saved   {result.folder.path}", markup=False, highlight=False, soft_wrap=True)
            raise KeyboardInterrupt
    return figures(results), {mode: result.history for mode, result in results.items() if _finished(result)}


def figures(results: Mapping[str, Result]) -> list[Compared]:
    """Return the figures that the runs' folders hold, for each mode."""
    ended = [_wall(result.history) for result in results.values() if _finished(result)]
    return [_figures(mode, result, min(ended, default=0.0)) for mode, result in results.items()]


def _figures(mode: str, result: Result, quickest: float) -> Compared:
    history, folder = result.history, str(result.folder.path)
    planned = Compared(mode, folder, predicted=round(history.plan.predicted_availability(), 4),
                       checkpoint_every=history.plan.cluster.checkpoint_steps or None)
    if not _finished(result):
        return replace(planned, why=result.outcome.message or result.judgement.inconclusive)
    zero = history.origin
    return replace(
        planned, goodput=round(goodput_between(history, zero, history.end), 4), loss=history.final.loss,
        loss_at_equal_time=round(loss_at(history.curve, "t", zero + quickest), 5),
        bytes_per_token=round(crossed(history).a_token, 4),
        longest_stall_s=round(max(history.gaps(zero, history.end)), 3), wall_s=round(_wall(history), 2),
        why=result.judgement.inconclusive or _unfelt(result))


def _unfelt(result: Result) -> str:
    """Say which faults were not observed, so that the run was a calm one; empty: all were observed."""
    unobserved = [f"not every fault was observed: {'; '.join(verdict.evidence) or verdict.measured}"
                  for verdict in result.judgement.checks
                  if verdict.name == "faults_verified" and verdict.verdict != "passed"]
    return unobserved[0] if unobserved else ""


def _finished(result: Result) -> bool:
    return result.outcome.kind == "finished" and result.history.zero is not None and bool(result.history.curve) \
        and all(isfinite(point.loss) for point in result.history.curve)


def _wall(history: History) -> float:
    return history.end - history.origin


def document(plan: Plan, rows: Sequence[Compared]) -> dict[str, Any]:
    """Return the comparison as a JSON object, with a row of figures for each mode."""
    return {"scenario": plan.scenario, "seed": plan.seed, "plan": plan.digest, "modes": [asdict(row) for row in rows]}


def show(plan: Plan, rows: Sequence[Compared], histories: Mapping[str, History], console: Console) -> None:
    """Print the table of figures, and a chart of the losses over time."""
    width = min(console.width, _WIDEST)
    faults = f"{len(plan.faults)} fault{'s' * (len(plan.faults) != 1)}"
    console.print(Text.assemble("\n", (plan.scenario, "bold"), f"  seed {plan.seed}, {faults}\n"))
    table = Table(box=box.SIMPLE_HEAD, expand=True, padding=(0, 0, 0, 1), show_edge=False)
    table.add_column("mode", no_wrap=True)
    for name in ("goodput", "plan", "loss", "at time", "bytes/token", "stall", "took"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row.mode, *(_cell(row, *shape) for shape in (
            ("goodput", "{:.1%}"), ("predicted", "{:.0%}"), ("loss", "{:.4f}"), ("loss_at_equal_time", "{:.4f}"),
            ("bytes_per_token", "{:.2f}"), ("longest_stall_s", "{:.1f} s"), ("wall_s", "{:.0f} s"))))
    console.print(table, width=width)
    saves = [f"{row.mode}: a checkpoint every {row.checkpoint_every} steps" for row in rows if row.checkpoint_every]
    for words in (*_LEGEND, *saves):
        console.print(words, style="dim", highlight=False)
    for row in rows:
        if row.why:
            console.print(f"{row.mode}: {row.why}", style="yellow", markup=False)
        console.print(f"saved   {row.run}", style="dim", markup=False, highlight=False, soft_wrap=True)
    drawn = [charts.Curve(mode, *_LOOKS[mode], [(max(0.0, point.t - history.origin), point.loss)
                                                 for point in history.curve]) for mode, history in histories.items()]
    if drawn:
        console.print(Text.assemble("\n", ("Held-out loss", "bold"), ("  over time since the steady state", "dim")))
        console.print(charts.chart(drawn, width - 1, 13, "s"), width=width)


def _cell(row: Compared, name: str, shape: str) -> str:
    value = getattr(row, name)
    return "–" if value is None else shape.format(value)
