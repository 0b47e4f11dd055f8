"""A comparison in Markdown, short enough for a pull request."""

from __future__ import annotations

from diloco_chaos.chaos.report.comparison.model import Cell, Comparison, Pairing, Row
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
from diloco_chaos.chaos.report.forms.markdown import escaped


def comparison_markdown(comparison: Comparison) -> str:
    """Return what makes CI fail; then each way beside the first: what it is better in, and all figures."""
    lines = [f"**✗ {escaped(line)}**\n" for line in comparison.alarms]
    for pairing in comparison.told:
        lines += _lead(pairing, comparison.place)
        names = [escaped(way.name) for way in (pairing.first, pairing.second)]
        lines += [f"| | {names[0]} | {names[1]} | difference | 95% interval | it is |", "|---|--:|--:|--:|--:|---|"]
        lines += [_row(row, pairing) for row in pairing.rows]
        lines.append("")
    if not comparison.told:
        return "\n".join(lines)
    lines += ["<details><summary>How to read it</summary>", "", *(f"- {line}" for line in HOW_TO_READ),
              *(f"- {escaped(line)}" for line in notes(comparison.told)), "", "</details>", ""]
    return "\n".join(lines)


def _lead(pairing: Pairing, place: str) -> list[str]:
    says = headline(pairing)
    lines = [f"### {escaped(says.title)}", "", escaped(f"{counted(pairing)}, {place}; {verdicts(pairing)}. {ONLY}"), ""]
    lines += [f"- ✓ **better:** {escaped(line)}" for line in says.better]
    lines += [f"- ✗ **worse:** {escaped(line)}" for line in says.worse]
    lines += [f"- ? **perhaps:** {escaped(line)}" for line in says.perhaps]
    lines += [f"- no difference shown: {escaped(says.same)}"] if says.same else []
    lines += [f"- {escaped(says.advice)}"] if says.advice else []
    lines += [f"- they differ in {escaped('; '.join(pairing.second.says))}"] if pairing.second.says else []
    return [*lines, ""]


def _row(row: Row, pairing: Pairing) -> str:
    call = f"{MARKS[row.call]} {CALLS[row.call]}".strip()
    more = " ".join(filter(None, [change(row), pairs(row, pairing)]))
    cells = [escaped(row.name), _cell(row, row.first), _cell(row, row.second), more, between(row), call]
    return f"| {' | '.join(cells)} |"


def _cell(row: Row, cell: Cell) -> str:
    return " ".join(filter(None, [value(row, cell), f"({missing(cell)})" if missing(cell) else ""]))
