"""A run that fails and one that passes, under virtual time."""

import pytest

from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.report.saved import kept
from diloco_chaos.chaos.runner.backends import named
from diloco_chaos.chaos.runner.run import run_plan
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze

TEXT = """diloco_chaos: 1
name: mine
description: "<script>alert(1)</script> [x](http://example.org) | `y`"
cluster: {model: quadratic, fragments: 4, learners: 4, quorum: 3, budget: 450, step_time: 60ms}
faults:
  - {kill: learner-1, at: 4s, restart_after: 2s}
  - {partition: [learner-2, learner-3], at: 7s, for: 4s}
  - {kill: syncer, at: 18s, restart_after: 4s}
checks: {no_global_stall: {max_gap: %s}, reintegration: {within: %s}, uptime: {at_least: 20%%}}
"""


@pytest.fixture(scope="session")
def run_text(tmp_path_factory):
    """run_text(scenario's text) -> Result."""
    folder = tmp_path_factory.mktemp("runs")
    return lambda text: kept(run_plan(freeze(parse(text), 0), folder, NullAudience(), named("simulated")))


@pytest.fixture(scope="session")
def text():
    """The scenario of `results`; `text % (max_gap, within)`."""
    return TEXT


@pytest.fixture(scope="session")
def results(run_text):
    """(failed, passed)"""
    return [run_text(TEXT % bounds) for bounds in (("500ms", "500ms"), ("9s", "9s"))]
