"""What a fleet makes of its time, for people: tables, and the published one beside ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from diloco_chaos.chaos.report.forms.plot import PlottedLine, PlottedShare, plot_svg
from diloco_chaos.harness.base.units import show_long, show_seconds
from diloco_chaos.harness.fleet.closed_forms import goodput
from diloco_chaos.harness.fleet.fleet import Fleet
from diloco_chaos.harness.fleet.paper import (
    CHIPS,
    FITTED,
    PUBLISHED,
    UPTIME_FROM,
    PublishedCell,
    cell_of,
    fleet_of,
    rms,
)
from diloco_chaos.harness.fleet.replications import NOTHING, Estimate, Summary

_WHERE = {"away": "repair", "shrinking": "stop", "growing": "grow", "slow": "slow", "lost": "lost",
          "checkpointing": "save"}
"""State of a chip -> the word above its column."""
_MEANING = {"repair": "the slice is away", "stop": "the group stands because it lost a slice",
            "grow": "the group stands to take a slice back", "slow": "waiting for the slowest chip of the group",
            "lost": "work since the last checkpoint, made again", "save": "checkpoints"}
_OVER: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("chips", "chips", lambda value: count_words(value)), ("learners", "learners (M)", str),
    ("repair", "mean time of a repair", show_long))
"""Of these there may be several; the words at the axis, and how a value is shown."""
_TIMES = (0.5, 2.0)
_MARGIN = 0.03
"""How far from a published cell ours may be."""


def show(summaries: Sequence[Summary], days: float, replications: int, console: Console) -> None:
    """A row for each fleet, and what becomes of the rest of the time."""
    lost = [state for state in _WHERE if any(summary.states[state] >= NOTHING for summary in summaries)]
    table = table_of("chips", "mode", "goodput", "uptime", *(_WHERE[state] for state in lost), left="mode")
    for summary in summaries:
        fleet = summary.fleet
        table.add_row(count_words(fleet.chips), way(fleet), _share(summary.goodput), f"{summary.uptime.mean:.1%}",
                      *(_short_share(summary.states[state]) for state in lost))
    console.print(table)
    apart = sorted({1 / summary.fleet.interruptions_per_s for summary in summaries})
    between = " to ".join(dict.fromkeys(map(show_long, (apart[0], apart[-1]))))
    console.print(f"{replications} replications of {days:g} days; an interruption every {between}")
    for state in lost:
        console.print(f"  {_WHERE[state]:<7} {_MEANING[_WHERE[state]]}", style="dim", highlight=False)


def show_published(base: Fleet, summaries: Sequence[Summary], days: float, replications: int, console: Console
                   ) -> None:
    """`summaries`: of the published cells, in their order."""
    cells = list(zip(PUBLISHED, summaries, strict=True))
    table = table_of("chips", *map(count_words, CHIPS), left="chips", gap=0)
    for mode, learners in dict.fromkeys((cell.mode, cell.learners) for cell in PUBLISHED):
        row = [(cell, summary) for cell, summary in cells if (cell.mode, cell.learners) == (mode, learners)]
        table.add_row(way(row[0][1].fleet), *(_beside(cell, summary) for cell, summary in row))
    console.print("Goodput in percent, and how many points it is above the published number", style="bold")
    console.print("(Decoupled DiLoCo, arXiv 2604.21428)", style="dim")
    console.print(table)
    off = [100 * (summary.goodput.mean - cell.goodput) for cell, summary in cells]
    half = max(summary.goodput.half or 0.0 for summary in summaries)
    up = min(summary.uptime.mean for cell, summary in cells if cell.learners >= UPTIME_FROM)
    for line in (f"* fitted; all others are predicted. Off by {rms(off):.2f} points (rms), {max(map(abs, off)):.1f} at "
                 f"most",
                 f"{replications} replications of {days:g} days; 95% intervals of ± {100 * half:.1f} or less",
                 f"Uptime from M = {UPTIME_FROM} on: {up:.1%} or more (published: 100%)\n"):
        console.print(line, highlight=False)
    console.print("Parameters", style="bold")
    for line in _parameters(base):
        console.print(line, highlight=False)
    console.print("\nSensitivity  goodput of 1.2M chips by the closed forms, one parameter changed", style="bold")
    console.print(_sensitivity(base))


def _beside(cell: PublishedCell, summary: Summary) -> Text:
    """Ours, how far from the published number, and whether it was fitted."""
    off = summary.goodput.mean - cell.goodput
    return Text(f"{100 * summary.goodput.mean:.1f} {100 * off:+.1f}{'*' if cell in FITTED else ''}",
                style="red" if abs(off) > _MARGIN else "")


def _parameters(base: Fleet) -> Iterator[str]:
    yield f"  fitted     shrink, grow   {show_seconds(base.shrink):>8}  for which a group stands, each time"
    yield f"  fitted     grow_within    {base.grow_within:>6.0f} s  in which returns share a growth"
    yield f"  fitted     restart        {show_seconds(base.restart):>8}  for which a rigid job stands, on average"
    yield f"  given      mtbf           {show_long(base.mtbf):>8}  between two interruptions of a chip"
    yield f"  assumed    restart_shape  {base.restart_shape:>8g}  of the Weibull distribution of restarts"
    yield f"  assumed    repair         {show_seconds(base.repair):>8}  until a spare is there, on average"
    yield f"  assumed    slice_chips    {base.slice_chips:>8}  that one interruption takes away"


def _sensitivity(base: Fleet) -> Table:
    cells = [cell_of(1_200_000, "data_parallel"), cell_of(1_200_000, "elastic_data_parallel"),
             cell_of(1_200_000, "decoupled", 8)]
    table = table_of("", *(way(fleet_of(cell, base)) for cell in cells), left="")
    changes: list[tuple[str, dict[str, Any]]] = [("as fitted", {}), ("restart_shape 1", {"restart_shape": 1.0})]
    for name, keys in (("shrink, grow", ("shrink", "grow")), ("grow_within", ("grow_within",)),
                       ("restart", ("restart",)), ("mtbf", ("mtbf",)), ("slice_chips", ("slice_chips",))):
        changes += [(f"{name} x {times:g}", {key: type(getattr(base, key))(getattr(base, key) * times) for key in keys})
                    for times in _TIMES]
    for words, change in changes:
        changed = base.model_copy(update=change)
        table.add_row(words, *(f"{goodput(fleet_of(cell, changed)):.1%}" for cell in cells))
    return table


def table_of(*columns: str, left: str, gap: int = 1) -> Table:
    """Return a table with these columns, `gap` letters apart, of numbers: on the right but for the one that is called
    `left`."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap, 0, 0))
    for column in columns:
        table.add_column(column, justify="left" if column == left else "right", no_wrap=True)
    return table


def way(fleet: Fleet) -> str:
    """Return how a fleet trains, in words: of `decoupled` with how many learners, and which quorum where that is not
    one."""
    quorum = f", K = {fleet.quorum}" if fleet.quorum > 1 else ""
    return {"data_parallel": "data parallel", "elastic_data_parallel": "elastic data parallel",
            "decoupled": f"decoupled, M = {fleet.learners}{quorum}"}[fleet.mode]


def _short_share(value: float) -> str:
    return f"{max(0.0, value):.{1 if value < 0.0995 else 0}%}"


def _share(value: Estimate) -> str:
    return f"{value.mean:.1%}" + (f" ± {100 * value.half:.1f}" if value.half is not None else "")


def count_words(value: int) -> str:
    """12B, 1.2M, 150k, 4096."""
    for unit, size in (("B", 1_000_000_000), ("M", 1_000_000), ("k", 1_000)):
        if value >= size and value % (size // 100) == 0:
            return f"{value / size:g}{unit}"
    return str(value)


def plotted(summaries: Sequence[Summary]) -> str:
    """Draw goodput over the option that has several values (chips, learners or repair), as SVG, with a line for each
    combination of the others. Empty: no option has several values."""
    fleets = [summary.fleet for summary in summaries]
    over = next((axis for axis in _OVER if len({getattr(fleet, axis[0]) for fleet in fleets if axis[0] != "learners" or
                                                fleet.mode == "decoupled"}) > 1), None)
    if over is None:
        return ""
    name, words, shown = over
    lines: dict[str, list[PlottedShare]] = {}
    for summary in summaries:
        x, half = getattr(summary.fleet, name), summary.goodput.half or 0.0
        lines.setdefault(_but(summary.fleet, name, fleets), []).append(PlottedShare(x, summary.goodput.mean, half))
    return plot_svg("Goodput", words, [PlottedLine(label, sorted(points)) for label, points in lines.items()
                                       if name != "learners" or label.startswith("decoupled")],
                    lambda value: shown(type(getattr(fleets[0], name))(value)))


def _but(fleet: Fleet, name: str, fleets: Sequence[Fleet]) -> str:
    """Return a fleet's label without its value on the axis `name`."""
    words = [way(fleet) if name != "learners" or fleet.mode != "decoupled" else "decoupled"]
    words += [f"{shown(getattr(fleet, other))} {other}" for other, _, shown in _OVER if other not in (name, "learners")
              and len({getattr(candidate, other) for candidate in fleets}) > 1]
    return ", ".join(words)


def document(summaries: Sequence[Summary], days: float, replications: int, seed: int) -> dict[str, Any]:
    """The same for programs."""
    return {"days": days, "replications": replications, "seed": seed,
            "fleets": [summary.model_dump(mode="json") | {
                "interruptions_every_s": 1 / summary.fleet.interruptions_per_s} for summary in summaries]}


def published_document(base: Fleet, summaries: Sequence[Summary], days: float, replications: int, seed: int
                       ) -> dict[str, Any]:
    """Return the published table beside ours as a JSON object; times are in seconds."""
    cells = [{"published": cell.goodput, "off_by": summary.goodput.mean - cell.goodput, "fitted": cell in FITTED}
             for cell, summary in zip(PUBLISHED, summaries, strict=True)]
    content = document(summaries, days, replications, seed)
    content["fleets"] = [fleet | cell for fleet, cell in zip(content["fleets"], cells, strict=True)]
    return content | {"fitted": {"shrink_s": base.shrink, "grow_s": base.grow, "grow_within_s": base.grow_within,
                                 "restart_s": base.restart}}
