"""Reports by name, from whichever package provides them: what `diloco-chaos report RUN --format NAME` writes."""

from __future__ import annotations

import json
from collections.abc import Callable

from chaos.report.markdown import report_markdown
from chaos.report.model import model_of
from chaos.report.page import report_html
from chaos.runner.run import Result, document
from harness.providers import Offers, ProviderError, offers

GROUP = "diloco_chaos.reports"
"""Of entry points; each names a function from a `Result` to a text, under the report's name."""
Report = Callable[[Result], str]


def report_json(result: Result) -> str:
    """The verdicts, the story and the run's figures as one JSON object: what stands in the run's report.json."""
    return json.dumps(document(result), indent=2) + "\n"


def html(result: Result) -> str:
    """The page that lies in the run's folder as report.html."""
    return report_html(model_of(result))


def md(result: Result) -> str:
    """Under 60 lines of Markdown."""
    return report_markdown(model_of(result))


def model_json(result: Result) -> str:
    """All that the page tells, as numbers; `ReportModel.model_json_schema()` is its schema."""
    return model_of(result).model_dump_json(indent=2) + "\n"


def find(name: str) -> Report:
    """A report by its name.

    Raises:
        ProviderError: there is none of this name, or it can't be loaded.
    """
    there: Offers = offers(GROUP)
    found = {one.name: one for one in there.provided}
    if name not in found:
        raise ProviderError(". ".join([f"no report {name!r}; there are {', '.join(sorted(found))}",
                                       *map(str, there.broken)]))
    if not callable(found[name].content):
        raise ProviderError(f"{name} of {found[name].provider} is no report: an entry point of {GROUP} names a "
                            f"function from a chaos.Result to a text")
    made: Report = found[name].content
    return made
