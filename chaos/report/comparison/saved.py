"""A comparison in a folder of its own: compare.json with all that was measured, compare.html, and compare.md for a pull
request. compare.json serves as a baseline later."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from diloco_chaos.chaos.evidence.run_folder import new_name
from diloco_chaos.chaos.report.comparison.markdown import comparison_markdown
from diloco_chaos.chaos.report.comparison.model import Comparison, Row
from diloco_chaos.chaos.report.comparison.page import comparison_html
from diloco_chaos.chaos.report.comparison.words import headline, notes
from diloco_chaos.chaos.report.saved import add_to_ci_page
from diloco_chaos.harness.base.errors import UserError

NAME = "compare"
SCHEMA = 1


class NotWrittenError(UserError):
    """A comparison that can't be written where it should be."""


def document(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON's types: what is called, every figure, and what each run measured."""
    return {"schema_version": SCHEMA, "scenario": comparison.ways[0].scenario, "place": comparison.place,
            "exit_code": comparison.exit_code, "interrupted": comparison.interrupted,
            "stopped": comparison.stopped, "slower": comparison.slower,
            "pairs": [{"first": pairing.first.name, "second": pairing.second.name, "seeds": pairing.seeds,
                       "says": asdict(headline(pairing)), "rows": [_row(row) for row in pairing.rows],
                       "not_told": pairing.not_told} for pairing in comparison.pairings],
            "notes": notes(comparison.pairings), "ways": [way.model_dump(mode="json") for way in comparison.ways]}


def folder_for(out: Path | None, runs: Path, scenario: str) -> Path:
    """Return the folder that a comparison is written to: a new one in `runs`, unless `out` says which.

    Raises:
        NotWrittenError: it can't be made.
    """
    path = out or runs / new_name(f"{NAME}-{scenario}")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotWrittenError(f"{path}: can't be made: {error.strerror}") from error
    return path


def write(folder: Path, comparison: Comparison) -> None:
    """Write all forms.

    Raises:
        NotWrittenError: there is no room, or no right.
    """
    text = comparison_markdown(comparison)
    forms = {"json": json.dumps(document(comparison), indent=1) + "\n", "md": text,
             "html": comparison_html(comparison)}
    try:
        for form, said in forms.items():
            (folder / f"{NAME}.{form}").write_text(said)
    except OSError as error:
        raise NotWrittenError(f"{error.filename}: can't be written: {error.strerror}") from error
    add_to_ci_page(text)


def _row(row: Row) -> dict[str, Any]:
    return {"name": row.name, "kind": row.kind, "unit": row.unit, "more_is_better": row.more_is_better,
            "call": row.call, "first": asdict(row.first), "second": asdict(row.second),
            "difference": row.difference.estimate and row.difference.estimate._asdict(),
            "chance": row.difference.chance}
