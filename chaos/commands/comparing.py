"""The command that holds ways of training against each other: scenarios, settings, modes, or what was before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from diloco_chaos.chaos.commands.baselines import (
    NOW,
    BaselineOption,
    SlowerByOption,
    beside_baseline,
    save,
    share_of,
)
from diloco_chaos.chaos.commands.common import Failure, JsonOption, print_json
from diloco_chaos.chaos.commands.modes import in_modes, one_run_of_each
from diloco_chaos.chaos.commands.places import backend_of, on_option, takes_place_options
from diloco_chaos.chaos.commands.running import with_options
from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.chaos.scenario.plan import Plan, freeze
from diloco_chaos.chaos.scenario.warnings import warnings_of
from diloco_chaos.harness.places.registry import DEFAULT, VIRTUAL

if TYPE_CHECKING:
    from diloco_chaos.chaos.report.comparison.variants import Way

_USUAL_RUNS = 5


@takes_place_options
def compare(
    scenarios: Annotated[list[str], typer.Argument(metavar="SCENARIO [OTHER]...", help="Scenarios by name or file. "
                                                   "Several are held against the first; of one, its modes are, or "
                                                   "what --with or --baseline says.")],
    with_: Annotated[list[str] | None, typer.Option(
        "--with", metavar="KEY=VALUE", help="The same scenario with another setting, as in cluster.quorum=1 or "
        "nodes.worker.env.SAVE_EVERY=10; several settings of one variant with commas; a name before them if you like: "
        "'prepared: quorum=1'. Repeat it for more variants.")] = None,
    modes: Annotated[str | None, typer.Option(help="Modes, as in decoupled,streaming; by default every one that "
                                              "suits the plan.")] = None,
    baseline: BaselineOption = None,
    slower_by: SlowerByOption = "",
    repeat: Annotated[int | None, typer.Option(
        min=1, max=100, show_default=f"{_USUAL_RUNS}; 1 of each mode; with --baseline those that it has",
        help="Runs of each way, with as many seeds in a row.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Freezes the scenario's choices, and seeds the training; the "
                                             "first of them (0 if not given).")] = None,
    runs_dir: Annotated[Path, typer.Option(help="Where the runs' folders are made.")] = Path("runs"),
    out: Annotated[Path | None, typer.Option(help="Folder for compare.html, compare.md and compare.json; by default a "
                                             "new one beside the runs.")] = None,
    on: Annotated[str, on_option(shown=f"{DEFAULT}; {VIRTUAL} for modes")] = "",
    given: Any = None,
    step_time: Annotated[str, typer.Option(help="Time of a learner's step, as in 150ms; raise it on a slower machine; "
                                           "auto: what this machine can hold.")] = "",
    device: Annotated[str, typer.Option(help="What learners compute on; same as for `run`.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Run ways of training in turn under the same faults, and tell which recovers sooner and whether it is chance.

    Ways are scenarios with the same faults, or one scenario with other settings. Each runs with the same seeds. Exit
    codes: 0 compared, 1 slower than the baseline, 3 no run told anything.

    Example: `diloco-chaos compare kill-one --with cluster.quorum=2 --on simulated`
    """
    from diloco_chaos.chaos.report.comparison.perform import side_by_side
    from diloco_chaos.chaos.report.comparison.saved import document
    from diloco_chaos.chaos.report.comparison.terminal import show
    from diloco_chaos.chaos.report.comparison.variants import Way
    share, of_modes = share_of(slower_by, baseline), _must_agree(scenarios, with_ or [], modes, baseline)
    backend = backend_of(on or (VIRTUAL if of_modes else DEFAULT), given)
    console = Console(stderr=as_json)

    def settled(plan: Plan) -> Plan:
        return with_options(plan, step_time=step_time, device=device, most_load=backend.most_load)
    seeds = [(seed or 0) + number for number in range(repeat or (_USUAL_RUNS if not of_modes else 1))]
    before = None
    if of_modes:
        ways = _ways_of_modes(scenarios[0], modes, [settled(freeze(load(scenarios[0])[0], each)) for each in seeds],
                              console, lambda by_mode, plan: one_run_of_each(by_mode, plan, runs_dir, console, backend,
                                                                             as_json))
    elif baseline is not None:
        before, plans = beside_baseline(scenarios[0], baseline, backend.name,
                                        seeds if repeat or seed is not None else [], settled)
        ways = [Way(NOW, plans)]
    else:
        ways = _ways(scenarios, with_ or [], seeds, settled)
    _warn(console, [], [way.plans[0] for way in ways])
    comparison = side_by_side(ways, before, share, runs_dir, console, backend)
    print_json(document(comparison)) if as_json else show(comparison, console)
    save(comparison, out, runs_dir, console)
    raise typer.Exit(comparison.exit_code)


def _must_agree(scenarios: list[str], variants: list[str], modes: str | None, baseline: Path | None) -> bool:
    """Return whether modes are compared.

    Raises:
        Failure: more than one kind of ways is asked for.
    """
    said = [name for name, given in (("several scenarios", len(scenarios) > 1), ("--with", bool(variants)),
                                     ("--modes", modes is not None), ("--baseline", baseline is not None)) if given]
    if len(said) > 1:
        raise Failure(f"{' and '.join(said)}: one comparison has ways of one kind; give one of them", 2)
    return not said or modes is not None


def _ways(scenarios: list[str], variants: list[str], seeds: list[int], settled: Callable[[Plan], Plan]) -> list[Way]:
    from diloco_chaos.chaos.report.comparison.variants import must_compare, variant, ways_of
    ways = [way.having(settled) for way in ways_of(scenarios, [variant(said) for said in variants], seeds)]
    must_compare(ways)
    return ways


def _ways_of_modes(scenario: str, modes: str | None, plans: list[Plan], console: Console,
                   one_of_each: Callable[[dict[str, Plan], Plan], None]) -> list[Way]:
    """The scenario in each mode; where each has one run, these are all that there is."""
    from diloco_chaos.chaos.report.comparison.variants import Way
    by_mode, left_out = in_modes(scenario, plans[0], modes)
    if len(plans) == 1:
        _warn(console, left_out, list(by_mode.values()))
        one_of_each(by_mode, plans[0])
    _warn(console, left_out, [])
    return [Way(mode, tuple(in_modes(scenario, plan, mode)[0][mode] for plan in plans)) for mode in by_mode]


def _warn(console: Console, lines: list[str], plans: list[Plan]) -> None:
    warnings = [f"warning: {text}" for plan in plans
                for text in warnings_of(plan.trainer, [planned.fault for planned in plan.faults])]
    for line in [*lines, *dict.fromkeys(warnings)]:
        console.print(line, style="yellow", markup=False)
