"""What each place can do."""

from unittest.mock import Mock

import pytest

from diloco_chaos.chaos.runner.backends import named
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.chaos.scenario.problems import ScenarioError
from diloco_chaos.harness.base.registries import ProviderError
from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.registry import places
from packages import installed


@pytest.fixture
def needs_containers(scenario_text):
    return freeze(parse(scenario_text("{out_of_memory: learner-1, at: 1s}", "{kill: learner-2, at: 1s}")), 0)


def test_what_only_containers_have_is_refused_elsewhere_before_anything_starts(needs_containers):
    assert named("local").refusals(needs_containers) == [
        "out_of_memory: processes alone can't do that: run it with --on compose, kubernetes or simulated"]
    with pytest.raises(ScenarioError, match="processes alone can't do that"):
        named("local").refuse(needs_containers)


def test_what_every_place_can_do_is_refused_nowhere(scenario_text):
    plan = freeze(parse(scenario_text("{kill: learner-1, at: 1s}", "{join: learner-3, at: 1s}")), 0)
    assert named("local").refusals(plan) == []


def test_processes_of_a_node_are_told_apart_here_and_in_containers():
    plan = freeze(parse("diloco_chaos: 1\nname: x\ntrainer:\n  kind: commands\n  nodes: {a: {worker: true, run: ls, "
                        "processes: {rank: 'RANK=([0-9])'}}}\n  progress: [{node: a, written: true}]\n"
                        "faults: [{kill: a/rank-1, at: 1s}]\n"), 0)
    assert named("local").refusals(plan) == []
    assert named("simulated").refusals(plan)[0] == (
        "kill_process: the processes of a node can't be told apart there: run it with --on compose, kubernetes or "
        "local")


def test_files_are_looked_at_where_they_are_on_this_machine_only():
    plan = freeze(parse("diloco_chaos: 1\nname: x\ntrainer:\n  kind: commands\n  nodes: {a: {worker: true, run: ls}}\n"
                        "  progress: [{node: a, written: true}]\n"
                        "faults: [{kill: a, when: {node: a, file: '{run}/x'}}]\n"), 0)
    assert named("local").refusals(plan) == []
    assert "kill: `file:`: files of nodes are on another machine there" in named("slurm").refusals(plan)[0]


def test_rounds_are_read_from_files_of_nodes_on_this_machine_only():
    plan = freeze(parse("diloco_chaos: 1\nname: x\ntrainer:\n  kind: commands\n  nodes: {a: {worker: true, run: ls, "
                        "files: {a: b}}}\n  progress: [{node: a, metrics: '{run}/state/{name}.jsonl'}]\n"), 0)
    assert named("local").refusals(plan) == []
    assert named("slurm").refusals(plan) == [
        "progress: {run}/state/{name}.jsonl: files of nodes are on another machine there, and are not read: write "
        "`log: '...'` for lines that the node prints, or `written: true`"]


def test_what_repeats_a_run_names_its_place():
    assert [place.option for place in (named("local"), named("simulated"))] == ["", " --on simulated"]


def test_a_simulation_says_that_it_has_no_engine(scenario_text, monkeypatch):
    monkeypatch.setenv("DILOCO_CHAOS_ENGINE_RESTART", "/bin/true")
    plan = freeze(parse(scenario_text("{restart_engine: syncer, at: 3s}")), 0)
    assert "no engine in a simulation" in named("simulated").refusals(plan)[0]


def test_a_command_that_restarts_it_and_can_not_be_split_is_told_before_anything_starts(monkeypatch):
    monkeypatch.setenv("DILOCO_CHAOS_ENGINE_RESTART", "sh -c 'restart")
    monkeypatch.setattr("diloco_chaos.harness.places.compose.engine.DockerEngine", Mock())
    with pytest.raises(ClusterError, match=r"DILOCO_CHAOS_ENGINE_RESTART: .* can't be taken apart: No closing"):
        named("compose")


@pytest.mark.parametrize("command", ["", "docker/engine.sh restart /tmp"])
def test_an_engine_is_restarted_only_where_somebody_said_how(scenario_text, monkeypatch, command):
    monkeypatch.setenv("DILOCO_CHAOS_ENGINE_RESTART", command)
    monkeypatch.setattr("diloco_chaos.harness.places.compose.engine.DockerEngine", Mock())
    plan = freeze(parse(scenario_text("{restart_engine: syncer, at: 1s}")), 0)
    found = named("compose").refusals(plan)
    assert found == [] if command else "set DILOCO_CHAOS_ENGINE_RESTART" in found[0]


COMMANDS = """diloco_chaos: 1
name: theirs
trainer:
  kind: commands
  nodes:
    store: {{listens: true, run: "{{python}} store.py {{port}}"{store}}}
    worker: {{worker: true, run: "no-such-program {{store}}"{worker}}}
  progress: [{{node: worker, {progress}}}]
faults: [{{kill: worker, at: 1s}}]
"""


@pytest.mark.parametrize(("store", "worker", "progress", "why"), [
    ("", ", image: mine", "written: true", ["store: which image does its container have? Write `image: NAME`, or"]),
    (", image: mine", ", service: {file: compose.yml, name: worker}", "written: true", []),
    (", image: mine", ", image: mine, peers: caught, cwd: here", "written: true", [
        "cwd: 'here' must be a whole path"]),
    (", image: mine", ", image: mine", "metrics: rounds.jsonl", [
        "progress 1: 'rounds.jsonl' is in a container: write `metrics: '{run}/state/...'`"])])
def test_commands_run_in_containers_of_images_that_somebody_names(monkeypatch, store, worker, progress, why):
    monkeypatch.setattr("diloco_chaos.harness.places.compose.engine.DockerEngine", Mock())
    plan = freeze(parse(COMMANDS.format(store=store, worker=worker, progress=progress)), 0)
    found = "; ".join(named("compose").refusals(plan))
    assert all(part in found for part in why)
    assert bool(found) == bool(why)


@pytest.mark.parametrize(("more", "why"), [
    (", image: mine", "store: image: jobs run what is on their machines"),
    (", service: {file: compose.yml, name: store}", "store: image: jobs run what is on their machines"),
    (", peers: caught", "store: peers: caught: what catches connections is on one machine"),
    (", cwd: /only/there", "")])
def test_commands_run_in_jobs_as_they_are_on_their_machines_and_not_on_this_one(more, why):
    plan = freeze(parse(COMMANDS.format(store=more, worker="", progress="written: true")), 0)
    found = "; ".join(named("slurm").refusals(plan))
    assert (why in found) if why else not found


# -- by name, ours and other packages' --------------------------------------------------------------------------

ENTRY = "[diloco_chaos.backends]\nacme = acme_backends:Far\n"
FAR = """
    from diloco_chaos.harness.places.simulated.place import Simulated

    class Far(Simulated):
        name = "acme"
"""


def test_ours_come_by_name():
    assert [place.name for place in places()] == ["compose", "kubernetes", "local", "simulated", "slurm"]
    assert named("local").name == "local"
    assert named("simulated").virtual


def test_one_of_another_package_is_used_by_its_name_and_repeated_there(tmp_path):
    with installed(tmp_path, "acme-backends", ENTRY, acme_backends=FAR):
        assert named("acme").name == "acme"
        assert named("acme").option == " --on acme"


def test_an_unknown_one_is_told_with_the_nearest():
    with pytest.raises(ProviderError, match=r"unknown backend 'simulatd'; did you mean 'simulated'"):
        named("simulatd")


@pytest.mark.parametrize("source", ["Far = 7", "def Far():\n    return 7", FAR.replace('"acme"', '"other"')])
def test_what_is_no_backend_of_that_name_is_told(tmp_path, source):
    with installed(tmp_path, "acme-backends", ENTRY, acme_backends=source), \
            pytest.raises(ProviderError, match=r"acme of acme-backends 1.2 is no backend"):
        named("acme")


def test_one_that_cannot_be_loaded_is_named_where_it_is_missed(tmp_path):
    with installed(tmp_path, "acme-backends", ENTRY, acme_backends="import no_such_cloud"), \
            pytest.raises(ProviderError, match=r"acme of acme-backends 1.2 can't be loaded"):
        named("acme")
