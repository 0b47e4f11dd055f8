"""The command that explores: how long, over which clusters, and where results lie."""

import json

import pytest
from typer.testing import CliRunner

from benchmarks.measure.planted import PLANTED
from diloco_chaos.chaos.cli import application
from diloco_chaos.chaos.commands.common import Failure
from diloco_chaos.chaos.exploration.explore import FIRST_ROUND
from diloco_chaos.chaos.exploration.strategies import scenario
from diloco_chaos.chaos.exploration.strategies import written as as_file


@pytest.fixture
def explore(tmp_path, monkeypatch):
    """explore(options...) -> what it did, in a folder of its own."""
    from diloco_chaos.chaos.exploration.generate import plan_of
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(as_file(plan_of(scenario(), [], 0), "small", "Nothing is broken."))
    return lambda *options: CliRunner().invoke(application(), ["explore", "small.yaml", *options])


def test_it_goes_on_for_so_long_and_keeps_its_results_under_the_scenarios_name(explore, tmp_path):
    done = explore("--for", "1s", "--json")
    told = json.loads(done.stdout)
    assert told["runs"] >= FIRST_ROUND
    assert len((tmp_path / "explored" / "small" / "results.jsonl").read_text().splitlines()) == told["runs"] + 1


def test_it_ends_with_the_round_in_which_something_broke(explore, monkeypatch):
    check = PLANTED["counters_kept"](monkeypatch)
    done = explore("--runs", "480", "--until-found", "--json")
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert check in told["found"]
    assert told["runs"] == FIRST_ROUND


def test_drawn_clusters_are_others(explore, tmp_path):
    assert explore("--runs", "6", "--clusters", "drawn", "--json").exit_code in (0, 3)
    own = explore("--runs", "6", "--corpus-dir", "own", "--json")
    assert own.exit_code in (0, 3)
    drawn, of_the_scenario = ([json.loads(line)["faults"] for line in (tmp_path / folder / "results.jsonl")
                               .read_text().splitlines()] for folder in ("explored/small", "own"))
    assert drawn != of_the_scenario
    assert "name another folder with --corpus-dir" in str(explore("--runs", "6", "--json").exception)


def test_at_a_real_place_what_only_real_time_has_is_drawn_and_tried(explore, tmp_path):
    done = explore("--on", "local", "--runs", "1", "--faults", "io,hang", "--max-faults", "1", "--json")
    assert done.exit_code in (0, 3), done.output
    folder = tmp_path / "explored" / "small-on-local"
    healthy, tried = (json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines())
    assert (healthy["faults"], healthy["outcome"], tried["outcome"]) == ([], "finished", "finished")
    assert [kind for fault in tried["faults"] for kind in fault if kind in ("io", "hang")]
    assert not any(entry.is_dir() for entry in (folder / "runs").iterdir()), "what broke nothing is not kept"


@pytest.mark.parametrize(("options", "words"), [
    (["--faults", "io"], "--faults: 'io' can't be drawn for this place; choose from kill, "),
    (["--workers", "ray", "--on", "local"], "--workers ray: runs on local take this machine"),
    (["--for", "60"], "--for: '60' is not a duration: write it like 8s"), (["--for", "soon"], "--for: 'soon'"),
    (["--clusters", "drwn"], "--clusters drwn: own or drawn"), (["--workers", "rey"], "--workers rey: local or ray"),
    (["--address", "here"], "say --workers ray, too"), (["--faults", "kil"], "--faults: 'kil' is no fault")])
def test_what_can_not_be_is_told_in_a_sentence(explore, options, words):
    done = explore(*options)
    assert isinstance(done.exception, Failure)
    assert done.exception.exit_code == 2
    assert words in str(done.exception)
