"""A run on a real Kubernetes leaves nothing behind, whatever dies, and touches nothing that is not its own.

They need a cluster that DILOCO_CHAOS_KUBERNETES names (docker/kubernetes.sh makes one), with two nodes.
"""

from __future__ import annotations

import os
import signal

import pytest

import remote_runs
from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.kubernetes.access import named
from diloco_chaos.harness.places.kubernetes.settings import KubernetesSettings
from diloco_chaos.harness.record.tape.events import Injected, Observed
from remote_runs import clean, until


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
        pytest.skip(f"there is no Kubernetes: {error}; docker/kubernetes.sh brings one up (docs/beyond-one-host.md)")


@pytest.fixture(scope="session")
def api(settings):
    from diloco_chaos.harness.places.kubernetes.api import KubernetesApi
    made = KubernetesApi(settings.context)
    yield made
    made.close()


class Begun(remote_runs.Begun):
    """Pods in a namespace."""

    entry = "namespace"

    def __init__(self, folder, settings, budget=3000, faults="", **more):
        super().__init__(folder, "kubernetes", settings.model_dump(mode="json") | more, budget, faults)


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_a_harness_that_is_killed_while_calls_fail_leaves_nothing(settings, api, state, tmp_path):
    begun = Begun(tmp_path, settings, faults='{io: syncer, path: "{run}/state/*", delay: 1ms, at: 0s, for: 90s}')
    label = begun.trains()
    until(lambda: begun.tape().of(Injected), "a rule that holds")
    begun.process.kill()
    until(lambda: not api.namespaces(label), "the end of its namespace")
    until(lambda: not list(begun.undo.glob("*.jsonl")), "the end of its undo log")


def test_where_its_reaper_is_killed_too_the_api_server_collects_what_is_left(settings, api, state, tmp_path):
    begun = Begun(tmp_path, settings, patience=30)
    label = begun.trains()
    namespace, = api.namespaces(label)
    os.kill(begun.reaper(), signal.SIGKILL)
    begun.process.kill()
    until(lambda: not api.pods(namespace, label), "the end of its pods")
    assert f"everything of {label}" in clean().stdout
    assert not api.namespaces(label)


def test_a_namespace_that_something_keeps_is_told_of_until_it_is_gone(settings, api, state, tmp_path):
    begun = Begun(tmp_path, settings)
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
    commands = settings.commands | {"restart_control_plane": away}
    api.core.create_namespace({"metadata": {"name": "team"}})
    try:
        theirs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs"}}
        until(lambda: api.core.create_namespaced_config_map("team", theirs), "their own")
        begun = Begun(tmp_path, settings, budget=700, faults="{restart_control_plane: syncer, at: 3s}",
                      namespace="team", commands=commands)
        told = begun.report()
        assert "failed" not in told.values()
        assert told["self_healing"] == "passed"
        away_s = next(one.observed["away_s"] for one in begun.tape().of(Observed) if one.fault == "f1")
        assert float(away_s) > 25
        left = api.core.list_namespaced_config_map("team").items
        assert {one.metadata.name for one in left} <= {"theirs", "kube-root-ca.crt"}
        until(lambda: not api.core.list_namespaced_pod("team").items, "the end of its pods")  # what is late is owed
        until(lambda: not list(begun.undo.glob("*.jsonl")), "the end of its undo log")
        assert not api.core.list_namespaced_service("team").items
    finally:
        api.core.delete_namespace("team")
