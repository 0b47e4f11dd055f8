"""`compare` as it is typed: ways in turn under the same faults, and against what was before."""

import json

import pytest
from rich.console import Console

from diloco_chaos.chaos.report.comparison import perform
from diloco_chaos.chaos.report.comparison.saved import write
from diloco_chaos.chaos.report.comparison.terminal import show
from diloco_chaos.chaos.report.comparison.variants import ways_of
from diloco_chaos.chaos.runner import backends
from typed import typed

SCENARIO = """
diloco_chaos: 1
name: small
cluster: {model: quadratic, learners: 3, budget: 120 steps, step_time: 60ms, quorum: 3}
deadline: 30s
faults:
  - {kill: learner-1, at: 2s, restart_after: 2s}
checks: {}
"""


@pytest.fixture
def small(tmp_path):
    (tmp_path / "small.yaml").write_text(SCENARIO.lstrip())
    return tmp_path / "small.yaml"


def test_variants_run_in_turn_and_the_file_of_that_is_a_baseline_later(small, tmp_path):
    done = typed("compare", small, "--with", "quorum=1", "--repeat", 2, "--on", "simulated", "--json", "--runs-dir",
                 tmp_path / "runs", "--out", tmp_path / "out", timeout=200)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [way["name"] for way in told["ways"]] == ["quorum=3", "quorum=1"]
    assert [[run["seed"] for run in way["runs"]] for way in told["ways"]] == [[0, 1], [0, 1]]
    started = [line for line in done.stderr.splitlines() if line.startswith("[the run, quorum=")]
    assert [line.split(",")[1:3] for line in started] == [[" quorum=3", " seed 0"], [" quorum=1", " seed 0"],
                                                          [" quorum=1", " seed 1"], [" quorum=3", " seed 1"]]
    again = typed("compare", small, "--baseline", tmp_path / "out", "--on", "simulated", "--runs-dir",
                  tmp_path / "runs", timeout=200)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "no difference between baseline and now is shown by 2 runs of each" in again.stdout


def test_ctrl_c_keeps_what_ran(small, tmp_path, monkeypatch):
    real, calls = perform.run_plan, []

    def run_plan(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments)
    monkeypatch.setattr(perform, "run_plan", run_plan)
    other = tmp_path / "other.yaml"
    other.write_text(SCENARIO.lstrip().replace("quorum: 3", "quorum: 1"))
    told = perform.side_by_side(ways_of([str(small), str(other)], [], [0, 1]), None, 0.2, tmp_path / "runs",
                                Console(quiet=True), backends.named("simulated"))
    assert (told.exit_code, told.interrupted) == (130, "stopped by Ctrl-C: 3 runs are missing")
    assert [len(way.runs) for way in told.ways] == [1, 0]


@pytest.fixture
def small_and_other(small, tmp_path, monkeypatch):
    """Two ways, of which those called here begin no training: their deadline is over before."""
    def ways(*hasty):
        real = perform.run_plan

        def run_plan(plan, *arguments):
            quorum = "other" if plan.cluster.quorum == 1 else "small"
            return real(plan.model_copy(update={"deadline": 0.2}) if quorum in hasty else plan, *arguments)
        monkeypatch.setattr(perform, "run_plan", run_plan)
        other = tmp_path / "other.yaml"
        other.write_text(SCENARIO.lstrip().replace("quorum: 3", "quorum: 1"))
        return perform.side_by_side(ways_of([str(small), str(other)], [], [0, 1]), None, 0.2, tmp_path / "runs",
                                    Console(quiet=True), backends.named("simulated"))
    return ways


def test_runs_that_never_begin_to_train_are_given_up_after_the_first_pair(small_and_other, tmp_path, capsys):
    comparison = small_and_other("small", "other")
    assert (comparison.exit_code, [len(way.runs) for way in comparison.ways]) == (3, [1, 1])
    first, *lines = comparison.stopped
    assert first == "stopped after 2 of 4 runs: none of them began to train, and there is nothing to compare"
    assert [line.split(": ")[0] for line in lines] == ["small, seed 0", "other, seed 0"]
    assert all("the deadline of 0.2 s passed before the cluster was steady" in line for line in lines)
    write(tmp_path, comparison)
    show(comparison, Console())
    forms = [(tmp_path / f"compare.{form}").read_text() for form in ("md", "html", "json")]
    for text in (*forms, capsys.readouterr().out):
        assert first in text
        assert "is called better or worse" not in text


def test_one_run_that_does_not_begin_may_be_bad_luck(small_and_other):
    comparison = small_and_other("small")
    assert (comparison.stopped, [len(way.runs) for way in comparison.ways]) == ((), [2, 2])


@pytest.mark.parametrize(("arguments", "message"), [
    (["--with", "quorum=1", "--modes", "diloco"], "--with and --modes: one comparison has ways of one kind"),
    (["--with", "quorum=1", "--baseline", "x"], "--with and --baseline: one comparison has ways of one kind"),
    (["--baseline", "nowhere"], "--baseline nowhere: there is no such folder: make one with `diloco-chaos run "),
    (["--with", "qorum=1"], "no key 'qorum'; did you mean 'quorum'?"),
    (["--with", "quorum=1", "--slower-by", "20%"], "--slower-by: slower than what? Give --baseline, too"),
    (["--baseline", "x", "--slower-by", "much"], "--slower-by: 'much' is not a share: write it like 80%"),
    (["kill-one"], "small and kill-one can't be compared: they have other faults: ")])
def test_a_mistake_gets_a_sentence_and_nothing_runs(small, tmp_path, arguments, message):
    done = typed("compare", small, *arguments, "--runs-dir", tmp_path / "runs")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert not (tmp_path / "runs").exists()
