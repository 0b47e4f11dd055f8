"""A run on a real Kubernetes leaves nothing behind, whatever dies, and touches nothing that is not its own.

They need a cluster that DILOCO_CHAOS_KUBERNETES names (docker/kubernetes.sh makes one), with two nodes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.cleanup.undo_log import undo_logs_folder
from harness.cluster.base import ClusterError
from harness.cluster.kubernetes.access import named
from harness.cluster.kubernetes.settings import KubernetesSettings
from harness.tape import reading

SCENARIO = """
diloco_chaos: 1
name: small
deadline: 150s
cluster: {{model: micro, corpus: markov, fragments: 4, batch: 4, learners: 2, budget: {budget}, step_time: 80ms}}
faults: [{faults}]
checks: {{goodput: {{at_least: 50%}}, blast_radius: {{at_least: 50%}}}}
"""
WITHIN_S = 90.0


@pytest.fixture(scope="session")
def settings():
    """Of the cluster."""
    try:
        if not os.environ.get("DILOCO_CHAOS_KUBERNETES"):
            raise ClusterError("DILOCO_CHAOS_KUBERNETES names none")
        return named(KubernetesSettings.given())
    except ClusterError as error:
        if os.environ.get("DILOCO_CHAOS_REQUIRE_KUBERNETES"):
            pytest.fail(f"there is no Kubernetes: {error}", pytrace=False)
        pytest.skip(f"there is no Kubernetes: {error}")


@pytest.fixture(scope="session")
def api(settings):
    from harness.cluster.kubernetes.api import Api
    made = Api(settings.context)
    yield made
    made.close()


def until(condition, what, within=WITHIN_S):
    end = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < end, f"{what}: not within {within:g} s"
        time.sleep(0.2)
    return found


def place(folder, settings, **more):
    """A file with other settings of the same cluster."""
    path = folder / "place.yaml"
    path.write_text(json.dumps(settings.model_dump(mode="json") | more))
    return path


class Begun:
    """A run of its own process, with state and folder of its own."""

    def __init__(self, folder, where, budget=3000, faults=""):
        (folder / "small.yaml").write_text(SCENARIO.format(budget=budget, faults=faults))
        self.runs, self.undo = folder / "runs", undo_logs_folder()
        self.process = subprocess.Popen(
            [str(Path(sys.executable).with_name("diloco-chaos")), "run", str(folder / "small.yaml"), "--on",
             "kubernetes", "--place", str(where), "--runs-dir", str(self.runs), "--json", "--step-time", "auto"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def tape(self):
        return reading.read(next(iter(self.runs.glob("*/tape")), self.runs))

    def label(self):
        """Once its undo log tells it."""
        logs = self.undo.glob(f"*-{self.process.pid}-*.jsonl")
        found = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
        return next((entry["run"] for entry in found if entry["entry"] == "namespace"), "")

    def trains(self):
        """Wait until it is in the middle; its label."""
        until(lambda: self.process.poll() is not None or self.tape().of("merge"), "a merge")
        assert self.process.poll() is None, self.process.communicate()
        return self.label()

    def reaper(self):
        wanted = f"harness.reaper .*-{self.process.pid}-"
        found = subprocess.run(["pgrep", "-f", wanted], capture_output=True, text=True)
        return int(found.stdout.split()[0])


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def clean():
    command = str(Path(sys.executable).with_name("diloco-chaos"))
    return subprocess.run([command, "clean"], capture_output=True, text=True)


def test_a_harness_that_is_killed_leaves_nothing(settings, api, state, tmp_path):
    begun = Begun(tmp_path, place(tmp_path, settings))
    label = begun.trains()
    begun.process.kill()
    until(lambda: not api.namespaces(label), "the end of its namespace")
    until(lambda: not list(begun.undo.glob("*.jsonl")), "the end of its undo log")


def test_where_its_reaper_is_killed_too_the_api_server_collects_what_is_left(settings, api, state, tmp_path):
    begun = Begun(tmp_path, place(tmp_path, settings, patience=30))
    label = begun.trains()
    namespace, = api.namespaces(label)
    os.kill(begun.reaper(), signal.SIGKILL)
    begun.process.kill()
    until(lambda: not api.pods(namespace, label), "the end of its pods")
    assert f"everything of {label}" in clean().stdout
    assert not api.namespaces(label)


def test_a_namespace_that_something_keeps_is_told_of_until_it_is_gone(settings, api, state, tmp_path):
    begun = Begun(tmp_path, place(tmp_path, settings))
    label = begun.trains()
    namespace, = api.namespaces(label)
    kept = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "finalizers": ["example.com/keep"]}}
    api.core.create_namespaced_config_map(namespace, kept)
    try:
        begun.process.kill()
        os.kill(begun.reaper(), signal.SIGKILL)
        told = clean()
        assert told.returncode == 2
        assert f"NOT UNDONE: everything of {label}" in told.stdout
        assert f"still there: namespace {namespace}, which is being terminated" in told.stdout
    finally:
        api.core.patch_namespaced_config_map("kept", namespace, {"metadata": {"finalizers": None}})
    assert clean().returncode == 0
    assert not api.namespaces(label)


def test_in_a_namespace_of_others_it_goes_on_while_the_api_server_is_away_and_leaves_theirs_alone(
        settings, api, state, tmp_path):
    away = settings.commands["restart_control_plane"] + " 30"
    where = place(tmp_path, settings, namespace="team", commands=settings.commands | {"restart_control_plane": away})
    api.core.create_namespace({"metadata": {"name": "team"}})
    try:
        theirs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs"}}
        until(lambda: api.core.create_namespaced_config_map("team", theirs), "their own")
        begun = Begun(tmp_path, where, budget=700, faults="{restart_control_plane: syncer, at: 3s}")
        told, said = begun.process.communicate(timeout=200)
        report = json.loads(told)
        assert begun.process.returncode in (0, 3), said  # a disk that others keep busy proves nothing, and is told
        assert float(next(one for one in reading.read(next(begun.runs.glob("*/tape"))).of("observed")
                          if one["fault"] == "f1")["observed"]["away_s"]) > 25
        assert not [check for check in report["checks"] if check["verdict"] == "failed"]
        assert next(check for check in report["checks"] if check["name"] == "self_healing")["verdict"] == "passed"
        left = api.core.list_namespaced_config_map("team").items
        assert {one.metadata.name for one in left} <= {"theirs", "kube-root-ca.crt"}
        assert not api.core.list_namespaced_pod("team").items
        assert not api.core.list_namespaced_service("team").items
    finally:
        api.core.delete_namespace("team")
