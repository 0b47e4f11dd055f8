"""Pieces that the live view and the report both draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from rich.columns import Columns
from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from diloco_chaos.chaos.evidence.timeline import LOOKS, Lanes

_NAME = 10
_CALM = {"starting", "training", "merging", "serving", "done"}
"""What a node does while nothing is wrong with it."""


def lanes(view: Lanes, start: float, end: float, width: int, until: float | None = None, most: int = 0) -> Text:
    """One line per node, and one for the faults; nothing is drawn after `until`. Where there are more than `most` nodes
    (0: as many as there are) those that are in trouble are drawn, then those that were, and the others are counted."""
    text = Text()
    drawn = _drawn(view, most)
    columns = width - _NAME - 1
    shown = columns if until is None or end <= start else round(columns * min(1.0, (until - start) / (end - start)))
    for node in drawn:
        text.append(f"{node:<{_NAME}} ")
        for state, group in groupby(view.row(node, start, end, columns)[:shown]):
            text.append(LOOKS[state].mark * len(list(group)), style=LOOKS[state].colour)
        text.append("\n")
    if folded := Counter(lane.now for node, lane in view.nodes.items() if node not in drawn):
        words = ", ".join(f"{count} {state}" for state, count in folded.most_common())
        text.append(f"{'others':<{_NAME}} {words}\n", style="dim")
    text.append(f"{'faults':<{_NAME}} ")
    text.append(_marks(view, start, end, columns), style="bold red")
    return text


def _drawn(view: Lanes, most: int) -> list[str]:
    """The nodes that have a line, in their own order."""
    if not most or len(view.nodes) <= most:
        return list(view.nodes)

    def trouble(node: str) -> tuple[bool, bool]:
        lane = view.nodes[node]
        return lane.now in _CALM, all(state in _CALM for _, state in lane.changes)
    chosen = set(sorted(view.nodes, key=trouble)[:max(1, most - 1)])  # one line says what the others do
    return [node for node in view.nodes if node in chosen]


def windows(name: str, times: Sequence[tuple[float, float]], start: float, end: float, width: int) -> Text:
    """A line below the lanes on which these times are marked."""
    columns, span = width - _NAME - 1, max(end - start, 1e-9)
    row = [" "] * columns
    for left, right in times:
        first, last = (min(columns - 1, max(0, int((t - start) / span * columns))) for t in (left, right))
        row[first:last + 1] = "!" * (last + 1 - first)
    return Text.assemble(f"{name:<{_NAME}} ", ("".join(row), "yellow"))


def _marks(view: Lanes, start: float, end: float, columns: int) -> str:
    row = [" "] * columns
    for t, name, _ in view.marks:
        at = min(columns - len(name), max(0, int((t - start) / max(end - start, 1e-9) * columns)))
        while any(cell != " " for cell in row[max(0, at - 1):at + len(name)]) and at + len(name) < columns:
            at += 1
        row[at:at + len(name)] = name
    return "".join(row[:columns])


def legend(view: Lanes) -> Padding:
    """The marks of the states that occur, under the lanes, on as many lines as they need."""
    seen = {state for lane in view.nodes.values() for _, state in lane.changes} - {"done"}
    return _named((look.mark, look.colour, state) for state, look in LOOKS.items() if state in seen)


def _named(marks: Iterable[tuple[str, str, str]]) -> Padding:
    """(mark, colour, name) of each, on as many lines as they need; no line ends between a mark and its name."""
    named = [Text.assemble((mark, colour), (f" {name}", "dim"), no_wrap=True) for mark, colour, name in marks]
    return Padding(Columns(named, padding=(0, 2, 0, 0)), (0, 0, 0, _NAME + 1))


def scale(start: float, end: float, zero: float, width: int) -> Text:
    """Seconds since the steady state, under the lanes."""
    columns = width - _NAME - 1
    row = [" "] * columns
    span = max(end - start, 1e-9)
    step = next((step for step in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600) if span / step <= 8), 1800)
    second = -int((zero - start) // step) * step
    while zero + second <= end:
        label = f"{second} s"
        at = min(int((zero + second - start) / span * columns), columns - len(label))
        if at >= 0 and "".join(row[max(0, at - 1):]).isspace():  # the last one may have no room beside the one before
            row[at:at + len(label)] = label
        second += step
    return Text(" " * (_NAME + 1) + "".join(row).rstrip(), style="dim")


@dataclass(frozen=True)
class Curve:
    """One line of a chart: points by x, drawn with a mark that tells it without colour."""

    label: str
    mark: str
    colour: str
    points: Sequence[tuple[float, float]]


def chart(curves: Sequence[Curve], width: int, height: int, unit: str) -> Group:
    """Curves over a common x axis; where two meet, the first one named is on top."""
    drawn = [point for curve in curves for point in curve.points]
    left, right = min(x for x, _ in drawn), max(x for x, _ in drawn)
    low, high = min(y for _, y in drawn), max(y for _, y in drawn)
    columns, across, up = width - _NAME - 1, max(right - left, 1e-9), max(high - low, 1e-9)
    grid: list[list[Curve | None]] = [[None] * columns for _ in range(height)]
    for curve in reversed(curves):
        for x, y in _dense(curve.points, columns):
            row = round((high - y) / up * (height - 1))
            grid[row][min(columns - 1, int((x - left) / across * columns))] = curve
    text = Text()
    for index, row_cells in enumerate(grid):
        level = high - up * index / max(1, height - 1)
        text.append(f"{level:>{_NAME - 1}.2f} ┤" if index % 3 == 0 or index == height - 1 else " " * _NAME + "│", "dim")
        for cell in row_cells:
            text.append(cell.mark if cell else " ", cell.colour if cell else "")
        text.append("\n")
    ends = (f"{left:.4g}", f"{right:.4g} {unit}")
    text.append(" " * _NAME + "└" + "─" * columns + "\n", "dim")
    text.append(" " * (_NAME + 1) + ends[0] + ends[1].rjust(columns - len(ends[0])), "dim")
    return Group(text, _named((curve.mark, curve.colour, curve.label) for curve in curves))


def _dense(points: Sequence[tuple[float, float]], columns: int) -> Iterator[tuple[float, float]]:
    """Points along the straight lines between those given, close enough to leave no gap."""
    yield from points[:1]
    for (x0, y0), (x1, y1) in pairwise(points):
        for part in range(1, columns + 1):
            yield x0 + (x1 - x0) * part / columns, y0 + (y1 - y0) * part / columns
