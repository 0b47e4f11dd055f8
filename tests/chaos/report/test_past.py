"""What came of earlier runs, from their folders."""

import json

import pytest

from diloco_chaos.chaos.evidence.run_folder import RunFolder
from diloco_chaos.chaos.report.past import earlier, past

FIGURES = [{"value": 1.0, "limit": 4.0, "unit": "s"}]


@pytest.fixture
def make(tmp_path):
    def make(name, scenario="mine", **report):
        folder = tmp_path / name
        (folder / "tape").mkdir(parents=True)
        (folder / "plan.json").write_text("{}")
        (folder / "report.json").write_text(json.dumps({"scenario": scenario, "exit_code": 0, "checks": [
            {"name": "reintegration", "verdict": "passed", "measured": "1.0 s", "bound": "≤ 4.0 s",
             "figures": FIGURES}]} | report))
        return RunFolder(folder)
    return make


def test_the_tightest_check_is_that_which_used_most_of_its_room(make):
    found = past(make("20260101-120000-mine-0000aaaa", checks=[
        {"name": "a", "verdict": "passed", "measured": "", "bound": "", "figures": FIGURES},
        {"name": "b", "verdict": "passed", "measured": "", "bound": "", "figures": [
            {"value": 0.9, "limit": 0.8, "best": 1.0, "unit": "share"}]},
        {"name": "c", "verdict": "unknown", "measured": "", "bound": "", "figures": [
            {"value": None, "limit": 4.0, "unit": "s"}]}]))
    assert found.tightest == ("b", pytest.approx(0.5))


def test_earlier_runs_are_those_of_the_same_scenario_before_it(make):
    for number in range(25):
        make(f"202601{number + 1:02}-120000-mine-0000aaaa")
    make("20260105-130000-not-mine-0000aaaa", scenario="not-mine")
    run = make("20260120-120000-mine-0000bbbb")
    found = earlier(run, "mine")
    assert [one.run[:8] for one in found] == [f"202601{number:02}" for number in range(1, 21)]
    assert len(earlier(make("20260301-120000-mine-0000bbbb"), "mine")) == 20


@pytest.mark.parametrize("report", [{"checks": 7}, {"checks": [7, {"name": 1}]}, {"exit_code": "x"},
                                    {"checks": [{"name": "a", "verdict": "odd", "measured": "", "bound": ""}]}])
def test_of_a_report_that_somebody_else_wrote_is_taken_what_can_be_understood(make, report):
    found = past(make("20260101-120000-mine-0000aaaa", **report))
    assert found.tightest is None or report.keys() == {"exit_code"}


def test_a_folder_without_a_report_is_not_judged(make):
    run = make("20260101-120000-mine-0000aaaa")
    (run.path / "report.json").unlink()
    assert (past(run).exit_code, past(run).checks) == (None, {})
