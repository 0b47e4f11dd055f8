"""How often a scenario passes: the rate and its interval."""

import io

import pytest
from rich.console import Console

from diloco_chaos.chaos.report.repeat import PassRate, show


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
