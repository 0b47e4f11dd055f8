"""Two runs side by side."""

import json
import re

import pytest
from typer.testing import CliRunner

from diloco_chaos.chaos.checks.base import Figure, Verdict
from diloco_chaos.chaos.cli import application
from diloco_chaos.chaos.report.difference import difference
from diloco_chaos.chaos.report.past import Past


def test_a_run_is_the_same_as_itself(results):
    found = difference(results[0], results[0])
    assert found == ([], [], [], "")
    assert not found.broken


def test_what_failed_only_in_the_second_is_told_first(results):
    found = difference(results[1], results[0])
    assert found.warnings[-1] == "their plans differ in checks"
    assert [(change.kind, change.name) for change in found.changes[:2]] == [
        ("broken", "no_global_stall"), ("broken", "reintegration")]
    assert found.changes[0].after.startswith("failed: longest gap 5.")
    assert found.broken
    assert found.parted == "", "the same seed, the same training"


def test_what_failed_only_in_the_first_is_fixed(results):
    found = difference(*results)
    assert {change.kind for change in found.changes[:2]} == {"fixed"}
    assert not found.broken


@pytest.mark.parametrize(("others", "kind", "usual"), [
    ((1.0, 3.0, 2.0, 9.0, 1.5), "as usual", "1.0 s to 9.0 s in 5 runs"),
    ((0.1, 0.3, 0.2, 0.1, 0.1), "figure", "100 ms to 300 ms in 5 runs"), ((1.0, 3.0), "figure", "")])
def test_a_figure_is_held_against_what_is_usual(results, run_text, text, monkeypatch, others, kind, usual):
    """Earlier runs tell how far a figure moves by itself."""
    after = run_text(text.replace("at: 4s", "at: 5s") % ("9s", "9s"))
    past = [Past(f"run-{number}", "mine", "", 0, 0, "", {"no_global_stall": Verdict(
        name="no_global_stall", verdict="passed", measured="", figures=[
            Figure(value=value, limit=9.0, unit="s")])}) for number, value in enumerate(others)]
    monkeypatch.setattr("diloco_chaos.chaos.report.difference.earlier", lambda folder, scenario: past)
    [change] = [change for change in difference(results[1], after).changes if change.name == "no_global_stall"]
    assert (change.kind, change.usual) == (kind, usual)


def test_who_names_the_later_run_first_is_told_so(results):
    late = f"{results[1].folder.path.name} is the later one: what it broke is told as fixed; name it as the second"
    assert difference(results[1], results[0]).warnings[0] == late
    assert late not in difference(*results).warnings


def test_where_training_went_different_ways_is_told(results, run_text):
    other = run_text("diloco_chaos: 1\nname: mine\ncluster: {model: quadratic, fragments: 4, learners: 4, quorum: 3, "
                     "budget: 450, step_time: 60ms}\n")
    found = difference(other, results[1])
    assert "faults" in found.warnings[-1]
    assert re.match(r"version \d+ of fragment \d+, made at \d+\.\d\d s and at \d+\.\d\d s, is another one",
                    found.parted)


def test_the_command_tells_it_and_its_exit_code_is_1_where_something_broke(results):
    failed, passed = (str(result.folder.path) for result in results)
    done = CliRunner().invoke(application(), ["diff", passed, failed])
    assert done.exit_code == 1
    assert "broken" in done.stdout
    done = CliRunner().invoke(application(), ["diff", failed, passed, "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["checks"][0]["kind"] == "fixed"
    assert "the same verdicts" in CliRunner().invoke(application(), ["diff", failed, failed]).stdout
