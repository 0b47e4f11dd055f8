"""Predictions of a fleet: tables for people, JSON for programs, a sentence for what can't be."""

import json
import re

import pytest
from typer.testing import CliRunner

from diloco_chaos.chaos.cli import application
from diloco_chaos.chaos.commands.common import Failure
from diloco_chaos.chaos.scenario.loading import load

FEW = ("--replications", "2", "--days", "2", "--jobs", "1")


def said(*arguments):
    """What `fleet` says, at the width of a narrow terminal."""
    done = CliRunner().invoke(application(), ["fleet", *arguments], env={"COLUMNS": "80"})
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


def told(*arguments):
    """Of a few days."""
    return said(*FEW, *arguments)


def test_every_mode_has_a_row_if_none_is_named_and_each_row_fits_a_terminal():
    lines = told("--chips", "150k,1.2M", "--learners", "2,8").splitlines()
    ways = ("data parallel", "elastic data parallel", "decoupled, M = 2", "decoupled, M = 8")
    rows = [line for line in lines if "±" in line]
    assert len(rows) == 8
    for row, chips, way in zip(rows, ["150k"] * 4 + ["1.2M"] * 4, ways * 2, strict=True):
        assert row.split(None, 1)[0] == chips
        assert row.split(None, 1)[1].startswith(way)
    assert max(map(len, lines)) <= 80
    assert "2 replications of 2 days; an interruption every 26.3 s to 3.5 min" in lines


def test_the_columns_say_where_the_rest_of_the_time_goes():
    words = told("--mode", "decoupled", "--straggler-mtbf", "100d", "--spread", "0.01", "--quorum", "3")
    assert "decoupled, M = 8, K = 3" in words
    assert "slow    waiting for the slowest chip of the group" in words
    assert "work since the last checkpoint" not in words


def test_programs_get_every_number_and_the_fleet_that_it_is_of():
    found = json.loads(told("--json", "--mode", "decoupled", "--chips", "300k"))
    (fleet,) = found["fleets"]
    assert fleet["fleet"]["chips"] == 300_000
    assert sum(fleet["states"].values()) == pytest.approx(1)
    assert fleet["goodput"]["mean"] == pytest.approx(0.96, abs=0.02)
    assert fleet["interruptions_every_s"] == pytest.approx(105, rel=0.01)
    assert (found["days"], found["replications"], found["seed"]) == (2, 2, 0)


def test_the_published_table_stands_beside_ours():
    lines = told("--paper").splitlines()
    [chips] = [line for line in lines if line.split()[:1] == ["chips"]]
    assert chips.split()[1:] == ["150k", "300k", "600k", "1.2M", "2.4M"]
    rows = lines[lines.index(chips) + 2:lines.index(chips) + 8]
    assert [line[:22].strip() for line in rows] == [
        "data parallel", "elastic data parallel", "decoupled, M = 2", "decoupled, M = 4", "decoupled, M = 8",
        "decoupled, M = 16"]
    assert all(len(line[22:].split()) == 10 for line in rows)
    assert [line.count("*") for line in rows] == [1, 3, 0, 0, 0, 0]
    assert any(re.match(r"\* fitted; all others are predicted. Off by \d.\d\d points \(rms\)", line) for line in lines)
    assert max(map(len, lines)) <= 80
    cells = json.loads(told("--paper", "--json"))["fleets"]
    assert (len(cells), sum(cell["fitted"] for cell in cells)) == (30, 4)
    assert all(cell["off_by"] == pytest.approx(cell["goodput"]["mean"] - cell["published"]) for cell in cells)


def test_the_numbers_do_not_depend_on_how_many_processes_there_are():
    assert told("--json", "--jobs", "2") == told("--json")


def test_goodput_is_drawn_over_what_there_are_several_of(tmp_path):
    told("--chips", "150k,300k,1.2M", "--learners", "2,8", "--plot", str(tmp_path / "chips.svg"))
    drawing = (tmp_path / "chips.svg").read_text()
    for words in ("data parallel", "elastic data parallel", "decoupled, M = 2", "decoupled, M = 8", "150k", "1.2M"):
        assert f">{words}</text>" in drawing
    told("--mode", "decoupled", "--learners", "2,8", "--repair", "30min,2h", "--plot", str(tmp_path / "learners.svg"))
    drawing = (tmp_path / "learners.svg").read_text()
    for words in ("decoupled, 30 min repair", "decoupled, 2 h repair", "learners (M)"):
        assert f">{words}</text>" in drawing


def test_a_point_becomes_a_scenario_with_the_command_that_runs_it(tmp_path):
    file = tmp_path / "mine.yaml"
    done = CliRunner().invoke(application(), ["fleet", *FEW, "--mode", "decoupled", "--as-scenario", str(file)])
    assert done.exit_code == 0
    assert f"run {file} --seed " in done.stderr
    [predicted] = re.findall(r"and (\d+\.\d%) for this run", file.read_text())
    assert f"goodput {predicted} is predicted" in done.stderr
    assert load(str(file))[0].name == "fleet-decoupled"


def bandwidth(*arguments):
    return said("bandwidth", *arguments)


def test_what_links_between_sites_must_carry_is_told_and_what_gets_through_a_link():
    lines = bandwidth("--parameters", "12B", "--sites", "4", "--step-time", "2s", "--link", "5").splitlines()
    rows = {line[:30].strip(): line[30:].split() for line in lines if "data parallel," in line or "decoupled" in line}
    assert rows["data parallel, bfloat16"] == ["144", "144", "3.5%"]
    assert rows["decoupled"] == ["1.06", "1.06", "100%"]
    assert rows["decoupled, the syncer's site"] == ["4.25", "4.25", "100%"]
    assert max(map(len, lines)) <= 80
    found = json.loads(bandwidth("--link", "5", "--json"))["needed"]
    assert found["data parallel, float32"]["in_time"] == pytest.approx(
        5 / found["data parallel, float32"]["up_gbit_per_s"])


def test_the_published_pairs_stand_beside_ours_with_what_they_assume():
    words = bandwidth("--paper")
    assert "H = 36, outer gradients and broadcasts int4" in words.replace("\n", " ")
    pairs = json.loads(bandwidth("--paper", "--json"))["pairs"]
    assert [one["published_gbit_per_s"] for pair in pairs for one in pair["needed"]] == [198.0, 0.84, 104.0, 1.7]


def test_an_exchange_that_can_not_be_is_told_in_a_sentence_with_exit_code_2():
    with pytest.raises(Failure) as failed:
        bandwidth("--parameters", "0", "--gradients", "int3", "--hidden", "0")
    assert [line.split(":")[0] for line in str(failed.value).splitlines()] == ["--parameters", "--gradients",
                                                                              "--hidden"]
    with pytest.raises(Failure, match="--paper: the exchange is the published one: leave out --sites, --link"):
        bandwidth("--paper", "--sites", "3", "--link", "1")


@pytest.mark.parametrize(("given", "why"), [
    (("--chips", "0"), "--chips: Input should be greater than or equal to 1"),
    (("--chips", "1k", "--learners", "9"), "9 learners, and 4 slices of 256 chips"),
    (("--learners", "two"), "--learners: 'two' is not a count"),
    (("--repair", "1h,-2h"), "--repair: '-2h' is not a duration: write it like 90s, 2h, 30d or 1y"),
    (("--mode", "rigid"), "--mode: Input should be 'data_parallel'"),
    (("--paper", "--chips", "3"), "--paper: the fleet is the published one: leave out --chips, or --paper"),
    (("--workers", "rey"), "--workers rey: local or ray"),
    (("--paper", "--plot", "a.svg"), "leave out --plot, or --paper"),
    (("--paper", "--as-scenario", "a.yaml"), "leave out --as-scenario, or --paper"),
    (("--address", "here"), "--address: of a Ray cluster; say --workers ray, too"),
    (("--plot", "a.pdf"), "name a file that ends in .svg or .png"),
    (("--as-scenario", "a.yaml"), "these are 3 fleets: name one --mode"),
    (("--as-scenario", "a.yaml", "--mode", "decoupled", "--learners", "20"), "20 learners are more than the 16"),
    (("--as-scenario", "a.yaml", "--mode", "decoupled", "--step-time", "2"), "--step-time: '2' is not a duration"),
    (("--plot", "a.svg"), "give several --chips, --learners or --repair"),
    (("--mtbf", "1min", "--repair", "1s"), "take fewer days, or a longer time between them"),
    (("--mode", "data_parallel", "--spares", "3", "--repair", "2h"), "slices are away on average, and it has 3"),
    (("--mtbf", "2d", "--shrink", "1h", "--mode", "elastic_data_parallel"), "nothing is ever trained")])
def test_what_can_not_be_is_told_in_a_sentence_with_exit_code_2(given, why):
    with pytest.raises(Failure) as failed:
        told(*given)
    assert why in str(failed.value)
    assert failed.value.exit_code == 2


def test_all_that_is_wrong_is_told_at_once():
    with pytest.raises(Failure) as failed:
        told("--chips", "0", "--repair", "x", "--mtbf", "1")
    assert [line.split(":")[0] for line in str(failed.value).splitlines()] == ["--chips", "--mtbf", "--repair"]
