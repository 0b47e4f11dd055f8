"""The commands that read a failure trace: `fleet fit`, `fleet spares`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from diloco_chaos.chaos.commands.common import Failure, JsonOption, print_json
from diloco_chaos.chaos.commands.options import draw, drawable
from diloco_chaos.chaos.fleet.command import SeedOption, group
from diloco_chaos.chaos.fleet.failures import fitted_to, noted_trace

if TYPE_CHECKING:
    from diloco_chaos.harness.failures.fitting import Fitted
    from diloco_chaos.harness.failures.trace import Trace

FileArgument = Annotated[Path, typer.Argument(metavar="TRACE", help="A CSV with node,start,end,class, or "
                                              "InfiniteHBD's JSON.")]
NodesOption = Annotated[int | None, typer.Option("--nodes", min=1, help="Of the trace's cluster, with those that never "
                                                 "failed; by default those that it names.")]
Replications = Annotated[int, typer.Option("--replications", min=2, max=100_000, help="Of the trace's time, with other "
                                           "chance.")]


@group.command(epilog="Example: `diloco-chaos fleet fit faults.csv --nodes 400`")
def fit(
    file: FileArgument,
    nodes: NodesOption = None,
    replications: Replications = 100,
    seed: SeedOption = 0,
    plot: Annotated[Path | None, typer.Option(help="Draw quantiles of the trace against those of what was fitted: a "
                                              "file that ends in .svg or .png.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Fit a failure process to a trace, and say how well it fits, beside what exponential failures would say."""
    from diloco_chaos.chaos.fleet import trace_tables
    drawable(plot)
    trace = noted_trace(file, nodes)
    found = fitted_to(file, trace)
    if plot is not None:
        _draw(trace, found, replications, seed, plot)
    compared = trace_tables.compared(trace, found, replications, seed)
    if as_json:
        print_json(trace_tables.document(trace, found, compared))
    else:
        trace_tables.show(trace, found, compared, Console())


def _draw(trace: Trace, found: Fitted, replications: int, seed: int, file: Path) -> None:
    from diloco_chaos.chaos.fleet.trace_plot import plotted
    svg = plotted(trace, found, replications, seed)
    if not svg:
        raise Failure("--plot: the trace has too few outages to draw quantiles of", 2)
    draw(svg, file)


@group.command(epilog="Example: `diloco-chaos fleet spares faults.csv --nodes 400 --job 1000`")
def spares(
    file: FileArgument,
    nodes: NodesOption = None,
    job: Annotated[int | None, typer.Option(min=1, max=1_000_000, help="Nodes that the job needs; by default the "
                                            "trace's.")] = None,
    share: Annotated[float, typer.Option(min=0.5, max=0.99999, help="Of the time in which it is to have them.")] = 0.99,
    replications: Replications = 100,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """How many spare nodes it takes for a job to have its nodes nearly always."""
    from diloco_chaos.chaos.fleet import trace_tables
    trace = noted_trace(file, nodes)
    found = fitted_to(file, trace)
    wanted = trace_tables.spares_of(file, nodes, trace, found, job or trace.nodes, share, replications, seed)
    if as_json:
        print_json({"job": job or trace.nodes, "share": share, "replications": replications, "seed": seed,
                    "spares": {name: each._asdict() for name, each in wanted.items()}})
    else:
        trace_tables.show_spares(trace, wanted, job or trace.nodes, share, replications, Console())
