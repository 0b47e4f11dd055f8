"""From what came of the runs to the page and the chart; and the committed page is what the kept results make."""

import json

import pytest

from benchmarks.league import __main__ as command
from benchmarks.league.cells import cells
from benchmarks.league.chart import chart, square
from benchmarks.league.page import NOT_RUN, page, row
from benchmarks.league.performing import Run, digest, keep, kept

CELL = next(cells("torchrun/best/kill-worker"))


def run(**given):
    return Run(**{"verdict": "PASSED", "noticed": 1.0, "stall": 2.5, "recovered": 3.0, "watched": 30.2, "lost": 0.0,
                  "failed": [], "why": "", "when": "2026-11-30T01:02+00:00", "machine": "2 cores",
                  "versions": {"torch": "2.13.0"}} | given)


def test_a_row_has_a_figure_for_each_run_and_the_verdicts():
    runs = [run(), run(stall=4.0, recovered=None, noticed=None, verdict="FAILED", failed=["self_healing"]), run()]
    assert row(CELL, runs) == (
        "torchrun", "best", "1, not told, 1 s", "2.5, 4, 2.5 s", "3, not in 30, 3 s", "0, 0, 0 s",
        "2 passed, 1 failed: self_healing (1)", "`make league ONLY=torchrun/best/kill-worker`")


def test_a_cell_that_was_not_run_says_so_and_has_no_figure():
    assert row(CELL, [])[2:7] == ("", "", "", "", NOT_RUN)
    assert page({}).count(f"| {NOT_RUN} |") == sum(cell.absent is None for cell in cells())


def test_the_page_says_when_and_on_what_machine():
    text = page({CELL.key: [run(), run(when="2026-12-01T00:00+00:00"), run()]})
    assert "Made 2026-11-30 to 2026-12-01, on 2 cores. 1 of" in text
    assert "torch 2.13.0" in text


@pytest.mark.parametrize(("runs", "look", "text"), [
    ([], "open", ""), ([run(), run(recovered=5.0), run()], "passed", "✓ 3.0 s"),
    ([run(), run(verdict="FAILED", recovered=None)], "failed", "✗ not always"),
    ([run(verdict="INCONCLUSIVE", recovered=None)], "nothing", "? never")])
def test_a_square_shows_the_median_and_the_worst(runs, look, text):
    drawn = square(CELL, runs, 0, 0)
    assert (drawn.look, drawn.text) == (look, text)


def test_the_chart_has_a_square_for_every_cell():
    assert chart({}).count("<title>") == len(list(cells()))


def test_runs_of_a_scenario_that_is_another_now_do_not_count(tmp_path):
    keep(CELL, tmp_path, [run()])
    assert kept(CELL, tmp_path) == [run()]
    file = tmp_path / f"{CELL.key}.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"made_of": "another"}))
    assert kept(CELL, tmp_path) == []
    assert digest(CELL) != digest(next(cells("torchrun/defaults/kill-worker")))


def test_a_file_that_is_none_of_ours_is_told_with_its_path(tmp_path, capsys):
    keep(CELL, tmp_path, [run()])
    (tmp_path / f"{CELL.key}.json").write_text("{}")
    assert command.main(["--page", "--results", str(tmp_path)], tmp_path) == 2
    assert f"{CELL.key}.json can't be read, remove it" in capsys.readouterr().err


def test_a_cell_that_has_its_runs_is_not_run_again(tmp_path, monkeypatch):
    performed = []
    monkeypatch.setattr(command, "perform", lambda cell, *_: performed.append(cell.key) or run())
    for _ in range(2):
        assert command.main(["--only", CELL.key, "--results", str(tmp_path)], tmp_path) == 0
    assert performed == [CELL.key] * 3


def test_a_cell_that_can_not_be_run_does_not_keep_the_others_from_running(tmp_path, monkeypatch, capsys):
    def perform(cell, *_):
        if cell is not CELL and cell.fault.name == "kill-worker":
            raise RuntimeError("no such program")
        return run()
    monkeypatch.setattr(command, "perform", perform)
    assert command.main(["--only", "torchrun/best", "--results", str(tmp_path), "--runs", "1"], tmp_path) == 1
    assert "can't be run: no such program" in capsys.readouterr().err
    assert (tmp_path / "torchrun/best/pause.json").exists()


def test_cells_that_do_not_exist_are_told(tmp_path, capsys):
    assert command.main(["--only", "nobody"], tmp_path) == 2
    assert "no cell is called 'nobody'" in capsys.readouterr().err


def test_the_committed_page_and_chart_are_what_the_kept_results_make():
    results = {cell.key: runs for cell in cells() if cell.absent is None
               and (runs := kept(cell, command.ROOT / command.RESULTS))}
    assert (command.ROOT / command.PAGE).read_text() == page(results)
    assert (command.ROOT / command.CHART).read_text() == chart(results)
