"""Sweeps: tables that fit a terminal, JSON for programs, drawings, a sentence for what can't be."""

import json
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from diloco_chaos.chaos.cli import application
from diloco_chaos.chaos.commands.common import Failure

WAN = ("wan", "--parameters", "1M", "--step-time", "100ms", "--sites", "2", "--rtt", "20ms", "--jobs", "1")
FAILED = ("failed-share", "--learners", "2", "--gone", "50%", "--mode", "decoupled", "--runs", "1", "--jobs", "1")
GRACE = ("grace", "--learners", "2", "--gamma", "0,0.8", "--rate", "2", "--runs", "1", "--jobs", "1")


def said(*arguments):
    done = CliRunner().invoke(application(), ["fleet", *arguments], env={"COLUMNS": "80"})
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


def test_a_row_for_each_link_and_what_each_mode_asks_for_fit_a_terminal():
    lines = said(*WAN, "--rate", "0.02,0.5").splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.split()[:4] == ["1M", "own", "20", "ms"] for line in lines) == 3
    assert sum(line.split()[:4] == ["1M", "shared", "20", "ms"] for line in lines) == 3
    assert any("data parallel" in line and "decoupled" in line and "…" not in line for line in lines)


def test_programs_get_every_cell_of_a_wide_area_network():
    found = json.loads(said(*WAN, "--rate", "0.5", "--link", "own", "--mode", "decoupled,data_parallel", "--json"))
    [row] = found["rows"]
    assert (row["parameters"], row["link"], row["rtt_s"], row["gbit_per_s"]) == (1_000_000, "own", 0.02, 0.5)
    assert list(row["kept"]) == ["decoupled", "data_parallel"]
    assert found["least_gbit_per_s"][0]["least"]["decoupled"] == 0.5
    assert found["asked"]["step_time"] == "0.1s"


def test_a_mode_is_a_line_over_the_rate(tmp_path):
    said(*WAN, "--rate", "0.02,0.5", "--link", "own", "--mode", "decoupled", "--plot", str(tmp_path / "wan.svg"))
    assert "decoupled" in "".join(ElementTree.parse(tmp_path / "wan.svg").getroot().itertext())


def test_learners_that_are_gone_have_a_row_and_a_place_in_the_drawing(tmp_path):
    lines = said(*FAILED, "--plot", str(tmp_path / "gone.svg")).splitlines()
    assert [line.split()[:4] for line in lines if " of 2" in line] == [["decoupled", "0", "of", "2"],
                                                                       ["decoupled", "1", "of", "2"]]
    assert max(map(len, lines)) <= 80
    assert "50%" in "".join(ElementTree.parse(tmp_path / "gone.svg").getroot().itertext())
    rows = json.loads(said(*FAILED, "--json"))["rows"]
    assert [row["gone"] for row in rows] == [0, 1]


def test_the_grace_window_has_a_table_of_contributors_and_one_of_losses():
    lines = said(*GRACE).splitlines()
    assert [line.split()[0] for line in lines if line.split()[:1] in (["0"], ["0.8"])] == ["0", "0.8"] * 2
    assert max(map(len, lines)) <= 80
    rows = json.loads(said(*GRACE, "--json"))["rows"]
    assert [row["gamma"] for row in rows] == [0, 0.8]


@pytest.mark.parametrize(("arguments", "message"), [
    (("wan", "--rate", "fast"), "--rate: 'fast' is no number"),
    (("wan", "--rate", ","), "--rate: name at least one"),
    (("wan", "--rate", "0"), "--rate: it must be between 0.001 and 8000"),
    (("wan", "--rtt", "5"), "--rtt: '5' is not a duration: write it like 8s or 250ms"),
    (("wan", "--step-time", "0s"), "--step-time: it must be between 10ms and 600s"),
    (("wan", "--mode", "synchronous"), "--mode: Input should be 'data_parallel', 'elastic_data_parallel', 'diloco', "
                                       "'streaming' or 'decoupled'"),
    (("wan", "--plot", "x.pdf"), "--plot x.pdf: name a file that ends in .svg or .png"),
    (("wan", "--plot", "x.svg"), "--plot: it is drawn over the rate: give one of --parameters, of --rtt and of --link"),
    (("failed-share", "--gone", "120%"), "--gone: it must be between 0% and 100%"),
    (("grace", "--gamma", "2", "--rate", "-1"), "--gamma: it must be between 0 and 1\n"
                                                "--rate: it must be between 0.001 and 8000"),
    (("grace", "--quorum", "9"), "--quorum 9: there are 8 learners"),
    (("grace", "--workers", "x"), "--workers x: local or ray")])
def test_what_can_not_be_gets_a_sentence(arguments, message):
    with pytest.raises(Failure) as failure:
        said(*arguments)
    assert (str(failure.value), failure.value.exit_code) == (message, 2)
