"""Commands about scenarios that nothing is run for: list, show, validate, schema, plan."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from diloco_chaos.chaos.commands.common import Failure, JsonOption, print_json
from diloco_chaos.chaos.scenario import plan as plans
from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.chaos.scenario.model import Scenario
from diloco_chaos.chaos.scenario.plan import Plan, freeze
from diloco_chaos.chaos.scenario.problems import ScenarioError
from diloco_chaos.chaos.scenario.schema import schema as scenario_schema
from diloco_chaos.chaos.scenario.warnings import warnings_of
from diloco_chaos.harness.base.errors import nearest, printable
from diloco_chaos.scenarios import find


def list_(
    words: Annotated[str, typer.Argument(help="Only those whose name, description or kinds of faults have this.")] = "",
    tier: Annotated[str, typer.Option(help="Only those of this tier: ci or full.")] = "",
    as_json: JsonOption = False,
) -> None:
    """List the scenarios of the library: those of tier ci, which take minutes together, and all others.

    Example: `diloco-chaos list partition`
    """
    tiers = {"ci": "Tier ci: quick, and together the most telling", "full": "Tier full: all others"}
    if tier and tier not in tiers:
        raise Failure(f"no tier {printable(tier)!r}; there are {' and '.join(tiers)}", 2)
    scenarios = [scenario for path in find().values()
                 if _has(scenario := load(str(path))[0], words) and tier in ("", scenario.tier)]
    if as_json:
        print_json({"scenarios": [{"name": scenario.name, "tier": scenario.tier, "description": scenario.description,
                                   "faults": _kinds(scenario)} for scenario in scenarios]})
        return
    if not scenarios:
        raise Failure(f"no scenario has {printable(words)!r} in its name, its description or its kinds of faults; "
                      f"`diloco-chaos list` has all", 2)
    from rich.console import Console
    from rich.table import Table
    for each, title in tiers.items():
        here = [scenario for scenario in scenarios if scenario.tier == each]
        if here:
            Console().print(f"[bold]{title}[/]")
        rows = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        for width in (27, 15):
            rows.add_column(width=width)
        rows.add_column()
        for scenario in here:
            rows.add_row(scenario.name, ", ".join(_kinds(scenario)) or "none", scenario.description)
        Console().print(rows)


def _kinds(scenario: Scenario) -> list[str]:
    """Return the kinds of its faults, each once."""
    return sorted({fault.kind for fault in scenario.faults})


def _has(scenario: Scenario, words: str) -> bool:
    texts = (scenario.name, scenario.description, *_kinds(scenario))
    return any(words.casefold() in text.casefold() for text in texts)


def show(scenario: Annotated[str, typer.Argument(help="A scenario's name or file.")],
         as_json: JsonOption = False) -> None:
    """Show a scenario: its text, its faults in words, its predicted availability.

    Example: `diloco-chaos show flagship`
    """
    loaded, path = load(scenario)
    frozen = freeze(loaded, 0)
    if as_json:
        print_json({"file": str(path), "scenario": loaded.model_dump(mode="json", by_alias=True),
                     "predicted_availability": frozen.predicted_availability()})
        return
    text = printable(path.read_text())
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.syntax import Syntax
        Console().print(Syntax(text, "yaml", background_color="default", word_wrap=True))
    else:
        typer.echo(text.rstrip("\n"))  # as it is: it may become a file
    faults = [f"{planned.id}  {planned.describe()}, {planned.fault.describe_trigger()}"
              for planned in frozen.faults]
    for line in (*faults, f"predicted availability {frozen.predicted_availability():.0%}"):
        typer.echo(printable(f"# {line}"))


def validate(scenarios: Annotated[list[str], typer.Argument(help="Names or files of scenarios.")],
             on: Annotated[str, typer.Option(metavar="PLACE", help="Check also that they can run there, as in "
                                             "`--on compose`.")] = "",
             as_json: JsonOption = False) -> None:
    """Check scenarios without running them: every problem, with its place.

    Example: `diloco-chaos validate my-scenario.yaml`
    """
    refusals = _refusals_on(on)
    problems: list[str] = []
    warnings: list[str] = []
    for name in scenarios:
        try:
            loaded, path = load(name)
            frozen = freeze(loaded, 0)
            problems += [printable(f"{path}: {why}") for why in refusals(frozen)]
            faults = [planned.fault for planned in frozen.faults]
            lacking = "" if on else loaded.trainer.lacking()
            notes = [*loaded.trainer.idle(), *warnings_of(loaded.trainer, faults),
                     *([f"this machine can't run it: {lacking}"] if lacking else [])]
            warnings += [f"{path}: {text}" for text in notes]
        except ScenarioError as error:
            problems += printable(str(error)).splitlines()
    if as_json:
        print_json({"valid": not problems, "problems": problems, "warnings": warnings})
    else:
        for line in problems:
            typer.echo(line, err=True)
        for line in warnings:
            typer.echo(f"warning: {line}")
        if not problems:
            typer.echo(f"{len(scenarios)} valid")
    raise typer.Exit(2 if problems else 0)


def _refusals_on(place: str) -> Callable[[Plan], Sequence[str]]:
    """Return what tells why a plan can't run at a place; nothing, if none is named."""
    if not place:
        return lambda plan: ()
    from diloco_chaos.chaos.commands.places import backend_of
    return backend_of(place, {}).refusals


def schema(
    of: Annotated[str, typer.Argument(help="scenario, or report: of what `report RUN --format model` prints.",
                                      )] = "scenario",
) -> None:
    """Print the JSON schema of scenario files, with which an editor completes and checks them, or of reports.

    Example: `diloco-chaos schema > diloco-chaos.schema.json`
    """
    if of not in ("scenario", "report"):
        raise Failure(f"no schema of {of!r}{nearest(of, ['scenario', 'report'])}; there are scenario and report", 2)
    if of == "scenario":
        print_json(scenario_schema())
        return
    from diloco_chaos.chaos.report.model import ReportModel
    print_json(ReportModel.model_json_schema(mode="serialization"))


def plan(
    scenario: Annotated[str, typer.Argument(help="A scenario's name or file.")],
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the scenario's choices.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write the plan to this file, and print it in words.")] = None,
) -> None:
    """Freeze a scenario and print the plan: every fault with its time, nothing left to chance.

    Example: `diloco-chaos plan storm --seed 3 > plan.json`, then `diloco-chaos run --plan plan.json`
    """
    frozen = freeze(load(scenario)[0], seed)
    if out is None:
        print_json(plans.document(frozen))
        return
    try:
        plans.save(frozen, out)
    except OSError as error:
        raise Failure(f"{out}: can't be written: {error.strerror}", 2) from error
    from rich.console import Console
    from rich.table import Table
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for planned in frozen.faults:
        table.add_row(planned.id, planned.fault.describe_trigger(), planned.describe())
    console = Console()
    console.print(table)
    console.print(f"{len(frozen.faults)} faults, predicted availability {frozen.predicted_availability():.0%}\n"
                  f"plan {frozen.digest[:12]} saved to {out}", highlight=False)
