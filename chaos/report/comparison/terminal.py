"""A comparison in a terminal of eighty columns."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from diloco_chaos.chaos.report.comparison.model import Call, Cell, Comparison, Pairing, Row
from diloco_chaos.chaos.report.comparison.words import (
    CALLS,
    HOW_TO_READ,
    MARKS,
    ONLY,
    between,
    change,
    counted,
    headline,
    missing,
    notes,
    pairs,
    value,
    verdicts,
)
from diloco_chaos.harness.base.units import shortened

_WIDEST, _NAME, _CELL, _FIGURE = 100, 20, 10, 17
_STYLES: dict[Call, str] = {"better": "bold green", "worse": "bold red", "perhaps": "yellow", "no": "dim",
                            "untold": "dim"}


def show(comparison: Comparison, console: Console) -> None:
    """Print each way beside the first: what it is better in, then all figures."""
    width = min(console.width, _WIDEST)
    if comparison.interrupted:
        console.print(comparison.interrupted, style="yellow", highlight=False)
    for line in comparison.stopped:
        console.print(Text(line, "bold red"), soft_wrap=True)
    for pairing in comparison.told:
        _lead(pairing, comparison.place, console, width)
        console.print(_table(pairing), width=width)
    for line in HOW_TO_READ if comparison.told else ():
        console.print(line, style="dim", highlight=False, width=width)
    for line in notes(comparison.told):
        console.print(line, style="yellow", markup=False, highlight=False, width=width)
    for line in comparison.slower:
        console.print(Text(f"✗ {line}", "bold red"), width=width)


def _lead(pairing: Pairing, place: str, console: Console, width: int) -> None:
    says = headline(pairing)
    console.print(Text.assemble("\n", (says.title, "bold")), width=width)
    for line in (f"{counted(pairing)}, {place}. {ONLY}", verdicts(pairing)):
        console.print(Text(line), width=width)
    for words, call in ((says.better, "better"), (says.worse, "worse"), (says.perhaps, "perhaps")):
        for line in words:
            text = Text.assemble((f"{MARKS[call]} {CALLS[call]}: ", _STYLES[call]), line)  # type: ignore[index]
            console.print(text, width=width)
    if says.same:
        console.print(Text(f"no difference shown: {says.same}", "dim"), width=width)
    if says.advice:
        console.print(Text(says.advice, "dim"), width=width)
    if pairing.second.says:
        console.print(Text(f"they differ in {'; '.join(pairing.second.says)}", "dim"), width=width)
    console.print()


def _table(pairing: Pairing) -> Table:
    table = Table(box=box.SIMPLE_HEAD, expand=True, padding=(0, 0, 0, 1), show_edge=False)
    table.add_column("", max_width=_FIGURE)
    for name in (pairing.first.name, pairing.second.name):
        table.add_column(Text(_broken(name)), justify="right", overflow="fold", min_width=_CELL)
    table.add_column("difference", justify="right", no_wrap=True)
    table.add_column("95% interval", justify="right", no_wrap=True)
    table.add_column("it is", no_wrap=True)
    for row in pairing.rows:
        style = _STYLES[row.call]
        table.add_row(Text(row.name), _cell(row, row.first), _cell(row, row.second),
                      _lines(change(row), pairs(row, pairing)), between(row),
                      Text(CALLS[row.call], style))
    return table


def _cell(row: Row, cell: Cell) -> Text:
    return _lines(value(row, cell), missing(cell))


def _lines(*lines: str) -> Text:
    return Text("\n".join(filter(None, lines)))


def _broken(name: str) -> str:
    """A way's name as a column's head, on two lines where it is long."""
    return shortened(name, _NAME).replace("=", "\n=", len(name) > _CELL)
