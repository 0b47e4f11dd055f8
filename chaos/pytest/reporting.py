"""What pytest tells of runs beside its own words: verdict and folder of each with `-v`, the pages of those that did not
pass, a table on the page of CI, and the page beside the test where pytest-html and Allure are used."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from diloco_chaos.chaos.report.suite import SuiteRow
    from diloco_chaos.chaos.runner.run import Result

RUN: pytest.StashKey[Result] = pytest.StashKey()
"""The run of a test."""
_OVER = pytest.StashKey[bool]()
"""Whether all tests have ended."""
_FIELD = "diloco_chaos_run"
"""Of a test's report: its row, as JSON, which other processes can have."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Every test that had a run bears its row, once."""
    report = yield
    result = item.stash.get(RUN, None)
    if result is not None and (report.when == "call" or (report.when == "setup" and not report.passed)):
        from diloco_chaos.chaos.report.suite import row_of
        setattr(report, _FIELD, json.dumps(row_of(result)))
        _attach(item, report, result.folder.path)
    return report


def pytest_report_teststatus(report: pytest.TestReport, config: pytest.Config) -> tuple[str, str, str] | None:
    """With `-v` the verdict and the folder stand behind a scenario's name."""
    row = _row(report)
    if row is None or hasattr(report, "wasxfail") or report.skipped or config.stash.get(_OVER, False):
        return None
    if report.when == "setup":
        return "error", "E", f"{row.verdict} {row.run}"
    return report.outcome, "." if report.passed else "F", f"{row.verdict} {row.run}"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The summary says what did not hold, where the folder would stand."""
    session.config.stash[_OVER] = True


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """List the pages of runs that did not pass, and write a table of all runs where CI shows one."""
    if hasattr(config, "workerinput"):  # an xdist worker: the controller reports for all of them
        return
    reports = [(outcome, report) for outcome, reports in terminalreporter.stats.items() for report in reports
               if hasattr(report, _FIELD)]
    if not reports:
        return
    from diloco_chaos.chaos.report.forms.page import PAGE
    from diloco_chaos.chaos.report.saved import suite_kept
    from diloco_chaos.chaos.report.suite import EXPECTED
    rows = sorted(_summary_row(outcome, report) for outcome, report in reports)
    for row in rows:
        if row.verdict not in ("PASSED", EXPECTED):
            terminalreporter.write_line(f"diloco-chaos: {row.verdict} {row.cells[0]}: {row.run}/{PAGE}")
    suite_kept(rows)


def _summary_row(outcome: str, report: Any) -> SuiteRow:
    """The row of a report that bears one; a failure that was expected is marked as such."""
    from diloco_chaos.chaos.report.suite import EXPECTED
    row = _row(report)
    assert row is not None, "the caller chose reports with a row"
    return row._replace(verdict=EXPECTED, why=f"{report.wasxfail}; {row.why}") if outcome == "xfailed" else row


def _row(report: object) -> SuiteRow | None:
    fields = getattr(report, _FIELD, None)
    if fields is None:
        return None
    from diloco_chaos.chaos.report.suite import SuiteRow
    return SuiteRow(*json.loads(fields))


def _attach(item: pytest.Item, report: pytest.TestReport, folder: Path) -> None:
    """Of other plugins only their published interfaces are used, and only where they are active."""
    from diloco_chaos.chaos.report.forms.page import PAGE
    page = folder / PAGE
    if not page.is_file():
        return
    plugins = item.config.pluginmanager
    if plugins.hasplugin("html") and (target := getattr(item.config.option, "htmlpath", None)):
        import pytest_html
        link = os.path.relpath(page, Path(target).resolve().parent)
        more: Any = report
        more.extras = [*getattr(report, "extras", []), pytest_html.extras.url(link, name="run")]
    if plugins.hasplugin("allure_listener"):
        import allure
        attach: Any = allure.attach
        attach.file(str(page), name="run", attachment_type=allure.attachment_type.HTML)
