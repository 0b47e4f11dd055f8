"""What is written of every run beside its verdicts: report.html in its folder, and a page of CI where there is one."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from chaos.report.forms.markdown import report_markdown, suite_markdown
from chaos.report.forms.page import PAGE, report_html
from chaos.report.model import model_of
from chaos.report.past import earlier
from chaos.report.suite import Row
from chaos.runner.run import Result
from harness.errors import printable

_SUMMARY = "GITHUB_STEP_SUMMARY"
"""The file that GitHub Actions shows on the page of a job."""


def kept(result: Result, alone: bool = True) -> Result:
    """The same, when it is written. What can't be written is told, and costs nothing else.

    Args:
        alone: False: it is one of several, which are told together (`suite_kept`); one that passed adds nothing then.
    """
    model = model_of(result)
    try:
        result.folder.write_text(PAGE, report_html(model, earlier(result.folder, model.scenario)))
    except OSError as error:
        _warn(str(result.folder.path / PAGE), error)
    if alone or model.verdict != "PASSED":
        _summed_up(report_markdown(model))
    return result


def suite_kept(rows: Sequence[Row]) -> None:
    """Several runs, told together on the page of CI."""
    if rows:
        _summed_up(suite_markdown(rows))


def _summed_up(text: str) -> None:
    if summary := os.environ.get(_SUMMARY):
        try:
            with open(summary, "a") as file:
                file.write(text + "\n")
        except OSError as error:
            _warn(summary, error)


def _warn(what: str, error: OSError) -> None:
    print(printable(f"warning: {what} can't be written: {error.strerror}"), file=sys.stderr)
