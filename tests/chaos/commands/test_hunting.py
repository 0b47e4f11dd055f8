"""`explore` of a trainer of commands: what is refused, and that a search runs it and can be repeated."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from diloco_chaos.chaos.cli import application
from diloco_chaos.chaos.exploration.corpus import ExplorationError

TOY = Path(__file__).parents[2] / "support" / "elastic_toy.py"
SCENARIO = f"""
diloco_chaos: 1
name: toy
trainer:
  kind: commands
  nodes:
    hub: {{listens: true, run: "{sys.executable} {TOY} hub {{port}}"}}
    w: {{count: 2, worker: true, run: "{sys.executable} {TOY} worker {{hub}}"}}
  progress: [{{node: w, log: 'round=(?P<round>\\d+) members=(?P<members>\\d+)'}}]
  rounds: 60
deadline: 40s
checks: {{blast_radius: off, uptime: off, no_global_stall: {{max_gap: 20s}}, reintegration: {{within: 20s}}}}
"""
ALONE = SCENARIO.replace("worker {hub}", "worker here")


@pytest.fixture
def explore(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def type_it(*options, scenario=SCENARIO):
        (tmp_path / "toy.yaml").write_text(scenario)
        return CliRunner().invoke(application(), ["explore", "toy.yaml", *options])
    return type_it


@pytest.mark.parametrize(("options", "words"), [
    ("", "each schedule is a run in real time: say for how long to search, as in --for 10m, or how many"),
    ("--on simulated --runs 1", "commands are processes, which take real time: --on local, or --on compose"),
    ("--on kubernetes --runs 1", "which are on other machines there: --on local, or --on compose"),
    ("--runs 1 --clusters drawn", "--clusters drawn: own"), ("--runs 1 --workers ray", "--workers ray: local"),
    ("--runs 1 --torch", "--torch: commands train what they train"), ("--for soon", "--for: 'soon' is not a duration"),
    ("--runs 1 --faults kil", "--faults: 'kil' is no fault; did you mean 'kill'?"),
    ("--runs 1 --faults storm", "--faults: 'storm' can't be drawn"),
    ("--runs 1 --faults io", "no fault can be drawn: io finds no target among these nodes on local")])
def test_what_can_not_be_searched_is_told_in_a_sentence_and_nothing_starts(explore, tmp_path, options, words):
    done = explore(*options.split())
    assert getattr(done.exception, "exit_code", None) == 2, done.output
    assert words in str(done.exception)
    assert not list(tmp_path.glob("explored/*/runs"))


def test_two_runs_at_a_time_can_not_have_the_same_port(explore):
    fixed = SCENARIO.replace("listens: true", "listens: true, port: 7777")
    done = explore("--runs", "2", "--jobs", "2", scenario=fixed)
    assert "--jobs 2: hub has the same `port` in every run: leave it out" in str(done.exception)


def test_where_no_link_is_named_faults_of_links_find_no_target(explore):
    assert "faults of links need a node that `listens`" in str(
        explore("--runs", "1", "--faults", "partition", scenario=ALONE).exception)


def test_a_search_runs_the_trainer_keeps_what_it_saw_and_goes_on_there(explore, tmp_path):
    done = explore("--runs", "1", "--faults", "restart", "--max-faults", "1", "--json")
    assert done.exit_code in (0, 1, 3), done.output
    folder = tmp_path / "explored" / "toy-on-local"
    healthy, tried = (json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()[:2])
    assert (healthy["faults"], healthy["measured"]["rounds"] > 20) == ([], True)
    assert next(iter(tried["faults"][0])) == "restart"
    assert "w says round=# members=# loss=#" in tried["traces"]
    again = json.loads(explore("--runs", "1", "--faults", "restart", "--max-faults", "1", "--json").stdout)
    assert (again["from_before"], again["schedules"]) == (1, 2)


def test_another_search_does_not_take_the_folder(explore, tmp_path):
    (tmp_path / "explored" / "toy-on-local").mkdir(parents=True)
    (tmp_path / "explored" / "toy-on-local" / "exploration.json").write_text('{"of": "another"}')
    done = explore("--runs", "1")
    assert not isinstance(done.exception, ExplorationError)
    assert "holds an exploration with other settings; name another folder with --corpus-dir" in str(done.exception)
