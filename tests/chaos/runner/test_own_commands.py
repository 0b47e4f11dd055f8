"""A record says which commands this user has started, and where; nobody else can leave one."""

import json
import os

import pytest

from diloco_chaos.chaos.runner.own_commands import commands_of, remember, started_before
from diloco_chaos.chaos.scenario.loading import load, parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.record.undo_log import state_folder


def plan(more=""):
    return freeze(parse(f"""diloco_chaos: 1
name: mine
trainer:
  kind: commands
  nodes:
    store: {{listens: true, run: "store {{port}}", ready: {{url: "http://{{host}}:{{port}}/"}}, cwd: there}}
    work: {{worker: true, count: 2, run: "work {{store}}", image: "mine:1", {more}}}
  progress: [{{node: work, log: '(?P<round>[0-9]+) (?P<loss>.*)'}}]
  rounds: 9
  baseline: {{run: "alone", log: '(?P<round>[0-9]+) (?P<loss>.*)'}}
"""), 0)


@pytest.fixture
def record(tmp_path, monkeypatch):
    """The only record, of a plan that was started from a folder of its own."""
    monkeypatch.chdir(tmp_path)
    remember(plan())
    [path] = (state_folder() / "commands").iterdir()
    return path


def test_all_that_is_executed_is_shown():
    assert commands_of(plan()) == {
        "store": "store {port} (in there, asks http://{host}:{port}/)", "work": "work {store} (image mine:1)",
        "(baseline)": "alone"}


def test_a_plan_of_the_built_in_trainer_is_data_and_leaves_no_record():
    data = freeze(load("flagship")[0], 0)
    remember(data)
    assert not commands_of(data)
    assert started_before(data)
    assert not state_folder().exists()


def test_what_was_started_is_known_from_then_on(record):
    assert started_before(plan())
    assert not started_before(plan("restart: always"))


def test_a_record_can_be_read_and_removed(record, tmp_path):
    assert json.loads(record.read_text()) == {"folder": str(tmp_path), "commands": dict(commands_of(plan()))}
    assert record.parent.stat().st_mode & 0o777 == 0o700
    record.unlink()
    assert not started_before(plan())


def test_a_link_is_no_record(record):
    record.rename(record.with_suffix(".moved"))
    record.symlink_to(record.with_suffix(".moved"))
    assert not started_before(plan())


def test_a_record_of_another_users_is_none(record, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: record.stat().st_uid + 1)
    assert not started_before(plan())


def test_a_state_folder_that_comes_with_the_checkout_is_not_asked(record, tmp_path, monkeypatch):
    """XDG_STATE_HOME=state would be another folder in every folder."""
    state = state_folder().parent
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    state.rename(tmp_path / "state")
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    assert not started_before(plan())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert started_before(plan())
