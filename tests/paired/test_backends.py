"""The same frozen plan gives the same verdicts as processes and in containers."""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.runner import backends
from diloco_chaos.chaos.runner.run import run_plan
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.record.tape.events import Merge, Observed, Steady, Step

IMAGE = os.environ.get("DILOCO_CHAOS_BASE") or "python:3.11-slim"
SMALL = """diloco_chaos: 1
name: both
deadline: 90s
cluster: {{model: micro, corpus: markov, fragments: 4, batch: 4, learners: 3, budget: {budget}, step_time: 60ms,
          snapshots: 4, heartbeat_timeout: 2s}}
checks: {{reintegration: {{within: 8s}}, no_global_stall: {{max_gap: 5s}}}}
faults:
{faults}
"""

KILLED_MID_UPLOAD = "- {kill: learner-1, when: {node: learner-1, failpoint: upload.half, count: 40}, restart_after: 1s}"
AND_MORE = KILLED_MID_UPLOAD + """
- {partition: learner-2, at: 8s, for: 2s}
- {kill: syncer, at: 13s, restart_after: 1s}"""

WITHIN = """- {io: syncer, path: "{run}/state/*", error: ENOSPC, at: 3s, for: 2s}
- {hang: learner-2, at: 10s, for: 1s}"""


def judged(plan, folder, place):
    """The run; once more if the machine had so much else to do that a check could not tell."""
    result = run_plan(plan, folder / place.name, NullAudience(), place)
    untold = any(check.verdict == "unknown" for check in result.judgement.checks)
    return run_plan(plan, folder / place.name, NullAudience(), place) if untold else result


def test_a_plan_gives_the_same_verdicts_as_processes_and_in_containers(engine_there, tmp_path):
    plan = freeze(parse(SMALL.format(faults=AND_MORE, budget=320)), 0)
    verdicts = {}
    for place in (backends.named("local"), backends.named("compose")):
        result = judged(plan, tmp_path, place)
        assert result.folder.plan().digest == plan.digest
        verdicts[place.name] = {check.name: check.verdict for check in result.judgement.checks}
    assert verdicts["local"] == verdicts["compose"]
    assert set(verdicts["local"].values()) == {"passed"}


@pytest.mark.parametrize("mode", ["streaming", "diloco", "data_parallel", "elastic_data_parallel"])
def test_the_rivals_are_broken_alike_as_processes_in_containers_and_under_virtual_time(engine_there, tmp_path, mode):
    # Everybody waits for who was killed: for as long as a process takes to load torch, 4 s on the slowest machine seen.
    plan = freeze(parse(SMALL.format(faults=KILLED_MID_UPLOAD, budget=160).replace(
        "model: micro", f"mode: {mode}, model: micro").replace("max_gap: 5s", "max_gap: 8s")), 0)
    verdicts = {}
    for place in (backends.named("simulated"), backends.named("local"), backends.named("compose")):
        result = judged(plan, tmp_path, place)
        assert result.outcome.kind == "finished", result.outcome.message
        verdicts[place.name] = {check.name: check.verdict for check in result.judgement.checks}
    assert verdicts["local"] == verdicts["compose"] == verdicts["simulated"]
    others_pay = {name: verdict for name, verdict in verdicts["local"].items() if verdict != "passed"}
    assert others_pay == {"blast_radius": "failed"}


def test_files_fail_and_a_main_thread_hangs_in_containers_as_in_processes(engine_there, tmp_path):
    plan = freeze(parse(SMALL.format(faults=WITHIN, budget=240)), 0)
    for place in (backends.named("local"), backends.named("compose")):
        result = judged(plan, tmp_path, place)
        verdicts = {check.name: check.verdict for check in result.judgement.checks}
        assert result.outcome.kind == "finished", result.outcome.message
        assert (verdicts["faults_verified"], verdicts["all_undone"]) == ("passed", "passed"), result.judgement.checks


def test_connections_between_containers_that_no_command_names_are_caught(engine_there, tmp_path):
    """A fault hits those, too, also where they are made while it lasts, by a container that was started again."""
    result = of_toy(tmp_path, MET, MEETING)
    verdicts = {check.name: check.verdict for check in result.judgement.checks}
    assert (verdicts["faults_verified"], verdicts["all_undone"]) == ("passed", "passed"), result.judgement.checks
    steady = result.history.tape.of(Steady)[0].t
    spans = {span.id: (span.injected, span.ended) for span in result.history.spans}
    assert {event.inc for event in result.history.tape.of(Step, node="worker-2")} == {0, 1}
    slow = gaps(result, "worker-2", max(spans["f1"][0], spans["f2"][1]) + 1.5, spans["f1"][1])
    quick = gaps(result, "worker-2", steady, spans["f1"][0])
    assert min(slow) > 0.15 > sorted(quick)[len(quick) // 2], (slow, quick)
    alone = {part.learner for event in result.history.tape.of(Merge) for part in event.contributions
             if spans["f3"][0] + 0.5 < event.t < spans["f3"][1] - 0.1}
    assert alone == {"worker-2"}


def gaps(result, node, start, end):
    times = [event.t for event in result.history.tape.of(Step, node=node) if start < event.t < end]
    return [later - earlier for earlier, later in pairwise(times)]


SUPPORT = Path(__file__).parents[1] / "support"
TOY = """diloco_chaos: 1
name: toy
deadline: 60s
trainer:
  kind: commands
  nodes:
    hub:
      service: {{file: "{file}", name: toy}}
      run: "{{python}} /toy/elastic_toy.py hub {hub}
    worker:
      count: 2
      worker: true
      service: {{file: "{file}", name: toy}}
      run: "{{python}} /toy/elastic_toy.py worker {worker}
      restart: on-failure
  progress: [{{node: worker, log: 'round=(?P<round>\\d+) members=(?P<members>\\d+) loss=(?P<loss>\\S+)'}}]
  rounds: 420
"""
NAMED = {"hub": '{host}:{port}"\n      listens: true', "worker": '{hub}"'}
MET = {"hub": '0.0.0.0@{run}/state/hub.address"', "worker": '@{run}/state/hub.address"\n      peers: caught'}
COMMANDS = """faults:
- {kill: worker-1, at: 1s, restart_after: 500ms}
- {latency: worker-2.hub, at: 3s, for: 1s, delay: 80ms}
- {partition: worker-2, at: 5s, for: 1s}
- {disconnect: worker-1, at: 8s, for: 1s}
checks: {no_global_stall: {max_gap: 3s}, loss_parity: {against_baseline: 5%}, blast_radius: {at_least: 5%}}
"""
MEETING = """faults:
- {latency: worker-2.hub, at: 2s, for: 6s, delay: 80ms}
- {kill: worker-2, at: 3s, restart_after: 500ms}
- {partition: worker-1, at: 10s, for: 2s}
checks: {no_global_stall: {max_gap: 5s}}
"""


def of_toy(folder, nodes, faults, more=""):
    """Run the toy in containers of a service of its own."""
    file = folder / "compose.yml"
    file.write_text(f"services: {{toy: {{image: '{IMAGE}', volumes: ['{SUPPORT}:/toy:ro']{more}}}}}\n")
    plan = freeze(parse(TOY.format(file=file, **nodes) + faults), 0)
    return run_plan(plan, folder, NullAudience(), backends.named("compose"))


def test_a_trainer_of_commands_runs_in_containers_of_a_service_of_its_own(engine_there, tmp_path):
    from diloco_chaos.harness.places.compose.engine import DockerEngine
    result = of_toy(tmp_path, NAMED, COMMANDS, ", environment: {A: b}")
    verdicts = {check.name: check.verdict for check in result.judgement.checks}
    assert {name for name, verdict in verdicts.items() if verdict == "passed"} >= {
        "reintegration", "rounds_never_go_back", "no_unplanned_exit", "faults_verified", "all_undone", "loss_parity"}, (
        result.judgement.checks)
    assert {event.inc for event in result.history.tape.of(Step, node="worker-1")} == {0, 1}
    [delayed] = [event for event in result.history.tape.of(Observed) if event.fault == "f2"]
    assert 0.07 <= delayed.observed["delay_s"] <= 0.12
    assert delayed.observed["connections_after"] == 1
    engine = DockerEngine()
    left = [thing for thing in engine.labelled() if result.folder.path.name.lower() in thing.name]
    engine.close()
    assert left == []
