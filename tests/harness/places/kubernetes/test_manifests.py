"""What Kubernetes is told of: nothing that a run does not need, everything labelled, everything owned."""

from __future__ import annotations

from pathlib import Path

import pytest

from diloco_chaos.harness.places.kubernetes.api import MACHINE, RUN
from diloco_chaos.harness.places.kubernetes.manifests import Manifests, amount
from diloco_chaos.harness.places.kubernetes.settings import KubernetesSettings

LABEL = "0123456789ab"


def manifests(owner="uid", **settings):
    return Manifests(KubernetesSettings(**settings), LABEL, Path("/runs/one"), owner)


def pods(made):
    return [made.node("learner-1", 0)["spec"], made.owner_job()["spec"]["template"]["spec"],
            made.links(0)["spec"]]


def test_pods_have_no_rights():
    for spec in pods(manifests()):
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            assert container["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                                    "capabilities": {"drop": ["ALL"]}}
            assert container["resources"]["limits"].keys() == {"cpu", "memory"}


def test_everything_is_labelled_and_but_for_the_owner_owned():
    made = manifests()
    objects = [made.secret("t"), made.agent("x"), made.service("nodes", {}), made.links(0), made.node("learner-1", 0)]
    for one in objects:
        assert one["metadata"]["labels"][RUN] == LABEL
        assert one["metadata"]["ownerReferences"] == [{"apiVersion": "batch/v1", "kind": "Job", "name": "owner",
                                                       "uid": "uid", "blockOwnerDeletion": False}]
    assert manifests(owner="").owner_job()["metadata"]["ownerReferences"] == []
    assert made.owner_job()["spec"]["ttlSecondsAfterFinished"] <= 5


def test_a_node_finds_the_run_where_it_is_outside_and_reads_what_it_must():
    mounts = manifests().node("learner-1", 0, [Path("/cache/corpus"), Path("/runs/one/x")])["spec"]["containers"][0]
    assert {mount["mountPath"] for mount in mounts["volumeMounts"]} == {"/runs/one", "/cache", "/tmp", "/diloco-chaos"}


def test_the_token_stands_in_no_pod():
    assert "secret-token" not in str([manifests().node("learner-1", 0), manifests().owner_job()])
    assert manifests().secret("secret-token")["stringData"] == {"token": "secret-token"}


def test_a_pod_with_a_machine_of_its_own_shares_it_with_no_other():
    apart, rest = (manifests().node("learner-1", 0, machine=machine) for machine in ("apart", ""))
    for pod, label in ((apart, "apart"), (rest, "rest")):
        assert pod["metadata"]["labels"][MACHINE] == label
        term, = pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["labelSelector"]["matchExpressions"] == [{"key": MACHINE, "operator": "NotIn", "values": [label]}]


def test_a_machine_that_is_avoided_gets_no_pod():
    rule = manifests().node("learner-1", 1, avoided=["kn1"])["spec"]["affinity"]["nodeAffinity"]
    assert rule["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["kn1"]}]}]


def test_a_small_disk_is_one_whose_size_is_a_limit():
    spec = manifests().node("syncer", 0, disk=("state", 1000))["spec"]
    assert {"name": "disk", "emptyDir": {"medium": "Memory", "sizeLimit": "1000"}} in spec["volumes"]
    assert {"name": "disk", "mountPath": "/runs/one/state"} in spec["containers"][0]["volumeMounts"]


def test_somebody_else_s_image_says_its_user_and_has_no_rights_either():
    spec = manifests().node("store", 0, image="theirs")["spec"]
    container, = spec["containers"]
    assert container["image"] == "theirs"
    assert "runAsUser" not in spec["securityContext"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is False


def test_in_a_namespace_that_others_use_names_are_the_run_s_own():
    own, shared = manifests(), manifests(namespace="team")
    assert (own.namespace, own.name("links")) == (f"diloco-chaos-{LABEL}", "links")
    assert (shared.namespace, shared.name("links")) == ("team", f"links-{LABEL}")


def test_what_the_user_says_of_machines_is_heeded():
    tolerates = {"key": "gpu", "operator": "Exists"}
    spec = manifests(node_selector={"pool": "a"}, tolerations=[tolerates], pull_secrets=["s"]).node("x", 0)["spec"]
    assert spec["nodeSelector"] == {"pool": "a"}
    assert tolerates in spec["tolerations"]
    assert spec["imagePullSecrets"] == [{"name": "s"}]


@pytest.mark.parametrize(("processors", "limit"), [(None, "1"), (0.25, "250m"), (0.0001, "10m")])
def test_a_limit_of_processors_is_in_thousandths(processors, limit):
    resources = manifests().resources(processors)
    assert resources["limits"]["cpu"] == limit
    assert amount(resources["requests"]["cpu"]) <= amount(limit)


def test_less_is_asked_for_than_may_be_used():  # else the pod would be of another class of service once it is limited
    resources = manifests().resources(memory=1000)
    assert resources["limits"]["memory"] == "1000"
    assert int(resources["requests"]["memory"]) < 1000


@pytest.mark.parametrize(("quantity", "number"), [("1", 1.0), ("500m", 0.5), ("2Gi", 2 << 30), ("1G", 1e9),
                                                  ("1.5", 1.5)])
def test_quantities_are_numbers(quantity, number):
    assert amount(quantity) == number
