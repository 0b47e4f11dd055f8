"""The package as its users have it: installed beside diloco-chaos, used by names alone."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from acme_chaos.places import Nice

from diloco_chaos import Backend, freeze, launch, load, simulate


def command(*arguments, code=0):
    """What `diloco-chaos` prints; it must end with this exit code."""
    done = subprocess.run([Path(sys.executable).with_name("diloco-chaos"), *map(str, arguments)],
                          capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def until(condition, seconds=60.0):
    """Wait for what must come."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)


def judged_in(runs):
    """The folder of the newest run that was judged."""
    return next(path for path in sorted(runs.iterdir(), reverse=True) if (path / "report.json").exists())


def test_the_scenario_is_in_the_library():
    assert "nic-brownout" in command("list")
    assert "learner-2 in a brownout (+20 ms, 1 MB/s) for 4.0 s, at 3.0 s" in command("show", "nic-brownout")
    assert "1 valid" in command("validate", "nic-brownout")


def test_the_schema_knows_the_fault_and_the_check():
    schema = json.loads(command("schema"))
    assert set(schema["$defs"]["fault_nic_brownout"]["properties"]) >= {"nic_brownout", "delay", "rate", "for"}
    assert "reconnects" in schema["$defs"]["Bounds"]["properties"]


def test_mistakes_are_told_like_those_of_built_in_faults(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("diloco_chaos: 1\nname: mine\nfaults:\n  - {nic_brownot: learner-1, at: 1s}\n"
                    "  - {nic_brownout: learner-1, at: 1s, for: 1s, rte: 1MB/s}\nchecks:\n  reconnects: {at_most: -1}\n"
                    "  reconects: {}\n")
    said = command("validate", path, code=2)
    assert "no fault 'nic_brownot'; did you mean 'nic_brownout'?" in said
    assert "5:48: unknown key 'rte'; did you mean 'rate'?" in said
    assert "checks.reconnects.at_most" in said
    assert "unknown key 'reconects'; did you mean 'reconnects'?" in said


@pytest.mark.parametrize("on", ["simulated", "acme-far", "local", "acme-nice"])
def test_it_runs_and_is_in_the_report(on, tmp_path):
    said = command("run", "nic-brownout", "--on", on, "--step-time", "auto", "--runs-dir", tmp_path,
                   "--retries-inconclusive", "2", "--verbose")
    assert "reconnects" in said
    assert "in a brownout" in said
    folder = judged_in(tmp_path)
    providers = json.loads((folder / "plan.json").read_text())["providers"]
    assert providers == {"fault nic_brownout": "acme-chaos 1.2", "check reconnects": "acme-chaos 1.2"}
    assert re.fullmatch(r"nic-brownout: \d+ checks, all passed\n", command("check", folder, "--report", "one-line"))


def test_the_trainer_is_one_of_the_cluster_section_in_the_schema():
    schema = json.loads(command("schema"))
    assert "acme-walk" in schema["properties"]["trainer"]["anyOf"][0]["enum"]
    assert "target" in schema["$defs"]["WalkSettings"]["properties"]


@pytest.mark.parametrize("on", ["simulated", "local"])
def test_the_trainer_is_killed_judged_and_reported_like_the_built_in_one(on, tmp_path):
    said = command("run", "walk-kill", "--on", on, "--step-time", "auto", "--runs-dir", tmp_path,
                   "--retries-inconclusive", "2", "--verbose")
    assert "PASSED  walk-kill · " in said
    assert {"self_healing", "reintegration", "exactly_once", "goodput"} <= set(said.replace(",", " ").split())
    assert "quorum_respected" not in said, "it exchanges no fragments"
    folder = judged_in(tmp_path)
    assert json.loads((folder / "plan.json").read_text())["providers"]["trainer acme-walk"] == "acme-chaos 1.2"
    assert "trainer acme-walk can't be replayed" in command("replay", folder, code=2)


def test_mistakes_are_told_by_what_the_trainer_has(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("diloco_chaos: 1\nname: mine\ntrainer: acme-walk\ncluster: {targt: 2}\n")
    assert "4:11: unknown key 'targt'; did you mean 'target'?" in command("validate", path, code=2)
    path.write_text("diloco_chaos: 1\nname: mine\ntrainer: acme-wlk\n")
    assert "no trainer 'acme-wlk'; did you mean 'acme-walk'?" in command("validate", path, code=2)
    path.write_text("diloco_chaos: 1\nname: mine\ntrainer: acme-walk\nfaults:\n  - {poison: learner-1, at: 1s}\n"
                    "  - {kill: learner-1, when: {node: learner-1, failpoint: upload.half}}\n"
                    "checks:\n  loss_parity: {against_synchronous: 2%}\n")
    said = command("validate", path, code=2)
    assert "5:5: poison: trainer acme-walk does not know it" in said
    assert "6:5: no failpoint 'upload.half'. Trainer acme-walk has none" in said
    assert "8:3: loss_parity: trainer acme-walk writes no snapshots" in said


def test_the_trainer_is_explored_and_what_breaks_is_shrunk(tmp_path):
    path = tmp_path / "strict.yaml"
    path.write_text("diloco_chaos: 1\nname: strict\ntrainer: acme-walk\n"
                    "cluster: {learners: 3, budget: 150 steps, step_time: 60ms}\nchecks:\n  reconnects: {at_most: 0}\n")
    said = command("explore", path, "--faults", "kill,straggler", "--runs", 8,
                   "--corpus-dir", tmp_path / "found", code=1)
    assert "reconnects" in said
    found = (tmp_path / "found" / "reconnects.yaml").read_text()
    assert "trainer: acme-walk" in found
    assert found.count("kill:") == 1
    assert "straggler" not in found


def test_the_check_can_fail():
    result = simulate(freeze(load("nic-brownout")[0], 0))
    assert {one.name: one.verdict for one in result.judgement.checks}["reconnects"] == "passed"


def test_it_is_drawn_and_what_breaks_the_check_is_shrunk(tmp_path):
    path = tmp_path / "strict.yaml"
    path.write_text("diloco_chaos: 1\nname: strict\nextends: base\nchecks:\n  reconnects: {at_most: 0}\n")
    said = command("explore", path, "--faults", "nic_brownout,reset", "--runs", 8,
                   "--corpus-dir", tmp_path / "found", code=1)
    assert "reconnects" in said
    found = sorted((tmp_path / "found").glob("*.yaml"))
    assert found
    assert all("nic_brownout" not in one.read_text() and "reset" in one.read_text() for one in found)


def test_the_doctor_names_the_package_and_looks_at_its_places():
    said = command("doctor")
    assert "acme-far, acme-nice of acme-chaos 1.2" in " ".join(said.split())
    assert "nice " in command("doctor", "--on", "acme-nice")


# -- a place of our own ------------------------------------------------------------------------------------------------


def test_a_run_there_gives_way_as_far_as_its_option_says(tmp_path):
    with launch("walk-kill", on=Backend(Nice(7)), step_time="auto", runs=tmp_path, must_pass=False) as run:
        run.wait_steady()
        spawned = [json.loads(line) for line in next(tmp_path.glob("*/tape/harness.0.jsonl")).read_text().splitlines()
                   if '"spawn"' in line]
        assert {os.getpriority(os.PRIO_PROCESS, event["pid"]) for event in spawned} == {7}
        assert {event["target"] for event in spawned} == {"syncer", "learner-1", "learner-2", "learner-3"}


def test_what_it_can_not_do_is_refused_in_its_own_words_with_the_places_that_can():
    assert ("out_of_memory: processes that give way share their memory with all others: run it with --on compose, "
            "kubernetes, simulated or acme-far") in command("run", "out-of-memory", "--on", "acme-nice", code=2)
    assert ("disconnect: processes that give way can't do that: run it with --on compose, simulated or acme-far"
            ) in command("run", "unplugged", "--on", "acme-nice", code=2)


def test_other_places_name_it_where_it_can_do_what_they_can_not(tmp_path):
    path = tmp_path / "ranks.yaml"
    path.write_text("diloco_chaos: 1\nname: ranks\ntrainer:\n  kind: commands\n  nodes: {a: {worker: true, run: ls, "
                    "processes: {rank: 'RANK=([0-9])'}}}\n  progress: [{node: a, written: true}]\n"
                    "faults: [{kill: a/rank-1, at: 1s}]\n")
    assert "with --on compose, kubernetes, local or acme-nice" in command("run", path, "--on", "simulated", code=2)


def test_its_option_is_one_of_the_command_line_and_of_no_other_place():
    assert "--acme-niceness" in command("run", "--help")
    assert ("--acme-niceness: --on local has no such option; leave it out, or run it with --on acme-nice"
            ) in command("run", "nic-brownout", "--acme-niceness", 5, code=2)
    assert "Invalid value for '--acme-niceness'" in command(
        "run", "nic-brownout", "--on", "acme-nice", "--acme-niceness", 20, code=2)


def test_a_harness_that_is_killed_there_leaves_nothing(tmp_path):
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}
    logs = tmp_path / "state" / "diloco-chaos" / "undo-logs"
    running = subprocess.Popen(
        [Path(sys.executable).with_name("diloco-chaos"), "run", "nic-brownout", "--on", "acme-nice", "--step-time",
         "auto", "--runs-dir", tmp_path / "runs"],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: running.poll() is None and any("toxic" in log.read_text() for log in logs.glob("*.jsonl")))
    finally:
        running.kill()
        running.wait()
    until(lambda: not list(logs.glob("*.jsonl")))
