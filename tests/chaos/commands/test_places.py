"""A run goes to no cluster that nobody has named, and what is wrong with one is told in a sentence."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

import fake_slurm
from diloco_chaos.chaos.cli import application
from diloco_chaos.chaos.commands import running
from diloco_chaos.chaos.commands.common import Failure
from diloco_chaos.chaos.commands.places import backend_of, takes_place_options
from diloco_chaos.harness.places.base import ClusterError
from packages import installed

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
    done = CliRunner().invoke(application(), list(arguments), env={"COLUMNS": "80"})
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
    ("", "there is no kubeconfig that can be used"), ("[1]", "there is no kubeconfig that can be used"),
    ("a: [", "there is no kubeconfig that can be used")])
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
    with pytest.raises(Exception, match="only a cluster of machines has that: run it with --on kubernetes or slurm"):
        said("run", "node-power-loss")


def test_what_only_the_user_can_do_is_refused_where_nobody_says_how():
    with pytest.raises(Exception, match="node_power_loss: only you can do that to your machines"):
        said("run", "node-power-loss", "--on", "kubernetes", "--context", "lab")


@pytest.fixture
def queue(tmp_path, monkeypatch):
    """Of a Slurm that is made up."""
    for name, value in fake_slurm.install(tmp_path / "bin").items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("DILOCO_CHAOS_SLURM", raising=False)
    return tmp_path / "bin"


def test_the_doctor_looks_at_a_slurm(queue):
    found = json.loads(said("doctor", "--on", "slurm", "--json").stdout)
    assert found["ready"]
    assert {"name": "machines", "state": "ok", "found": "2 idle", "advice": ""} in found["found"]


def test_a_slurm_that_does_not_answer_is_told_of_before_anything_starts(queue, tmp_path):
    with fake_slurm.queue(queue) as content:
        content["say"] = "Unable to contact slurm controller (connect failure)"
    with pytest.raises(ClusterError, match="squeue: Unable to contact slurm controller"):
        said("run", "kill-one", "--on", "slurm", "--runs-dir", str(tmp_path / "runs"))
    assert not list(tmp_path.glob("runs/*"))
    assert json.loads(said("doctor", "--on", "slurm", "--json").stdout)["found"][0]["state"] == "missing"


def test_where_no_machine_takes_jobs_nothing_starts(queue):
    with fake_slurm.queue(queue) as content:
        content["machines"] = {"n1": "down*", "n2": "drained"}
    with pytest.raises(ClusterError, match=r"no machine takes jobs: n1 is down\*, n2 is drained; see sinfo"):
        said("run", "kill-one", "--on", "slurm")


def test_where_slurm_is_not_installed_it_is_told(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ClusterError, match="squeue is not there: run this on a machine from which jobs are submitted"):
        said("run", "kill-one", "--on", "slurm")


@pytest.mark.parametrize(("text", "why"), [
    ("partiton: x", "partiton: Extra inputs are not permitted"), ("memory: lots", "memory: String should match"),
    ("options: [qos=low]", "options.0: String should match"), ("folder: here", "folder: String should match")])
def test_a_file_of_settings_of_slurm_that_is_wrong_is_told_with_its_place(tmp_path, text, why):
    (tmp_path / "place.yaml").write_text(text)
    with pytest.raises(Failure, match=rf"--on slurm: .*place\.yaml: {why}"):
        said("run", "kill-one", "--on", "slurm", "--place", str(tmp_path / "place.yaml"))


@pytest.mark.parametrize(("scenario", "why"), [
    ("out-of-memory", "whether a job has a memory of its own is up to how your Slurm is set up"),
    ("unplugged", "a job can't be made to do that: run it with --on compose"),
    ("restart-links", "the links are beside the harness"),
    ("node-power-loss", "node_power_loss: only you can do that to your machines")])
def test_what_jobs_can_not_do_is_refused_with_why(queue, scenario, why):
    with pytest.raises(Exception, match=why):
        said("run", scenario, "--on", "slurm")


def test_a_queue_is_what_only_slurm_has(tmp_path):
    (tmp_path / "queued.yaml").write_text(
        "diloco_chaos: 1\nname: queued\ncluster: {learners: 2}\nfaults: [{requeue: learner-1, at: 2s}]\n")
    with pytest.raises(Exception, match="requeue: only Slurm has a queue: run it with --on slurm"):
        said("run", str(tmp_path / "queued.yaml"))


def test_rules_are_printed_as_manifests():
    manifests = list(YAML(typ="safe").load_all(said("rbac", "ci:runner").stdout))
    assert [one["kind"] for one in manifests] == ["ClusterRole", "ClusterRoleBinding"]
    assert manifests[1]["subjects"] == [{"kind": "ServiceAccount", "name": "runner", "namespace": "ci"}]


# -- options of places -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("arguments", "why"), [
    (("run", "kill-one", "--context", "lab"),
     "--context: --on local has no such option; leave it out, or run it with --on kubernetes$"),
    (("run", "kill-one", "--on", "slurm", "--toxiproxy", "real"),
     "--toxiproxy: --on slurm has no such option; leave it out, or run it with --on compose or local$"),
    (("doctor", "--place", "x.yaml"),
     "--place: --on local has no such option; leave it out, or run it with --on kubernetes or slurm$"),
    (("run", "kill-one", "--on", "simulated", "--toxiproxy-port", "1"),
     "--toxiproxy-port: under virtual time there is no server of the links; leave it out$")])
def test_an_option_that_the_place_does_not_have_is_refused_with_those_that_have(arguments, why):
    with pytest.raises(Failure, match=why):
        said(*arguments)


def test_a_place_of_another_package_has_options_of_its_own_but_takes_none_of_a_command(tmp_path):
    source = """
        from diloco_chaos.harness.places.place import Option
        from diloco_chaos.harness.places.simulated.place import Simulated

        class Acme(Simulated):
            name = "acme"
            options = (Option("boards", "How many.", 2, between=(1, 9)), Option("seed", "In the way.", 1))

            @classmethod
            def chosen(cls, given):
                raise ValueError(f"asked for {given}")
        """
    with installed(tmp_path, "acme-places", "[diloco_chaos.backends]\nacme = acme_places:Acme\n", acme_places=source):
        command = takes_place_options(running.run.__wrapped__)
        assert "How many." in inspect.signature(command).parameters["boards"].annotation.__metadata__[0].help
        assert inspect.signature(command).parameters["seed"].default is None
        with pytest.raises(ValueError, match=r"asked for {'boards': 3}"):
            backend_of("acme", {"boards": 3})


def test_help_imports_nothing_that_only_a_run_needs():
    code = ("import sys; from diloco_chaos.chaos.cli import application; application(['run']); "
            "application(['doctor']); "
            "print(sorted({'docker', 'kubernetes', 'requests', 'torch'} & sys.modules.keys()))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
