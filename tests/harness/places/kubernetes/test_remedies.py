"""Where Kubernetes refuses or waits, it is told what can be done about it."""

from __future__ import annotations

import json
import socket

import pytest
from kubernetes.client.exceptions import ApiException

from diloco_chaos.harness.places.kubernetes.api import ApiAwayError, KubernetesApi, KubernetesError, asked
from diloco_chaos.harness.places.kubernetes.watch import in_words


@pytest.mark.parametrize(("said", "remedy"), [
    ('pods "a" is forbidden: exceeded quota: few, requested: pods=1', "Ask for less"),
    ('failed calling webhook "w": connection refused', "Whoever rules that webhook"),
    ('admission webhook "w" denied the request: no', "Whoever rules that webhook"),
    ('pods "a" is forbidden: violates PodSecurity "restricted:latest"', "The namespace must allow such pods")])
def test_what_is_refused_comes_with_a_remedy(said, remedy):
    error = ApiException(status=403)
    error.body = json.dumps({"message": said})
    with pytest.raises(KubernetesError) as told, asked("make Pod a"):
        raise error
    assert str(told.value).startswith(f"make Pod a: Kubernetes says: {said}. {remedy}")


def test_an_api_server_that_is_away_is_told_apart():
    with pytest.raises(ApiAwayError), asked("look"):
        raise ApiException(status=503)


def test_one_that_can_not_be_reached_is_told_in_a_sentence(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    config = tmp_path / "config"
    config.write_text(f"""{{apiVersion: v1, kind: Config, users: [{{name: me, user: {{}}}}],
        clusters: [{{name: lab, cluster: {{server: "http://127.0.0.1:{port}"}}}}],
        contexts: [{{name: lab, context: {{cluster: lab, user: me}}}}]}}""")
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(config))
    api = KubernetesApi("lab")
    with pytest.raises(ApiAwayError) as told:
        api.version()
    api.close()
    assert str(told.value) == ("look at lab: the API server does not answer (Connection refused). Is that cluster up, "
                               "and can it be reached from here?")


@pytest.mark.parametrize(("why", "words"), [
    (("ErrImageNeverPull", "Container image is not present."), "not present. Bring the image to every machine"),
    (("Unschedulable", "0/2 nodes are available"), "0/2 nodes are available. Ask for less"),
    (("Unschedulable", "2 node(s) didn't match pod anti-affinity rules."), "one machine more is needed than there are"),
    (("ContainerCreating", ""), "ContainerCreating"), (("", ""), "")])
def test_what_a_pod_waits_for_comes_with_one_too(why, words):
    assert words in in_words(why)
