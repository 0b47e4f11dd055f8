"""What a scenario would find in a log is shown before anything is run."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from diloco_chaos.chaos.cli import application
from diloco_chaos.chaos.commands.common import Failure

SCENARIO = """diloco_chaos: 1
name: mine
trainer:
  kind: commands
  nodes: {store: {listens: true, run: "s.py"}, w: {worker: true, run: "t.py {store}"}}
  progress: [{node: w, log: 'round (?P<round>[0-9]+) loss (?P<loss>[0-9.]+)'}]
"""


@pytest.fixture
def show(tmp_path):
    """show(log, *options) -> what the command does."""
    def run(text, *options, scenario=SCENARIO):
        (tmp_path / "mine.yaml").write_text(scenario)
        (tmp_path / "w.log").write_text(text)
        return CliRunner().invoke(application(), ["progress", str(tmp_path / "w.log"),
                                                  "--with", str(tmp_path / "mine.yaml"), *options])
    return run


def log(*rounds):
    return "starting\n" + "".join(f"round {number} loss 0.5\n" for number in rounds)


def test_the_first_and_the_last_rounds_are_shown(show):
    done = show(log(*range(1, 21)))
    assert done.exit_code == 0
    assert "20 of 21 lines tell a round" in done.output
    numbers = [line.split()[0] for line in done.output.splitlines() if line.split()[1:] == ["0.5"]]
    assert numbers == ["1", "2", "3", "18", "19", "20"]


def test_what_is_wrong_is_told_and_the_exit_code_is_2(show):
    done = show(log(1, 2, 9))
    assert done.exit_code == 2
    assert "line 4: round 9 comes after round 2: 6 are not told" in done.output
    assert show("nothing\n").exit_code == 2


def test_of_many_problems_the_first_are_told(show):
    done = show(log(*range(40, 0, -1)))
    assert "and 29 problems more" in done.output


def test_it_is_one_object_as_json(show):
    [told] = json.loads(show(log(1, 2), "--json").stdout)["logs"]
    assert told["lines"] == 3
    assert [one["round"] for one in told["rounds"]] == [1, 2]
    assert told["problems"] == []


def test_of_several_logs_each_is_read_as_its_nodes(tmp_path):
    (tmp_path / "mine.yaml").write_text(SCENARIO)
    for name, text in (("w.0.log", log(1, 2)), ("w.1.log", log(3, 9)), ("store.0.log", "up\n"), ("old.log", log(4))):
        (tmp_path / name).write_text(text)

    def shown(*names):
        return CliRunner().invoke(application(), ["progress", *(str(tmp_path / name) for name in names), "--with",
                                        str(tmp_path / "mine.yaml")])
    all_of_them = shown("w.0.log", "w.1.log", "store.0.log", "old.log")
    assert all_of_them.exit_code == 2
    assert "w.1.log: line 3: round 9 comes after round 3: 5 are not told" in all_of_them.output
    assert f"{tmp_path}/store.0.log: `progress` has nothing for 'store'" in all_of_them.output
    assert shown("w.0.log", "store.0.log", "old.log").exit_code == 0
    assert isinstance(shown("store.0.log").exception, Failure)


@pytest.mark.parametrize(("options", "scenario", "said"), [
    (("--node", "store"), SCENARIO, "`progress` has nothing for 'store': it has something for w"),
    ((), "diloco_chaos: 1\nname: mine\n", "its nodes write the event log themselves: their logs are not read")])
def test_a_log_that_nobody_reads_is_told_so(show, options, scenario, said):
    done = show(log(1), *options, scenario=scenario)
    assert isinstance(done.exception, Failure)
    assert done.exception.exit_code == 2
    assert said in str(done.exception)


@pytest.mark.parametrize("text", [
    log(1, 1, 2, 2, 3, 3), log(10, 20, 30, 40), "\r".join(["", *(f"{n}% round {n} loss 0.5" for n in range(1, 9))]),
    "".join(f"[rank{n % 2}]: \x1b[32mround {1 + n // 2} loss 0.5\x1b[0m\r\n" for n in range(8))])
def test_ranks_tenth_steps_bars_and_colours_are_no_problem(show, text):
    done = show(text)
    assert done.exit_code == 0
    assert "comes after" not in done.output


def test_a_field_that_is_no_number_is_told_and_its_round_shown(show):
    done = show("round 1 loss ....\nround 2 loss 0.5\n")
    assert done.exit_code == 2
    assert "2 of 2 lines tell a round" in done.output
    assert "line 1: loss: '....' is no number; the round counts without it" in done.output


def test_what_is_no_log_is_told_in_a_sentence(show, tmp_path):
    show(log(1))
    for name, said in (("", "a folder: name the logs in it"), ("none.log", "can't be read: No such file or directory")):
        done = CliRunner().invoke(application(), ["progress", str(tmp_path / name), "--with",
                                                  str(tmp_path / "mine.yaml")])
        assert isinstance(done.exception, Failure)
        assert said in str(done.exception)
