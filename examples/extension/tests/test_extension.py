"""The package as its users have it: installed beside diloco-chaos, used by names alone."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from diloco_chaos import freeze, load, simulate


def command(*arguments, code=0):
    """What `diloco-chaos` prints; it must end with this exit code."""
    done = subprocess.run([Path(sys.executable).with_name("diloco-chaos"), *map(str, arguments)],
                          capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


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


@pytest.mark.parametrize("on", ["simulated", "acme-far", "local"])
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


def test_the_doctor_names_the_package():
    assert "acme-chaos 1.2" in command("doctor")
