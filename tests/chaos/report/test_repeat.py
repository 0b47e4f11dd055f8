"""How often a scenario passes: the rate and its interval."""

import io

import pytest
from rich.console import Console

from diloco_chaos.chaos.report.chance import estimate
from diloco_chaos.chaos.report.repeat import RESOLUTION, PassRate, measured, show


def test_runs_that_prove_nothing_are_not_counted_but_told():
    rate = PassRate("storm", [(0, 0, "runs/a", ""), (1, 1, "runs/b", "goodput failed"), (2, 3, "runs/c", "too busy")])
    assert (rate.passed, rate.judged, rate.exit_code) == (1, 2, 1)
    out = io.StringIO()
    show(rate, Console(file=out, width=80))
    assert "storm: 1 of 2 passed, 95% interval 9% to 91%; 1 proved nothing" in out.getvalue()
    assert "goodput failed" in out.getvalue()


@pytest.mark.parametrize(("codes", "exit_code"), [([0, 0], 0), ([0, 3], 3), ([3, 1], 1), ([1, 130], 130)])
def test_the_worst_run_decides_the_exit_code(codes, exit_code):
    assert PassRate("x", [(seed, code, "", "") for seed, code in enumerate(codes)]).exit_code == exit_code


def test_what_faults_cost_has_a_mean_and_an_interval():
    runs = [{"ettr": share, "f1 w-1: noticed": noticed} for share, noticed in ((0.7, 1.0), (0.8, None), (0.75, 1.5))]
    rate = PassRate("storm", [(seed, 0, "", "") for seed in range(3)], runs)
    mean, low, high = estimate([0.7, 0.8, 0.75], RESOLUTION)[1:]
    out = io.StringIO()
    show(rate, Console(file=out, width=80))
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert ["ETTR", f"{mean:.1%}", f"{low:.1%}", "to", f"{min(1, high):.1%}", "3", "of", "3"] in lines
    [noticed] = [line for line in lines if "noticed" in line]
    assert noticed[:8] == ["f1", "w-1:", "noticed", "1.2", "s", "0", "ms", "to"]
    assert rate.document()["figures"]["f1 w-1: noticed"]["not_told"] == 1


def test_a_single_run_has_no_interval():
    out = io.StringIO()
    show(PassRate("storm", [(0, 0, "", "")], [{"ettr": 0.7}]), Console(file=out, width=80))
    assert "one run tells none" in out.getvalue()


def test_what_is_measured_are_the_costs_and_the_phases(results):
    told = measured(results[0])
    assert told["ettr"] < 1
    assert told["f1 learner-1: restarted"] == pytest.approx(2.0, abs=0.3)
    assert "f3 syncer: excluded" not in told
