"""A run goes to no cluster that nobody has named, and what is wrong with one is told in a sentence."""

from __future__ import annotations

import json

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from chaos.cli import app
from chaos.commands.common import Failure
from harness.cluster.base import ClusterError

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: production, context: {cluster: c, user: u}}, {name: lab, context: {cluster: c, user: u}}]
current-context: production
"""


@pytest.fixture(autouse=True)
def kubeconfig(tmp_path, monkeypatch):
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
    monkeypatch.delenv("DILOCO_CHAOS_KUBERNETES", raising=False)


def said(*arguments):
    done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "80"})
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


@pytest.mark.parametrize("command", [("run", "kill-one", "--on", "kubernetes"), ("doctor", "--on", "kubernetes")])
def test_the_current_context_is_nobody_s_wish(command):
    with pytest.raises(Failure, match=r"The kubeconfig has production, lab: name one with --context"):
        said(*command)


def test_a_context_that_is_not_there_is_told():
    with pytest.raises(Failure, match="the kubeconfig has no context labb; there are production, lab"):
        said("run", "kill-one", "--on", "kubernetes", "--context", "labb")


@pytest.mark.parametrize(("text", "why"), [
    (KUBECONFIG.replace("current-context: production\n", ""), "has production, lab: name one with --context$"),
    ("", "there is no kubeconfig that can be used"), ("[1]", "there is no kubeconfig that can be used")])
def test_a_kubeconfig_without_a_current_context_or_none_at_all_is_understood(kubeconfig, tmp_path, text, why):
    (tmp_path / "kubeconfig").write_text(text)
    with pytest.raises(Failure, match=why):
        said("run", "kill-one", "--on", "kubernetes", "--yes")


def test_a_file_of_settings_that_is_wrong_is_told_with_its_place(tmp_path):
    (tmp_path / "place.yaml").write_text("cpus: 2")
    with pytest.raises(Failure, match=r"place\.yaml: cpus: Extra inputs are not permitted"):
        said("run", "kill-one", "--on", "kubernetes", "--place", str(tmp_path / "place.yaml"))


def test_a_cluster_that_does_not_answer_is_told_before_anything_starts(tmp_path):
    with pytest.raises(ClusterError, match="look at lab: the API server does not answer"):
        said("run", "kill-one", "--on", "kubernetes", "--context", "lab", "--runs-dir", str(tmp_path / "runs"))
    assert not list(tmp_path.glob("runs/*"))


def test_the_doctor_says_so_too():
    done = said("doctor", "--on", "kubernetes", "--context", "lab", "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["ready"]) == (2, False)
    assert found["found"][0]["state"] == "missing"


def test_what_only_a_cluster_of_machines_has_is_refused_elsewhere():
    with pytest.raises(Exception, match="only a cluster of machines has that: run it with --on kubernetes"):
        said("run", "node-power-loss")


def test_what_only_the_user_can_do_is_refused_where_nobody_says_how():
    with pytest.raises(Exception, match="node_power_loss: only you can do that to your machines"):
        said("run", "node-power-loss", "--on", "kubernetes", "--context", "lab")


def test_rules_are_printed_as_manifests():
    manifests = list(YAML(typ="safe").load_all(said("rbac", "ci:runner").stdout))
    assert [one["kind"] for one in manifests] == ["ClusterRole", "ClusterRoleBinding"]
    assert manifests[1]["subjects"] == [{"kind": "ServiceAccount", "name": "runner", "namespace": "ci"}]
