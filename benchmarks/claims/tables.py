"""Single cells of the tables in `docs/`, by the figure that they belong to."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from benchmarks.figures.anchors import ANCHOR


class TableError(Exception):
    """There is no such cell: one sentence, with what there is."""


class Tables:
    """All that stand below a figure's anchor."""

    def __init__(self, docs: Path) -> None:
        self._docs = docs

    def cell(self, figure: str, row: str, column: str, first: bool = False) -> str:
        """The text of the cell in the row that is called `row`, or begins so where none is, in the column whose title
        begins with `column`; a dagger follows where the figure is stale. `first`: of several such rows.

        Raises:
            TableError: there is none, or more than one.
        """
        if figure not in self._read:
            raise TableError(f"figure {figure}: no page has a table of it")
        (title, *rows), stale = self._read[figure]
        matches = [cells for cells in rows if cells[0] == row] or [cells for cells in rows if cells[0].startswith(row)]
        matches = matches[:1] if first else matches
        places = [place for place, name in enumerate(title) if name.startswith(column)]
        if len(matches) != 1 or len(places) != 1:
            raise TableError(f"figure {figure}: {len(matches)} rows begin with {row!r}, and {len(places)} columns with "
                             f"{column!r}; there are {' | '.join(cells[0] for cells in rows)}; {' | '.join(title)}")
        return matches[0][places[0]] + (" †" if stale else "")

    @cached_property
    def _read(self) -> dict[str, tuple[list[list[str]], bool]]:
        tables = {}
        for page in sorted(self._docs.glob("*.md")):
            text = page.read_text()
            for anchor in ANCHOR.finditer(text):
                if table := _table(text[anchor.end() + 1:].splitlines()):
                    tables[anchor["name"]] = table, bool(anchor["dagger"])
        return tables


def _table(lines: list[str]) -> list[list[str]]:
    """The rows of the table that these lines begin with, without the rule below its title."""
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().replace("**", "") for cell in line.strip().strip("|").split("|")])
    return rows[:1] + rows[2:]
