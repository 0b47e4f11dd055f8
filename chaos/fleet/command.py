"""The command that predicts which share of a fleet's time is useful training."""

from __future__ import annotations

import math
import sys
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from diloco_chaos.chaos.commands.common import Failure, JsonOption, at_work, print_json
from diloco_chaos.chaos.commands.options import (
    AddressOption,
    JobsOption,
    draw,
    drawable,
    options_of,
    parts,
    read,
    setting,
    written,
)
from diloco_chaos.chaos.fleet.failures import with_failures
from diloco_chaos.chaos.program import called

if TYPE_CHECKING:
    from diloco_chaos.harness.fleet.fleet import Fleet
    from diloco_chaos.harness.fleet.replications import Summary

_SEVERAL = ("chips", "mode", "learners", "repair")
"""Of these there may be several, separated by commas."""
_DAY_S = 86_400.0
_HELP = {"rich_help_panel": "The fleet"}
_setting = partial(setting, panel=_HELP["rich_help_panel"])
DaysOption = Annotated[float, typer.Option(min=0.01, max=3650, help="Simulated in each replication.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Of all chance.")]
WorkersOption = Annotated[str, typer.Option(help="Where replications are made: local, or ray (a Ray cluster).")]
group = typer.Typer(invoke_without_command=True)
"""`fleet`, and what comes behind it."""


@group.callback(epilog="Example: `diloco-chaos fleet --chips 150k,1.2M --learners 2,8 --mtbf 1y`")
def fleet(
    context: typer.Context,
    paper: Annotated[bool, typer.Option("--paper", help="The published table beside ours.")] = False,
    chips: Annotated[str, _setting("1.2M", "How many, as in 1.2M; several by commas.")] = "",
    mode: Annotated[str, typer.Option(help="data_parallel, elastic_data_parallel, decoupled; several by commas, all "
                                      "by default.", **_HELP)] = "",
    learners: Annotated[str, _setting("8", "M, of decoupled; several by commas.")] = "",
    quorum: Annotated[int | None, _setting("1", "K: the fleet is up while so many learners train.")] = None,
    slice_chips: Annotated[str, _setting("256", "Chips that one interruption takes away.")] = "",
    mtbf: Annotated[str, _setting("1y", "Mean time between interruptions of a chip, as in 1y.")] = "",
    shape: Annotated[float | None, _setting("1", "Of the Weibull distribution of a slice's time in service; 1: "
                                            "exponential.")] = None,
    repair: Annotated[str, _setting("1s", "Until an interrupted slice, or a spare, is there, on average; several by "
                                    "commas.")] = "",
    repair_shape: Annotated[float | None, _setting("1", "Of its exponentiated Weibull distribution; below 1 a few "
                                                   "repairs take very long.")] = None,
    repair_exponent: Annotated[float | None, _setting("1", "Of the same; above 1 hardly any is over at once.")] = None,
    process: Annotated[str, typer.Option(help="By which slices fail, of that mean, as in '{relapse: 30%, burst: 20%}', "
                                         "or a YAML file with such a mapping.", **_HELP)] = "",
    trace: Annotated[Path | None, typer.Option(help="A record of failures: each slice fails as its nodes do. A CSV "
                                               "with node,start,end,class, or InfiniteHBD's JSON.", **_HELP)] = None,
    trace_nodes: Annotated[int | None, typer.Option(min=1, help="Of the trace's cluster, with those that never failed; "
                                                    "by default those that it names.", **_HELP)] = None,
    how: Annotated[str, _setting("fitted", "How the trace is used: fitted (a process like it), weeks (its weeks, "
                                 "drawn), replay (as it was).")] = "",
    detection: Annotated[str, _setting("0s", "Until a loss is noticed.")] = "",
    shrink: Annotated[str, _setting("17.7s", "For which a group stands to go on without a slice.")] = "",
    grow: Annotated[str, _setting("17.7s", "For which it stands to take one back.")] = "",
    grow_within: Annotated[str, _setting("173s", "Slices that return within so long of the first are taken back "
                                         "together.")] = "",
    recovery: Annotated[str, _setting("60s", "For which a learner stands that had lost all its slices.")] = "",
    restart: Annotated[str, _setting("90.8s", "For which a rigid (data_parallel) job stands, on average.")] = "",
    restart_shape: Annotated[float | None, _setting("0.85", "Of its Weibull distribution; a loss meanwhile makes all "
                                                    "begin anew. 0: it always takes as long.")] = None,
    spares: Annotated[int | None, typer.Option(help="Spare slices of a rigid job; by default always one more.",
                                               **_HELP)] = None,
    checkpoint_every: Annotated[str, _setting("0s", "Of a rigid job: what it made since is lost.")] = "",
    checkpoint_cost: Annotated[str, _setting("0s", "For which it stands to make one.")] = "",
    spread: Annotated[float | None, _setting("0", "Share by which a chip's step takes longer, exponential, on "
                                             "average.")] = None,
    straggler_mtbf: Annotated[str, _setting("0s", "Mean time until a chip becomes a straggler.")] = "",
    straggler_for: Annotated[str, _setting("60s", "For which it is one, on average.")] = "",
    straggler_speed: Annotated[float | None, _setting("0.5", "Of a straggler, as a share.")] = None,
    days: DaysOption = 30.0,
    replications: Annotated[int, typer.Option(min=1, max=100_000, help="Of each fleet, with other chance.")] = 100,
    seed: SeedOption = 0,
    jobs: JobsOption = 0,
    workers: WorkersOption = "local",
    address: AddressOption = "",
    plot: Annotated[Path | None, typer.Option(help="Draw goodput over what there are several of: an .svg, or a .png "
                                              "(extra png).")] = None,
    as_scenario: Annotated[Path | None, typer.Option(help="Write a scenario that says whether it is so: this fleet, "
                                                     "scaled to a run on one machine.")] = None,
    step_time: Annotated[str, typer.Option(help="Of an inner step of the fleet: --as-scenario keeps failures for each "
                                           "step of a learner.")] = "1s",
    as_json: JsonOption = False,
) -> None:
    """Predict which share of a fleet's time is useful training, while its chips fail and come back."""
    if context.invoked_subcommand:
        return
    drawable(plot)
    from diloco_chaos.chaos.fleet import tables
    from diloco_chaos.harness.fleet.fleet import Fleet
    given, console = options_of(context, Fleet), Console()
    if paper:
        from diloco_chaos.harness.fleet.paper import PUBLISHED, fitted, fleet_of
        _alone("fleet", [*given, *(name for name in ("plot", "as_scenario") if context.params[name] is not None)])
        base = fitted()
        summaries = simulated([fleet_of(cell, base) for cell in PUBLISHED], days, replications, seed,
                               (jobs, workers, address))
        if as_json:
            print_json(tables.published_document(base, summaries, days, replications, seed))
        else:
            tables.show_published(base, summaries, days, replications, console)
        return
    summaries = simulated(_fleets(with_failures(given)), days, replications, seed, (jobs, workers, address))
    _trains(summaries)
    if plot is not None:
        _draw(summaries, plot)
    if as_scenario is not None:
        _write(summaries, as_scenario, step_time)
    if as_json:
        print_json(tables.document(summaries, days, replications, seed))
    else:
        tables.show(summaries, days, replications, console)


@group.command(epilog="Example: `diloco-chaos fleet bandwidth --parameters 12B --sites 4 --step-time 2s --link 5`")
def bandwidth(
    context: typer.Context,
    parameters: Annotated[str, setting("12B", "Of the model, as in 12B.")] = "",
    step_time: Annotated[str, setting("2s", "Of an inner step, as in 2s.")] = "",
    sites: Annotated[int | None, setting("8", "That train it together; a learner each.")] = None,
    sync_every: Annotated[int | None, setting("24", "H, steps between two merges of a fragment.")] = None,
    fragments: Annotated[int | None, setting("24", "P.")] = None,
    overlap: Annotated[float | None, setting("2", "tau, steps that an exchange may take.")] = None,
    gradients: Annotated[str, setting("int4", "How outer gradients travel: float32, bfloat16, int8 or int4.")] = "",
    broadcasts: Annotated[str, setting("int4", "How what was merged travels: the same.")] = "",
    hidden: Annotated[float | None, setting("1", "Share of a step in which gradients of data parallelism may "
                                            "travel.")] = None,
    link: Annotated[float | None, typer.Option(min=1e-6, help="Gbit/s that a site has each way: how much gets through "
                                               "in time.")] = None,
    paper: Annotated[bool, typer.Option("--paper", help="The published pairs, and what they assume.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Gbit/s that training asks of the links between sites, for nobody to wait for them."""
    from diloco_chaos.chaos.fleet import bandwidth_table
    from diloco_chaos.harness.fleet.bandwidth import PUBLISHED, Exchange
    given = options_of(context, Exchange)
    if paper:
        _alone("exchange", [*given, *(["link"] if link is not None else [])])
        print_json(bandwidth_table.published_document(PUBLISHED)) if as_json else bandwidth_table.show_published(
            PUBLISHED, Console())
        return
    exchange = read(Exchange, given)
    print_json(bandwidth_table.document(exchange, link)) if as_json else bandwidth_table.show(exchange, link, Console())


def _alone(what: str, given: list[str]) -> None:
    """Raises where there is more beside --paper."""
    if given:
        raise Failure(f"--paper: the {what} is the published one: leave out {', '.join(map(written, given))}, or "
                      f"--paper", 2)


def _fleets(given: dict[str, Any]) -> list[Fleet]:
    """Return the fleets that the options describe, in the order of the options; `decoupled` alone varies learners.

    Raises:
        Failure: an option is wrong; the message has a line for each problem.
    """
    from typing import get_args

    from diloco_chaos.harness.fleet.fleet import Fleet, Mode
    several = {name: parts(str(given.get(name, ""))) for name in _SEVERAL}
    several["mode"] = several["mode"] or list(get_args(Mode))
    fleets, wrong = [], []
    for values in product(*(several[name] or [""] for name in _SEVERAL)):
        options = given | {name: value for name, value in zip(_SEVERAL, values, strict=True) if value}
        if options.get("mode") != "decoupled":
            options = {name: value for name, value in options.items() if name not in ("learners", "quorum")}
        try:
            fleets.append(read(Fleet, options))
        except Failure as failure:
            wrong += str(failure).splitlines()
    if wrong:
        raise Failure("\n".join(dict.fromkeys(wrong)), 2)
    return list(dict.fromkeys(fleets))


def simulated(fleets: list[Fleet], days: float, replications: int, seed: int, where: tuple[int, str, str]
               ) -> list[Summary]:
    """Return a summary of each fleet; `where`: processes, kind of workers, and address.

    Raises:
        Failure: one can't be simulated.
    """
    from diloco_chaos.harness.fleet.replications import TRIALS, FleetError, replicated
    with at_work(TRIALS, where) as workers:
        try:
            return replicated(fleets, days * _DAY_S, replications, seed, workers)
        except FleetError as error:
            raise Failure(str(error), 2) from error


def _write(summaries: list[Summary], file: Path, step_time: str) -> None:
    """A scenario of the only fleet that there is."""
    from diloco_chaos.chaos.fleet.as_scenario import scenario_of
    from diloco_chaos.chaos.fleet.tables import count_words, way
    from diloco_chaos.harness.base.units import long_seconds, show_long
    from diloco_chaos.harness.fleet.scaled import ScaledError
    if len(summaries) > 1:
        raise Failure(f"--as-scenario: these are {len(summaries)} fleets: name one --mode, and one of everything "
                      f"else", 2)
    fleet, goodput = summaries[0].fleet, summaries[0].goodput.mean
    try:
        made = scenario_of(fleet, long_seconds(step_time) or math.inf, count_words(fleet.chips), way(fleet), goodput)
    except ScaledError as error:
        raise Failure(f"--as-scenario: {error}", 2) from error
    except ValueError as error:
        raise Failure(f"--step-time: {error}", 2) from error
    file.write_text(made.text)
    print(f"{file}: goodput {made.goodput:.1%} is predicted of {show_long(made.run.lasts)}, "
          f"{goodput:.1%} of the fleet; `{called()} run {file} --seed {made.seed} --on simulated`", file=sys.stderr)


def _draw(summaries: list[Summary], file: Path) -> None:
    from diloco_chaos.chaos.fleet.tables import plotted
    svg = plotted(summaries)
    if not svg:
        raise Failure("--plot: there is nothing to draw goodput over: give several --chips, --learners or --repair", 2)
    draw(svg, file)


def _trains(summaries: list[Summary]) -> None:
    """Raises where one of them never does."""
    from diloco_chaos.harness.fleet.replications import NOTHING
    never = [summary.fleet for summary in summaries if summary.goodput.mean < NOTHING]
    if never:
        raise Failure("\n".join(map(_why_never, never)), 2)


def _why_never(fleet: Fleet) -> str:
    from diloco_chaos.chaos.fleet.tables import count_words, way
    from diloco_chaos.harness.base.units import show_long
    words = f"{count_words(fleet.chips)} chips, {way(fleet)}: nothing is ever trained: "
    away = round(fleet.slices * (1 - fleet.in_service))
    if fleet.mode == "data_parallel" and fleet.spares is not None and away > fleet.spares:
        return f"{words}{away} slices are away on average, and it has {fleet.spares} to spare; take more --spares"
    return (f"{words}a group is interrupted every {show_long(fleet.groups / fleet.interruptions_per_s)}, and that "
            f"costs it more; take a longer --mtbf, smaller slices, or more learners")
