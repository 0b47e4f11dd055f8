"""What hits a trainer of commands on this machine hits it in containers, too: its files, and a double run."""

import json
import os
from pathlib import Path

import pytest

from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.runner import backends
from diloco_chaos.chaos.runner.run import run_plan
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.record.tape.events import StaleRound

IMAGE = os.environ.get("DILOCO_CHAOS_BASE") or "python:3.11-slim"
SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture
def run_toy(engine_there, tmp_path):
    def run(*faults, child="", worker=None, nodes=None):
        file = tmp_path / "compose.yml"
        file.write_text(f"services: {{toy: {{image: '{IMAGE}', volumes: ['{SUPPORT}:/toy:ro']}}}}\n")
        service = {"service": {"file": str(file), "name": "toy"}}
        trainer = {"kind": "commands", "rounds": 300, "nodes": {
            "hub": service | {"listens": True, "run": "{python} /toy/elastic_toy.py hub {host}:{port}"},
            "worker": service | {"count": 2, "worker": True, "restart": "on-failure",
                                 "run": f"{{python}} /toy/elastic_toy.py worker {{hub}} {child}"} | (worker or {}),
            **{name: service | node for name, node in (nodes or {}).items()}},
            "progress": [{"node": "worker", "log": r"round=(?P<round>\d+) members=(?P<members>\d+)"}]}
        plan = freeze(parse(f"diloco_chaos: 1\nname: toy\ndeadline: 60s\ntrainer: {json.dumps(trainer)}\n"
                            f"faults: [{', '.join(faults)}]\nchecks: {{no_global_stall: {{max_gap: 5s}}}}\n"), 0)
        result = run_plan(plan, tmp_path, NullAudience(), backends.named("compose"))
        return result, {check.name: check for check in result.judgement.checks}
    return run


def log_of(result, process):
    return (result.folder.path / "logs" / f"{process}.log").read_text()


@pytest.mark.parametrize(("kind", "says"), [
    ("corrupt", "what was kept is damaged"), ("truncate", "what was kept is damaged"), ("delete", "nothing was kept")])
def test_files_of_a_workers_state_are_damaged_and_its_successor_reads_them(run_toy, kind, says):
    result, checks = run_toy(f"{{{kind}: worker-1, at: 1s, restart_after: 500ms}}", child="KEEP {run}/state/{name}",
                             worker={"state": "{run}/state/{name}"})
    assert says in log_of(result, "worker-1.1")
    assert checks["faults_verified"].verdict == "passed", checks["faults_verified"]
    assert "made damaged" in checks["faults_verified"].evidence[0]


def test_files_are_written_before_each_start_of_a_container(run_toy):
    reads = "import sys; print(open(sys.argv[1]).read(), flush=True); import time; time.sleep(.2)"
    result, _ = run_toy("{pause: worker-1, at: 1s, for: 300ms}", nodes={"reads": {
        "run": f'{{python}} -c "{reads}" {{run}}/files/{{name}}/conf/at.json', "exits": [0], "restart": "always",
        "restart_delay": "500ms", "files": {"conf/at.json": '{"hub": "{hub}", "is": {"my": "{name}"}}'}}})
    first, second = (json.loads(log_of(result, f"reads.{number}")) for number in (0, 1))
    assert first == second
    assert first["is"] == {"my": "reads"}


def test_a_worker_that_goes_on_beside_its_successor_in_another_container_fails(run_toy):
    result, checks = run_toy("{zombie: worker-1, at: 1s, for: 2s}")
    assert checks["faults_verified"].verdict == "failed", checks["faults_verified"]
    assert "worker-1.0 came back and went on to train beside worker-1.1: it told of round" in (
        checks["faults_verified"].evidence[0])
    assert {event.inc for event in result.history.tape.of(StaleRound, node="worker-1")} == {0}


@pytest.mark.parametrize(("fault", "says"), [("{kill: worker-1/rank-1, at: 1s}", "rank 1 ended with -9"),
                                             ("{pause: worker-1/rank-1, at: 1s, for: 500ms}", "")])
def test_one_of_the_processes_in_a_container_is_hit_and_the_others_go_on(run_toy, fault, says):
    result, checks = run_toy(fault, child="GROUP", worker={"processes": {"rank": r"RANK=(\d+)"}})
    assert checks["faults_verified"].verdict == "passed", checks["faults_verified"]
    assert says in log_of(result, "worker-1.0")
    assert "rank 0" not in log_of(result, "worker-1.0"), "it lived until the end"
    assert "rank" not in log_of(result, "worker-2.0")
