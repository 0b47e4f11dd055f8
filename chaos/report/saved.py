"""What is written of every run beside its verdicts: report.html in its folder, and a page of CI where there is one."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Literal

from diloco_chaos.chaos.evidence.run_folder import RunFolder
from diloco_chaos.chaos.report.forms.markdown import report_markdown, suite_markdown
from diloco_chaos.chaos.report.forms.page import PAGE, report_html
from diloco_chaos.chaos.report.forms.registry import html
from diloco_chaos.chaos.report.model import model_of
from diloco_chaos.chaos.report.past import earlier
from diloco_chaos.chaos.report.suite import SuiteRow
from diloco_chaos.chaos.runner.run import REPORT, Result, document
from diloco_chaos.harness.base.errors import printable

_SUMMARY = "GITHUB_STEP_SUMMARY"
"""The file that GitHub Actions shows on the page of a job."""


def kept(result: Result, summed_up: Literal["always", "unless passed", "never"] = "always") -> Result:
    """The same, when it is written. What can't be written is told, and costs nothing else.

    Args:
        summed_up: on the page of CI; `unless passed` where it is one of several, which are told together
            (`suite_kept`), `never` where it is one of them that is expected to fail.
    """
    model = model_of(result)
    try:
        result.folder.write_text(PAGE, report_html(model, earlier(result.folder, model.scenario)))
    except OSError as error:
        _warn(str(result.folder.path / PAGE), error)
    if summed_up == "always" or (summed_up == "unless passed" and model.verdict != "PASSED"):
        add_to_ci_page(report_markdown(model))
    return result


def again(result: Result) -> None:
    """Write report.json and the page of a run that was judged once more, as far as its folder lets us.

    Raises:
        FolderError: a file of the folder can't be understood.
    """
    story, page = document(result), html(result)
    try:
        result.folder.write(REPORT, story)
        result.folder.write_text(PAGE, page)
    except OSError as error:
        _warn(str(result.folder.path / REPORT), error)


def stale(folder: RunFolder) -> bool:
    """Say whether a run's page is missing, or older than the report or the tape that it is made from."""
    page = folder.path / PAGE
    sources = [folder.path / REPORT, *(folder.path / "tape").iterdir()]
    return not page.is_file() or any(path.stat().st_mtime > page.stat().st_mtime for path in sources if path.is_file())


def suite_kept(rows: Sequence[SuiteRow]) -> None:
    """Several runs, told together on the page of CI."""
    if rows:
        add_to_ci_page(suite_markdown(rows))


def add_to_ci_page(text: str) -> None:
    """Add it to the page of CI, where there is one."""
    if summary := os.environ.get(_SUMMARY):
        try:
            with open(summary, "a") as file:
                file.write(text + "\n")
        except OSError as error:
            _warn(summary, error)


def _warn(what: str, error: OSError) -> None:
    print(printable(f"warning: {what} can't be written: {error.strerror}"), file=sys.stderr)
