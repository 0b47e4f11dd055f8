"""The command that makes a planner's page of a fleet: `fleet report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diloco_chaos.chaos.commands.common import Failure
from diloco_chaos.chaos.commands.options import AddressOption, JobsOption, options_of, read, setting
from diloco_chaos.chaos.fleet.command import DaysOption, SeedOption, WorkersOption, group, simulated
from diloco_chaos.chaos.fleet.failures import fitted_to, with_failures

if TYPE_CHECKING:
    from diloco_chaos.harness.fleet.fleet import Fleet

_BOOTSTRAPPED = 20
"""Traces like the one given, to each of which a process is fitted."""


@group.command(epilog="Example: `diloco-chaos fleet report plan.html --chips 150k --mtbf 1y --cost-per-chip-hour 2.5`")
def report(
    context: typer.Context,
    page: Annotated[Path, typer.Argument(help="The page to write, as in plan.html.")],
    chips: Annotated[str, setting("1.2M", "How many, as in 1.2M.")] = "",
    learners: Annotated[int | None, setting("8", "M, of decoupled.")] = None,
    slice_chips: Annotated[str, setting("256", "Chips that one interruption takes away.")] = "",
    mtbf: Annotated[str, setting("1y", "Mean time between interruptions of a chip, as in 1y.")] = "",
    repair: Annotated[str, setting("1s", "Until an interrupted slice, or a spare, is there, on average.")] = "",
    detection: Annotated[str, setting("0s", "Until a loss is noticed.")] = "",
    shrink: Annotated[str, setting("17.7s", "For which a group stands to go on without a slice.")] = "",
    grow: Annotated[str, setting("17.7s", "For which it stands to take one back.")] = "",
    restart: Annotated[str, setting("90.8s", "For which a rigid job stands, on average.")] = "",
    checkpoint_every: Annotated[str, setting("0s", "Of a rigid job: what it made since is lost.")] = "",
    checkpoint_cost: Annotated[str, setting("0s", "For which it stands to make one; where none is said, the chart over "
                                            "it takes 10 s.")] = "",
    process: Annotated[str, typer.Option(help="By which slices fail, as in '{relapse: 30%}', or a YAML file.")] = "",
    trace: Annotated[Path | None, typer.Option(help="A record of failures, by which slices fail: a CSV or "
                                               "InfiniteHBD's JSON.")] = None,
    trace_nodes: Annotated[int | None, typer.Option(min=1, help="Of the trace's cluster.")] = None,
    cost_per_chip_hour: Annotated[float | None, typer.Option(min=0, help="What a chip costs, for an hour.")] = None,
    days: DaysOption = 30.0,
    replications: Annotated[int, typer.Option(min=2, max=100_000, help="Of each fleet, with other chance.")] = 20,
    seed: SeedOption = 0,
    jobs: JobsOption = 0,
    workers: WorkersOption = "local",
    address: AddressOption = "",
) -> None:
    """Make a page for planners: goodput over size, learners, repairs, spares and checkpoints, what a point is worth,
    and which assumption it hangs on."""
    from diloco_chaos.chaos.fleet.planner_page import planner_html
    from diloco_chaos.chaos.fleet.planning import Answer, Plan, wanted
    from diloco_chaos.harness.fleet.fleet import Fleet
    if not page.parent.is_dir() or page.is_dir():
        raise Failure(f"{page}: it is a folder; name a page in it, as in {page / 'plan.html'}" if page.is_dir() else
                      f"{page}: there is no folder {page.parent}; make it first", 2)
    given = options_of(context, Fleet)
    base = read(Fleet, with_failures(given))
    asked = wanted(base)
    fleets = [*(each.fleet for each in asked), *_like(base, given)]
    summaries = simulated(fleets, days, replications, seed, (jobs, workers, address))
    answers = [Answer(*each) for each in zip(asked, summaries, strict=False)]
    content = planner_html(Plan(base, answers, summaries[len(asked):], cost_per_chip_hour), days, replications)
    try:
        page.write_text(content)
    except OSError as error:
        raise Failure(f"{page}: {error.strerror}; name another page", 2) from error
    typer.echo(f"{page}: {len(summaries)} fleets, each {replications} times for {days:g} days")


def _like(base: Fleet, given: dict[str, Any]) -> list[Fleet]:
    """Return fleets that fail as traces like the one given."""
    from diloco_chaos.harness.failures.fitting import means
    from diloco_chaos.harness.failures.source import trace_of
    if not base.trace:
        return []
    trace, fleets = trace_of(Path(base.trace), base.trace_nodes), []
    for seed in range(_BOOTSTRAPPED):
        drawn = trace.resampled(seed)
        found, (in_service_s, away_s) = fitted_to(Path(base.trace), drawn), means(drawn)
        own = in_service_s * base.slice_chips
        mtbf, repair = (getattr(base, name) if name in given else drawn_s
                        for name, drawn_s in (("mtbf", own), ("repair", away_s)))
        fleets.append(base.model_copy(update={"mtbf": mtbf, "repair": repair,
                                              "process": found.process.at_pace(mtbf / own)}))
    return fleets
