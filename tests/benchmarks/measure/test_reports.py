"""The bench of reports makes every form that there is."""

from importlib.metadata import entry_points

from benchmarks.measure import reports
from diloco_chaos.chaos.report.forms.registry import GROUP


def test_every_form_is_measured():
    assert {point.name for point in entry_points(group=GROUP)} <= set(reports.FORMS)
