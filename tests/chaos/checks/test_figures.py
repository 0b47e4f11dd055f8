"""The numbers behind a check agree with its verdict."""

import pytest

from diloco_chaos.chaos.checks.base import Figure, tightest
from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.runner.backends import named
from diloco_chaos.chaos.runner.run import run_plan
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze

TEXT = """diloco_chaos: 1
name: mine
cluster: {model: quadratic, fragments: 4, learners: 4, quorum: 3, budget: 450, step_time: 60ms}
faults:
  - {kill: learner-1, at: 4s, restart_after: 2s}
  - {partition: [learner-2, learner-3], at: 7s, for: 4s}
checks: {no_global_stall: {max_gap: %s}, reintegration: {within: %s}, uptime: {at_least: %s}, goodput: {at_least: %s}}
"""


@pytest.mark.parametrize(("value", "limit", "best", "used"), [
    (1.0, 4.0, 0.0, 0.25), (5.0, 4.0, 0.0, 1.25), (-0.5, 0.05, 0.0, 0.0), (0.9, 0.8, 1.0, 0.5), (0.7, 0.8, 1.0, 1.5),
    (3, 2, 4, 0.5), (None, 4.0, 0.0, float("inf")), (float("inf"), 4.0, 0.0, float("inf")), (0, 0, 0, None)])
def test_the_room_to_the_limit_is_used_up_at_the_limit(value, limit, best, used):
    figure = Figure(value=value, limit=limit, best=best, unit="s")
    assert figure.used == (used if used is None else pytest.approx(used))
    assert Figure.model_validate_json(figure.model_dump_json()) == figure


def test_the_tightest_is_the_one_with_the_least_room():
    some = [Figure(value=value, limit=4.0, unit="s") for value in (1.0, None, 3.0)]
    assert tightest(some) is some[1]
    assert tightest([Figure(value=0, limit=0, unit="violations")]) is None


@pytest.mark.parametrize("bounds", [("500ms", "500ms", "95%", "95%"), ("9s", "9s", "20%", "20%")])
def test_what_fails_is_beyond_its_limit_and_what_passes_is_not(tmp_path, bounds):
    checks = run_plan(freeze(parse(TEXT % bounds), 0), tmp_path, NullAudience(), named("simulated")).judgement.checks
    told = {check.name: check for check in checks if check.figures and check.verdict != "unknown"}
    assert {"no_global_stall", "reintegration", "uptime", "goodput", "staleness_bounded", "exactly_once"} <= set(told)
    for check in told.values():
        beyond = [figure for figure in check.figures if (figure.value or 0) > figure.limit
                  if figure.used is None] + [figure for figure in check.figures if (figure.used or 0) > 1]
        assert bool(beyond) == (check.verdict == "failed"), check
