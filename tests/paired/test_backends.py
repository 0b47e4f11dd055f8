"""What is done to nodes in containers is what is done to processes."""

import os
from itertools import pairwise
from pathlib import Path

from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.runner import backends
from diloco_chaos.chaos.runner.run import run_plan
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.record.tape.events import Merge, Observed, Steady, Step
from small_cluster import SMALL, judged

IMAGE = os.environ.get("DILOCO_CHAOS_BASE") or "python:3.11-slim"
WITHIN = """- {io: syncer, path: "{run}/state/*", error: ENOSPC, at: 3s, for: 2s}
- {hang: learner-2, at: 10s, for: 1s}"""


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
