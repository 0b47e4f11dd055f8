"""The commands that sweep links, deaths and the grace window under virtual time: `fleet wan`, `fleet failed-share`,
`fleet grace`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console

from diloco_chaos.chaos.commands.common import Failure, JsonOption, at_work, print_json
from diloco_chaos.chaos.commands.options import AddressOption, JobsOption, asked_of, draw, drawable, setting
from diloco_chaos.chaos.fleet.command import group

if TYPE_CHECKING:
    from diloco_chaos.chaos.fleet.sweeps.cell import Cell, Measured
    from diloco_chaos.harness.base.workers import Workers

Asked = TypeVar("Asked")
Rows = TypeVar("Rows")
_Mode = Annotated[str, typer.Option(help="data_parallel, elastic_data_parallel, diloco, streaming, decoupled; several "
                                    "by commas, all by default.")]
_Runs = Annotated[int | None, setting("5", "Of each cell, with other seeds.")]
_Seed = Annotated[int | None, setting("0", "Of all chance.")]
_Where = Annotated[str, typer.Option(help="Where runs are made: local, or ray (a Ray cluster).")]
_Plot = Annotated[Path | None, typer.Option(help="Draw it: an .svg, or a .png (extra png).")]


@group.command(epilog="Example: `diloco-chaos fleet wan --parameters 12B --rtt 100ms --rate 1,2,5,20,100`")
def wan(
    context: typer.Context,
    parameters: Annotated[str, setting("12B", "Of the model, as in 12B; several by commas.")] = "",
    rtt: Annotated[str, setting("1ms,100ms,300ms", "Round trip between a learner and the syncer, as in 100ms; several "
                                "by commas.")] = "",
    rate: Annotated[str, setting("1,2,5,20,100,400", "Gbit/s each way; several by commas.")] = "",
    link: Annotated[str, setting("own,shared", "own (each learner has the rate), shared (all have it together), or "
                                 "both by commas.")] = "",
    mode: _Mode = "",
    sites: Annotated[int | None, setting("4", "Learners, each at a site of its own.")] = None,
    step_time: Annotated[str, setting("2s", "Of an inner step, as in 2s.")] = "",
    seed: _Seed = None,
    jobs: JobsOption = 0,
    workers: _Where = "local",
    address: AddressOption = "",
    plot: _Plot = None,
    as_json: JsonOption = False,
) -> None:
    """How much of its own pace each mode keeps behind links of so long a round trip and so low a rate."""
    from diloco_chaos.chaos.fleet import sweep_tables
    from diloco_chaos.chaos.fleet.sweeps.wan import Wan, swept
    drawable(plot)
    asked = asked_of(context, Wan)
    if plot is not None and max(map(len, (asked.parameters, asked.rtt, asked.link))) > 1:
        raise Failure("--plot: it is drawn over the rate: give one of --parameters, of --rtt and of --link", 2)
    rows = _swept(swept, asked, (jobs, workers, address))
    _print_output(sweep_tables.wan_document(asked, rows) if as_json
                  else lambda console: sweep_tables.show_wan(asked, rows, console))
    if plot is not None:
        draw(sweep_tables.plotted_wan(asked, rows), plot)


@group.command(name="failed-share", epilog="Example: `diloco-chaos fleet failed-share --learners 8 --gone 0%,25%,50%`")
def failed_share(
    context: typer.Context,
    learners: Annotated[int | None, setting("16", "M.")] = None,
    gone: Annotated[str, setting("0%,12.5%,25%,37.5%,50%", "Shares of them that are killed for good, as in 25%; "
                                 "several by commas.")] = "",
    mode: _Mode = "",
    runs: _Runs = None,
    seed: _Seed = None,
    jobs: JobsOption = 0,
    workers: _Where = "local",
    address: AddressOption = "",
    plot: _Plot = None,
    as_json: JsonOption = False,
) -> None:
    """How much is still trained, and how well, while a share of the learners is gone."""
    from diloco_chaos.chaos.fleet import sweep_tables
    from diloco_chaos.chaos.fleet.sweeps.failed_share import FailedShare, swept
    drawable(plot)
    asked = asked_of(context, FailedShare)
    rows = _swept(swept, asked, (jobs, workers, address))
    _print_output(sweep_tables.failed_document(asked, rows) if as_json
                  else lambda console: sweep_tables.show_failed(asked, rows, console))
    if plot is not None:
        draw(sweep_tables.plotted_failed(asked, rows), plot)


@group.command(epilog="Example: `diloco-chaos fleet grace --gamma 0,0.2,0.8 --rate 1.2,2,20`")
def grace(
    context: typer.Context,
    gamma: Annotated[str, setting("0,0.05,0.1,0.2,0.4,0.8", "Shares of the slack that the grace window may use, as in "
                                  "0.8; several by commas.")] = "",
    rate: Annotated[str, setting("1.2,2,5,20", "Gbit/s of a learner, each way; several by commas.")] = "",
    learners: Annotated[int | None, setting("8", "M.")] = None,
    quorum: Annotated[int | None, setting("1", "K.")] = None,
    parameters: Annotated[str, setting("12B", "Of the model, as in 12B.")] = "",
    rtt: Annotated[str, setting("30ms", "Round trip between a learner and the syncer, as in 30ms.")] = "",
    step_time: Annotated[str, setting("2s", "Of an inner step, as in 2s.")] = "",
    variance: Annotated[float | None, setting("0.2", "Share by up to which a step takes more or less.")] = None,
    runs: _Runs = None,
    seed: _Seed = None,
    jobs: JobsOption = 0,
    workers: _Where = "local",
    address: AddressOption = "",
    as_json: JsonOption = False,
) -> None:
    """What the grace window brings: contributors and loss, by gamma and by the rate of the links."""
    from diloco_chaos.chaos.fleet import sweep_tables
    from diloco_chaos.chaos.fleet.sweeps.grace import Grace, swept
    asked = asked_of(context, Grace)
    rows = _swept(swept, asked, (jobs, workers, address))
    _print_output(sweep_tables.grace_document(asked, rows) if as_json
                  else lambda console: sweep_tables.show_grace(asked, rows, console))


def _swept(sweep: Callable[[Asked, Workers[Cell, Measured]], Rows], asked: Asked, where: tuple[int, str, str]
           ) -> Rows:
    from diloco_chaos.chaos.fleet.sweeps.cell import CELLS
    with at_work(CELLS, where) as workers:
        return sweep(asked, _Watched(workers))


class _Watched:
    """Workers of whom people see how far they are."""

    def __init__(self, workers: Workers[Cell, Measured]) -> None:
        self._workers = workers

    def run(self, jobs: Sequence[Cell]) -> Iterator[Measured]:
        """Yield the results as they come."""
        from rich.progress import track
        yield from track(self._workers.run(jobs), "running", len(jobs), console=Console(stderr=True), transient=True)

    def close(self) -> None:
        """They end."""
        self._workers.close()


def _print_output(output: dict[str, Any] | Callable[[Console], None]) -> None:
    print_json(output) if isinstance(output, dict) else output(Console())
