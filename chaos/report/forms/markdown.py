"""A report in Markdown, short enough for a page of CI: what failed and why, what passed, what to type next."""

from __future__ import annotations

import re
from collections.abc import Sequence

from diloco_chaos.chaos.report.costs import cells, in_words
from diloco_chaos.chaos.report.model import CheckTold, FaultTold, ReportModel
from diloco_chaos.chaos.report.story import MARKS
from diloco_chaos.chaos.report.suite import COLUMNS, EXPECTED, SuiteRow
from diloco_chaos.harness.base.units import show_seconds

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&])")
_MOST_CHECKS, _MOST_FAULTS, _ROOM = 8, 10, 28
"""The last: lines for all that did not hold."""
_MOST_ROWS, _MOST_WARNINGS = 40, 3


def report_markdown(model: ReportModel) -> str:
    """Return the report as Markdown, under 60 lines."""
    lines = [f"### {model.verdict} {escaped(model.scenario)}", "",
             ", ".join([escaped(model.trainer), f"seed {model.seed}", *filter(None, [escaped(model.place)]),
                        f"plan `{model.plan[:12]}`", show_seconds(model.took)])]
    lines += ["", f"**To change:** {escaped(model.change)}"] if model.change else []
    lines += ["", escaped(model.why)] if model.why else []
    for warning in model.warnings[:_MOST_WARNINGS]:
        lines += ["", f"Warning: {escaped(warning)}"]
    troubled = model.failed + model.unknown
    shown = troubled[:_MOST_CHECKS]
    for check in shown:
        lines += ["", *_troubled(check, _ROOM // len(shown) - 2)]
    if len(troubled) > _MOST_CHECKS:
        lines += ["", f"and {len(troubled) - _MOST_CHECKS} more"]
    passed = [check.name for check in model.checks if check.verdict == "passed"]
    lines += ["", f"{len(passed)} passed: {escaped(', '.join(passed))}"] if passed else []
    if model.faults:
        lines += ["", "| fault | from | to | noticed | recovered | ETTR | observed |", "|---|---|---|---|---|---|---|"]
        lines += [_fault_row(fault) for fault in model.faults[:_MOST_FAULTS]]
        if len(model.faults) > _MOST_FAULTS:
            lines.append(f"| | | | | | | and {len(model.faults) - _MOST_FAULTS} more |")
    if model.cost is not None:
        lines += ["", f"Cost of the faults: {escaped(in_words(model.cost))}"]
    if model.stacks:
        hung = escaped(", ".join(list(model.stacks)[:_MOST_FAULTS]))
        lines += ["", f"Hung at the end: {hung}; where they stood is in `stacks/` of the run's folder"]
    return "\n".join([*lines, "", "```", "# to look closer", model.commands.check, "# to repeat it",
                       model.commands.repeat, "```", ""])


def suite_markdown(rows: Sequence[SuiteRow]) -> str:
    """Several runs as a table; below it what did not hold."""
    passed, expected = (sum(row.verdict == word for row in rows) for word in ("PASSED", EXPECTED))
    also = f", {expected} failed as expected" if expected else ""
    lines = [f"### {passed} of {len(rows)} scenarios passed{also}", "", f"| {' | '.join(COLUMNS)} |",
             f"|{'---|' * len(COLUMNS)}"]
    lines += [f"| {' | '.join(map(escaped, row.cells))} |" for row in rows]
    troubled = [row for row in rows if row.why]
    lines += [""] if troubled else []
    lines += [f"- **{escaped(row.cells[0])}**: {escaped(row.why)}" for row in troubled[:_MOST_ROWS]]
    lines += [f"- and {len(troubled) - _MOST_ROWS} more"] if len(troubled) > _MOST_ROWS else []
    return "\n".join([*lines, ""])


def escaped(text: str) -> str:
    """Text of somebody else, on one line, that is text in Markdown too."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _troubled(check: CheckTold, most: int) -> list[str]:
    """Return a check's line and up to `most` lines below it: its causes, and for a third of them its evidence."""
    bound = f" (allowed: {escaped(check.bound)})" if check.bound else ""
    evidence = check.evidence[:most // 3 or not check.causes]
    lines = [*check.causes[:most - len(evidence)], *evidence]
    return [f"**{MARKS[check.verdict]} {escaped(check.name)}** {escaped(check.measured)}{bound}",
            *(f"- {escaped(line)}" for line in lines)]


def _fault_row(fault: FaultTold) -> str:
    start, end = ("-" if t is None else f"{t:.2f} s" for t in (fault.began, fault.ended))
    noticed, recovered, ettr, *_ = [""] * 3 if fault.cost is None else cells(fault.cost)
    return " | ".join([f"| {escaped(fault.id)}: {escaped(fault.requested)}", start, end, noticed, recovered, ettr,
                       f"{escaped(fault.observed)} |"])
