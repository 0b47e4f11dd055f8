"""Runs are found by how their names begin, listed, and opened."""

import json
import os

import pytest
from typer.testing import CliRunner

from diloco_chaos.chaos.cli import application
from diloco_chaos.chaos.commands.common import Failure
from diloco_chaos.chaos.evidence.run_folder import FolderError, named
from diloco_chaos.harness.base.processes import identity

NAMES = ["20260101-120000-mine-0000aaaa", "20260102-120000-mine-0000bbbb", "20260102-130000-yours-0000cccc"]
REPORTS = [{"exit_code": 0, "checks": []},
           {"exit_code": 1, "checks": [{"name": "uptime", "verdict": "failed", "measured": "12%", "bound": "",
                                        "figures": [{"value": 0.12, "limit": 0.2, "best": 1.0, "unit": "share"}]},
                                       {"name": "goodput", "verdict": "passed", "measured": "99%", "bound": ""}]},
           {"exit_code": 3, "checks": [], "inconclusive": "this machine is too busy"}]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with three runs in runs/, and things that are none."""
    for name, report in zip(NAMES, REPORTS, strict=True):
        (tmp_path / "runs" / name / "tape").mkdir(parents=True)
        (tmp_path / "runs" / name / "plan.json").write_text("{}")
        (tmp_path / "runs" / name / "report.json").write_text(json.dumps(report))
    (tmp_path / "runs" / "20260103-120000-odd-0000dddd").mkdir()
    (tmp_path / "runs" / "20260104-120000-link-0000eeee").symlink_to(tmp_path / "runs" / NAMES[0])
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def said(*arguments):
    return CliRunner().invoke(application(), list(arguments))


def test_a_run_is_found_by_how_its_name_begins_and_the_latest_by_that_word(here):
    assert named("20260101").name == NAMES[0]
    assert named("20260102-13").name == NAMES[2]
    assert named("latest").name == NAMES[2]
    assert named(f"runs/{NAMES[1]}").name == NAMES[1]
    assert named("yours").name == NAMES[2], "or else by a part of it"
    with pytest.raises(FolderError, match="nothing: no such folder, and no run in runs is called like that"):
        named("nothing")


def test_a_name_that_several_runs_have_is_told_with_theirs(here):
    with pytest.raises(FolderError, match=f"20260102: 2 runs are called like that: {NAMES[1]}, {NAMES[2]}; say more"):
        named("20260102")


def test_without_runs_there_is_no_latest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FolderError, match="latest: there are no runs in runs"):
        named("latest")


def test_runs_are_listed_with_what_did_not_hold(here):
    told = json.loads(said("runs", "--json").stdout)["runs"]
    assert [(one["run"], one["exit_code"], one["why"]) for one in told] == [
        (NAMES[0], 0, ""), (NAMES[1], 1, "uptime 12%"), (NAMES[2], 3, "this machine is too busy")]
    assert [one["run"] for one in json.loads(said("runs", "mine", "--last", "1", "--json").stdout)["runs"]] == [
        NAMES[1]]
    assert [one["tightest"] for one in told] == [None, {"check": "uptime", "used": pytest.approx(1.1)}, None]
    assert "FAILED" in said("runs").stdout
    assert said("runs", "zzz").stdout == "no runs in runs have 'zzz' in their name\n"


def test_a_run_that_is_not_judged_is_listed_all_the_same(here):
    (here / NAMES[0] / "report.json").write_text("[torn")
    assert "not judged" in said("runs").stdout


def test_a_page_is_opened_or_its_place_is_told(here, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda uri: opened.append(uri) or True)
    (here / NAMES[2] / "report.html").write_text("<!doctype html>")
    assert said("open").stdout == ""
    assert opened == [(here / NAMES[2] / "report.html").as_uri()]
    assert said("open", "--print").stdout == f"{here / NAMES[2] / 'report.html'}\n"
    monkeypatch.setattr("webbrowser.open", lambda uri: False)
    assert said("open").stdout == f"{here / NAMES[2] / 'report.html'}\n"


def test_a_run_that_goes_on_has_no_page_yet(here):
    (here / NAMES[0] / "report.json").unlink()
    mine = identity(os.getpid())
    (here / NAMES[0] / "manifest.json").write_text(json.dumps({"harness": list(mine)}))
    done = said("open", NAMES[0])
    assert isinstance(done.exception, Failure)
    assert "this run still goes on" in str(done.exception)
