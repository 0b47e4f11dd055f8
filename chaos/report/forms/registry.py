"""Reports by name, from whichever package provides them: what `diloco-chaos report RUN --format NAME` writes."""

from __future__ import annotations

import json
from collections.abc import Callable

from diloco_chaos.chaos.report.forms.junit import report_junit
from diloco_chaos.chaos.report.forms.markdown import report_markdown
from diloco_chaos.chaos.report.forms.page import report_html, timeline_svg
from diloco_chaos.chaos.report.forms.plot import rasterized
from diloco_chaos.chaos.report.forms.telemetry import report_otel, report_prometheus
from diloco_chaos.chaos.report.forms.trace import report_trace
from diloco_chaos.chaos.report.model import model_of
from diloco_chaos.chaos.report.past import earlier
from diloco_chaos.chaos.runner.run import Result, document
from diloco_chaos.harness.base.registries import ProviderError, one_offer

GROUP = "diloco_chaos.reports"
"""Of entry points; each names a function from a `Result` to what is written, under the report's name."""
Report = Callable[[Result], str | bytes]


def report_json(result: Result) -> str:
    """The verdicts, the story and the run's figures as one JSON object: what stands in the run's report.json."""
    return json.dumps(document(result), indent=2) + "\n"


def html(result: Result) -> str:
    """The page that lies in the run's folder as report.html."""
    model = model_of(result)
    return report_html(model, earlier(result.folder, model.scenario))


def md(result: Result) -> str:
    """Return the report in under 60 lines of Markdown."""
    return report_markdown(model_of(result))


def model_json(result: Result) -> str:
    """Return all that the page tells, as numbers; `ReportModel.model_json_schema()` is its schema."""
    return model_of(result).model_dump_json(indent=2) + "\n"


def junit(result: Result) -> str:
    """A test case for each check."""
    return report_junit(model_of(result))


def svg(result: Result) -> str:
    """The timeline alone."""
    return timeline_svg(model_of(result))


def png(result: Result) -> bytes:
    """The same, for where no SVG is shown.

    Raises:
        MissingExtraError: resvg-py is not installed, or there is no font to draw letters with.
    """
    return rasterized(svg(result), "--format png")


def perfetto(result: Result) -> str:
    """A trace for ui.perfetto.dev."""
    return report_trace(result.history)


def prometheus(result: Result) -> str:
    """The numbers, as a Prometheus text file."""
    return report_prometheus(model_of(result))


def otel(result: Result) -> str:
    """Faults and checks, as OpenTelemetry spans."""
    return report_otel(model_of(result))


def find(name: str) -> Report:
    """Return the function that writes the report of this name.

    Raises:
        ProviderError: there is none of this name, or it can't be loaded.
    """
    offer = one_offer(GROUP, "report", name)
    if not callable(offer.content):
        raise ProviderError(f"{name} of {offer.provider} is no report: an entry point of {GROUP} names a "
                            f"function from a diloco_chaos.Result to a text or bytes")
    made: Report = offer.content
    return made
