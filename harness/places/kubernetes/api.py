"""A Kubernetes cluster, through the official client: everything that is made there carries the run's label.

Nothing without the label is ever touched. Errors say what to do next.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any

import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException
from websocket import WebSocketException
from yaml import YAMLError

from diloco_chaos.harness.base.errors import first
from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.kubernetes import port_forward
from diloco_chaos.harness.places.remote import hosts as remote

RUN, PART, MACHINE = "diloco-chaos/run", "diloco-chaos/part", "diloco-chaos/machine"
"""Labels: whose it is, what it is for, and which pods share a machine."""
CONTAINER = "node"
"""Of a node's pod."""
_ASK_S = 15.0
_config: Any = config  # it has no annotations
_REMEDIES = {"exceeded quota": "Ask for less (cpu, memory, fewer learners), name another namespace, or have the quota "
                               "raised",
             "webhook": "Whoever rules that webhook must let through what carries the label diloco-chaos/run",
             "violates PodSecurity": "The namespace must allow such pods: name another one"}
_AWAY = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT,
         HTTPStatus.TOO_MANY_REQUESTS)


class KubernetesError(ClusterError):
    """The cluster can't be used, refused, or does not answer."""


class ApiAwayError(KubernetesError, remote.AwayError):
    """The API server does not answer now; it may again."""


@contextmanager
def asked(what: str) -> Iterator[None]:
    """Turn what the client raises into an error that names what was asked."""
    try:
        yield
    except ApiException as error:
        if error.status in _AWAY:
            raise ApiAwayError(f"{what}: the API server does not answer ({error.status})") from error
        raise KubernetesError(f"{what}: Kubernetes says: {_reason(error)}") from error
    except (urllib3.exceptions.HTTPError, WebSocketException, OSError) as error:
        raise ApiAwayError(f"{what}: the API server does not answer ({_innermost(error)})") from error


def _innermost(error: BaseException) -> str:
    """Return in words the error that libraries have wrapped, one after the other, each with what it was doing."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (isinstance(error, OSError) and error.strerror) or first(error)


def contexts() -> tuple[list[str], str]:
    """Return the names of the kubeconfig's contexts, and the current one's, empty where it names none.

    Raises:
        KubernetesError: there is no kubeconfig that can be used.
    """
    try:
        merged = _config.kube_config.KubeConfigMerger(_config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION).config
        if merged is None:
            raise ConfigException("none was found")
        names, current = [context["name"] for context in merged["contexts"].value], merged.safe_get("current-context")
    except (ConfigException, OSError, AttributeError, KeyError, TypeError, YAMLError) as error:
        raise KubernetesError(f"there is no kubeconfig that can be used ({error}); set KUBECONFIG, or name a "
                              f"Kubernetes in ~/.kube/config") from error
    return [str(name) for name in names], str(current or "")


class KubernetesApi:
    """A connection to one cluster; may be used from any thread."""

    def __init__(self, context: str) -> None:
        """`context`: of the kubeconfig.

        Raises:
            KubernetesError: there is no such one, or it can't be used.
        """
        self.context = context
        self._streaming = threading.Lock()
        try:
            loaded = client.Configuration()
            _config.load_kube_config(context=context, client_configuration=loaded)
        except (ConfigException, OSError) as error:
            raise KubernetesError(f"context {context}: {error}") from error
        loaded.retries = urllib3.Retry(0)
        self._client: Any = client.ApiClient(loaded)  # its annotations differ from version to version
        self.core: Any = client.CoreV1Api(self._client)
        self.batch: Any = client.BatchV1Api(self._client)
        self.access: Any = client.AuthorizationV1Api(self._client)
        self._dialler: Any = client.CoreV1Api(client.ApiClient(loaded))  # streams replace methods of their client

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def version(self) -> str:
        """Return the version of the API server.

        Raises:
            KubernetesError: it does not answer.
        """
        try:
            with asked(f"look at {self.context}"):
                return str(client.VersionApi(self._client).get_code(_request_timeout=_ASK_S).git_version)
        except ApiAwayError as error:
            raise ApiAwayError(f"{error}. Is that cluster up, and can it be reached from here?") from error

    def answers(self) -> bool:
        """Return whether the API server answers now."""
        with suppress(KubernetesError):
            return bool(self.version())
        return False

    def allows(self, what: Mapping[str, Any]) -> bool:
        """Return whether we may do something: the attributes of a resource, as a SelfSubjectAccessReview has them.

        Raises:
            KubernetesError: it does not tell.
        """
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": dict(what)}}
        with asked("ask what is allowed"):
            review = self.access.create_self_subject_access_review(body, _request_timeout=_ASK_S)
        return bool(review.status.allowed)

    def make(self, namespace: str, what: Mapping[str, Any]) -> Any:
        """Make an object of a kind that runs consist of.

        Raises:
            KubernetesError: it was refused.
        """
        kind, name = what["kind"], what["metadata"]["name"]
        create: dict[str, Callable[..., Any]] = {
            "Pod": self.core.create_namespaced_pod, "Service": self.core.create_namespaced_service,
            "ConfigMap": self.core.create_namespaced_config_map, "Secret": self.core.create_namespaced_secret,
            "Job": self.batch.create_namespaced_job}
        with asked(f"make {kind} {name}"):
            if kind == "Namespace":
                return self.core.create_namespace(what, _request_timeout=_ASK_S)
            try:
                return create[kind](namespace, what, _request_timeout=_ASK_S)
            except ApiException as error:
                if kind != "Pod" or error.status != HTTPStatus.CONFLICT:
                    raise
                return None  # it was made when that was asked before, and the answer was lost

    def pods(self, namespace: str, run: str, part: str = "") -> list[Any]:
        """Return the pods of a run, or those of one part of it."""
        with asked("list pods"):
            labels = f"{RUN}={run}" + (f",{PART}={part}" if part else "")
            return list(self.core.list_namespaced_pod(namespace, label_selector=labels, _request_timeout=_ASK_S).items)

    def delete_pod(self, namespace: str, name: str, grace: int = 0) -> bool:
        """Delete a pod; whether it was there."""
        with asked(f"delete pod {name}"):
            try:
                self.core.delete_namespaced_pod(name, namespace, grace_period_seconds=grace, _request_timeout=_ASK_S)
            except ApiException as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
                return False
            return True

    def let_go_on(self, namespace: str, job: str) -> None:
        """Have a suspended Job make its pod."""
        with asked(f"start {job}"):
            self.batch.patch_namespaced_job(job, namespace, {"spec": {"suspend": False}}, _request_timeout=_ASK_S)

    def evict_pod(self, namespace: str, name: str) -> None:
        """Ask for a pod to be evicted, as a drain does: its budget for disruptions is heeded, where it has one.

        Raises:
            KubernetesError: it is not allowed.
        """
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        with asked(f"evict pod {name}"):
            self.core.create_namespaced_pod_eviction(name, namespace, body, _request_timeout=_ASK_S)

    def resize(self, namespace: str, pod: str, resources: Mapping[str, Any]) -> None:
        """Change in place what a pod's container may use (Kubernetes 1.33 and newer).

        Raises:
            KubernetesError: it was refused.
        """
        body = {"spec": {"containers": [{"name": CONTAINER, "resources": resources}]}}
        with asked(f"resize {pod}"):
            self.core.patch_namespaced_pod_resize(pod, namespace, body, _request_timeout=_ASK_S)

    def dial(self, namespace: str, pod: str, port: int) -> socket.socket:
        """A connection to a port on a pod's loopback, by way of the API server (`kubectl port-forward`).

        Raises:
            KubernetesError: there is none.
        """
        with asked(f"connect with {pod}"), self._streaming:  # it replaces a method of the client while it is made
            return port_forward.connection(self._dialler.connect_get_namespaced_pod_portforward, namespace, pod, port,
                                           _ASK_S)

    # -- what carries a label ------------------------------------------------------------------------------------------

    def namespaces(self, run: str = "") -> dict[str, str]:
        """Return the namespaces of one run, or of all runs where `run` is empty: namespace -> run."""
        with asked("list namespaces"):
            listed = self.core.list_namespace(label_selector=f"{RUN}={run}" if run else RUN, _request_timeout=_ASK_S)
            return {namespace.metadata.name: namespace.metadata.labels[RUN] for namespace in listed.items}

    def remove(self, namespace: str, run: str) -> bool:
        """Remove everything of a run; return whether there was anything.

        Raises:
            KubernetesError: something could not be removed.
            ValueError: no run is named: that would remove every run's.
        """
        if not run:
            raise ValueError("name the run that is to be removed")
        label = {"label_selector": f"{RUN}={run}", "_request_timeout": _ASK_S}
        with asked(f"remove what run {run} left"):
            try:
                existing = self.core.read_namespace(namespace, _request_timeout=_ASK_S)
            except ApiException as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
                return False
            own = (existing.metadata.labels or {}).get(RUN) == run
            anything = bool(self.pods(namespace, run)) or own
            now = {"grace_period_seconds": 0, "propagation_policy": "Background"}
            self.batch.delete_collection_namespaced_job(namespace, **label, **now)
            self.core.delete_collection_namespaced_pod(namespace, **label, grace_period_seconds=0)
            for service in self.core.list_namespaced_service(namespace, **label).items:
                self.core.delete_namespaced_service(service.metadata.name, namespace, _request_timeout=_ASK_S)
            self.core.delete_collection_namespaced_config_map(namespace, **label)
            self.core.delete_collection_namespaced_secret(namespace, **label)
            if own and existing.metadata.deletion_timestamp is None:
                self.core.delete_namespace(namespace, _request_timeout=_ASK_S)
            return anything

    def wait_removed(self, namespace: str, run: str, seconds: float) -> list[str]:
        """Wait until nothing of a run is there any more; what is left after so many seconds, in words."""
        until = time.monotonic() + seconds
        while True:
            left = [f"pod {pod.metadata.name}" for pod in self.pods(namespace, run)]
            left += [f"namespace {name}, which is being terminated" for name in self.namespaces(run)]
            if not left or time.monotonic() > until:
                return left
            time.sleep(0.2)


def _reason(error: ApiException) -> str:
    """Return what the API server says, in one line, and what can be done about it."""
    with suppress(ValueError, TypeError, AttributeError):
        said = str(json.loads(error.body or "")["message"])
        return said + next((f". {remedy}" for words, remedy in _REMEDIES.items() if words in said), "")
    return f"{error.status} {error.reason}"
