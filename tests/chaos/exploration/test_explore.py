"""Explorations: what they find, and that nothing of what they found is lost."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.measure.planted import BASE, PLANTED
from diloco_chaos.chaos.exploration.corpus import ExplorationError, Seed, TriedSchedule
from diloco_chaos.chaos.exploration.explore import (
    ROUND,
    SCHEDULES,
    Exploration,
    ExplorationJob,
    Search,
    as_json,
    attempt,
    explore,
    roomy,
    rounds,
)
from diloco_chaos.chaos.exploration.report import show
from diloco_chaos.chaos.exploration.strategies import scenario
from diloco_chaos.chaos.runner.simulate import simulate
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.base.workers import InProcess, WorkerProcesses

SHORT = scenario(budget="60 steps")
"""For what does not ask what is found."""


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found_and_shrunk_to_a_file_that_repeats_it(bug, tmp_path, monkeypatch):
    check = PLANTED[bug](monkeypatch)
    state = explore(Search(BASE), tmp_path, InProcess(SCHEDULES), runs=960,
                    stop=lambda state: check in state.found)
    _, path = state.found[check]
    found = parse(path.read_text())
    assert len(found.faults) <= 3
    assert check in simulate(freeze(found, 0)).failed
    monkeypatch.undo()
    assert check not in simulate(freeze(found, 0)).failed


def test_a_drawn_cluster_has_of_the_domains_what_is_there():
    racks = BASE.model_copy(update={"domains": {"rack-1": ("learner-1", "learner-2"), "rack-2": ("learner-3",)}})
    drawn = [Search(racks, draws_clusters=True).base(number) for number in range(20)]
    assert {len(base.cluster.names) for base in drawn} >= {2, 4}
    assert all({name for names in base.domains.values() for name in names} <= {*base.cluster.names} for base in drawn)
    assert all(("rack-2" in base.domains) == ("learner-3" in base.cluster.names) for base in drawn)


@given(goal=st.integers(0, 500))
def test_rounds_are_short_at_first_and_take_every_schedule_once(goal):
    drawn = list(rounds(goal))
    assert [number for numbers in drawn for number in numbers] == list(range(goal))
    assert all(len(numbers) <= max(8, min(numbers[0], ROUND)) for numbers in drawn)


def fingerprint(folder):
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    return sorted(json.dumps(line, sort_keys=True) for line in lines)


def test_the_results_do_not_depend_on_the_number_of_workers(tmp_path):
    explore(Search(SHORT, 3), tmp_path / "one", InProcess(SCHEDULES), runs=12)
    pool = WorkerProcesses(SCHEDULES, 2)
    explore(Search(SHORT, 3), tmp_path / "two", pool, runs=12)
    pool.close()
    assert fingerprint(tmp_path / "one") == fingerprint(tmp_path / "two")


def test_a_worker_that_is_killed_loses_no_result(tmp_path):
    pool = WorkerProcesses(SCHEDULES, 2)
    killed = []

    def kill_once(state):
        if state.done >= 6 and not killed:
            killed.append(next(iter(pool._pool._processes)))
            os.kill(killed[0], signal.SIGKILL)
    state = explore(Search(SHORT, 4), tmp_path, pool, runs=18, tell=kill_once)
    pool.close()
    assert killed
    assert [tried.number for tried in state.tried] == list(range(18))


def test_an_exploration_that_was_killed_goes_on_where_it_was(tmp_path):
    short = tmp_path / "short.yaml"
    short.write_text(as_json(SHORT))
    command = [sys.executable, "-m", "diloco_chaos", "explore", str(short), "--runs", "10", "--seed", "7",
               "--corpus-dir", str(tmp_path / "killed"), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    results = tmp_path / "killed" / "results.jsonl"
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        if results.exists() and results.stat().st_size > 1000:
            break
        time.sleep(0.02)
    process.kill()
    process.wait()
    with open(results, "a") as file:
        file.write('{"number": 9, "fau')  # the kill came in the middle of a line
    before = len(results.read_text().splitlines()) - 1
    assert 0 < before < 10
    whole = [*command[:-2], str(tmp_path / "whole"), "--json"]
    codes = {subprocess.run(words, check=False, capture_output=True).returncode for words in (command, whole)}
    assert codes == {3}, "training is too short here to decide anything"
    assert fingerprint(tmp_path / "killed") == fingerprint(tmp_path / "whole")


def test_a_folder_of_another_exploration_is_refused(tmp_path):
    explore(Search(SHORT), tmp_path, InProcess(SCHEDULES), runs=1)
    with pytest.raises(ExplorationError, match="name another folder with --corpus-dir"):
        explore(Search(SHORT, 2), tmp_path, InProcess(SCHEDULES), runs=1)


@pytest.mark.parametrize(("name", "make", "why"), [
    ("exploration.json", lambda path: path.write_text("[1]"), "can't be used: exploration.json holds no settings"),
    ("exploration.json", os.mkfifo, "exploration.json: not a plain file; .* remove it"),
    ("failing", lambda path: path.symlink_to("/tmp"), "failing: not a plain file; .* remove it"),
    ("results.jsonl", lambda path: path.symlink_to("/dev/zero"), "results.jsonl: not a plain file; .* remove it"),
    ("results.jsonl", lambda path: path.write_bytes(b"x" * (1 << 24) + b"\n"), "line 1: is no result")])
def test_a_folder_in_which_somebody_else_put_something_is_refused(tmp_path, name, make, why):
    explore(Search(SHORT), tmp_path, InProcess(SCHEDULES), runs=1)
    there = tmp_path / name
    if there.is_file():
        there.unlink()
    make(there)
    with pytest.raises(ExplorationError, match=why):
        explore(Search(SHORT), tmp_path, InProcess(SCHEDULES), runs=1)


def test_what_was_there_already_is_told(tmp_path):
    explore(Search(SHORT), tmp_path, InProcess(SCHEDULES), runs=2)
    state = explore(Search(SHORT), tmp_path, InProcess(SCHEDULES), runs=3)
    out = io.StringIO()
    show(state, Console(file=out, width=100))
    assert "2 of them were there already" in out.getvalue()


def test_one_that_is_over_goes_on_where_it_was(tmp_path):
    first = explore(Search(SHORT), tmp_path, InProcess(SCHEDULES), runs=3)
    state = explore(Search(SHORT), tmp_path, InProcess(SCHEDULES), runs=3)
    assert len(state.tried) == 6
    assert state.tried[:3] == first.tried


def test_another_version_begins_with_what_the_one_before_had_found_or_seen_first(tmp_path, monkeypatch):
    PLANTED["double_merge"](monkeypatch)
    before = explore(Search(BASE), tmp_path, InProcess(SCHEDULES), runs=12)
    assert "exactly_once" in before.found
    monkeypatch.undo()
    monkeypatch.setattr("diloco_chaos.chaos.exploration.explore.source_digest", lambda: "another version")
    state = explore(Search(BASE), tmp_path, InProcess(SCHEDULES), runs=12)
    seeds = [json.loads(line)["faults"] for line in (tmp_path / "seeds.jsonl").read_text().splitlines()]
    assert [list(tried.faults) for tried in state.tried[:len(seeds)]] == seeds[:12]
    broke = [list(tried.faults) for tried in before.tried if tried.failed]
    assert all(faults in seeds for faults in broke)
    assert len(seeds) < 12
    assert state.found == {}
    assert (tmp_path / "earlier" / "exactly-once.yaml").exists()
    assert not (tmp_path / "exactly-once.yaml").exists()


def test_a_seed_has_the_cluster_that_it_was_drawn_with(tmp_path, monkeypatch):
    search = Search(SHORT, draws_clusters=True)
    explore(search, tmp_path, InProcess(SCHEDULES), runs=6)
    monkeypatch.setattr("diloco_chaos.chaos.exploration.explore.source_digest", lambda: "another version")
    state = explore(search, tmp_path, InProcess(SCHEDULES), runs=6)
    seeds = [json.loads(line) for line in (tmp_path / "seeds.jsonl").read_text().splitlines()]
    again = search.again(0, Seed(**seeds[0]))
    assert json.loads(again.scenario)["cluster"]["learners"] == search.base(seeds[0]["number"]).cluster.learners
    assert state.tried[0].faults == tuple(seeds[0]["faults"])


def test_a_run_is_judged_without_the_faults_whose_moment_never_came():
    never = {"kill": "learner-1", "when": {"node": "syncer", "event": "hello", "count": 3}, "restart_after": "1s"}
    job = ExplorationJob(number=0, scenario=as_json(BASE), faults=(never,))
    tried = attempt(job)
    assert tried.outcome == "finished"
    assert not any("never" in why for _, why in tried.undecided)
    assert "faults_verified" not in dict(tried.undecided)


@pytest.mark.parametrize(("faults", "times"), [
    ((), 1.0), (({"pause": "learner-1", "at": "2s", "for": "500ms"},), 1.0),
    (({"kill": "syncer", "at": "4s", "restart_after": "1s"},), 1.5),
    (({"kill": "syncer", "at": "5s", "restart_after": "3s"},
      {"partition": "learner-1", "after": "f1", "for": "3s"}), 2.0)])
def test_a_run_has_time_to_show_how_its_faults_heal(faults, times):
    assert roomy(BASE, faults).cluster.budget == BASE.cluster.budget * times


def shown(*undecided, found=False):
    """What is said of schedules that left these checks undecided, and the exit code."""
    def why(checks, number):
        return [(check, f"f{number}: it took {number}.5 s") for check in checks]
    state = Exploration([TriedSchedule(number=number, faults=(), outcome="finished", undecided=why(checks, number),
                                       failed=("uptime",) if found and not number else ())
                         for number, checks in enumerate(undecided)])
    if found:
        state.found["uptime"] = state.tried[0], Path("uptime.yaml")
    out = io.StringIO()
    show(state, Console(file=out, width=100))
    return out.getvalue(), state.exit_code


def test_it_is_told_how_many_schedules_were_decided():
    words, code = shown((), ("reintegration",), (), ("reintegration", "uptime"))
    assert "4 run, 2 decided" in words
    assert "2 inconclusive reintegration: f1: it took 1.5 s" in words
    assert "1 inconclusive uptime: f3" in words
    assert "nothing broke where it was decided" in words
    assert code == 0


def test_where_too_few_were_decided_nobody_says_that_nothing_broke():
    words, code = shown((), ("uptime",), ("uptime",))
    assert "3 run, 1 decided" in words
    assert "nothing broke where" not in words
    assert "too few were decided" in words
    assert code == 3


def test_what_broke_is_a_find_however_few_were_decided():
    words, code = shown(("reintegration",), ("uptime",), ("uptime",), found=True)
    assert "3 run, 1 decided" in words
    assert code == 1


def test_a_line_that_is_no_result_is_named(tmp_path):
    explore(Search(SHORT), tmp_path, InProcess(SCHEDULES), runs=2)
    results = tmp_path / "results.jsonl"
    results.write_text(results.read_text() + "garbage{{\n")
    with pytest.raises(ExplorationError, match=r"results\.jsonl, line 4: is no result"):
        explore(Search(SHORT), tmp_path, InProcess(SCHEDULES), runs=4)


def test_a_run_that_crashes_is_a_find(monkeypatch):
    monkeypatch.setattr("diloco_chaos.chaos.exploration.perform.simulate", lambda plan: 1 / 0)
    job = ExplorationJob(number=7, scenario=BASE.model_dump_json(by_alias=True, exclude_unset=True),
                         faults=({"kill": "learner-1", "at": "3s", "restart_after": "1s"},))
    tried = attempt(job)
    assert tried.failed == ("crashed",)
    assert "ZeroDivisionError" in tried.evidence[0]
