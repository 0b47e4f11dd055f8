"""Follows what becomes of a run's pods, and of the machines that they are on."""

from __future__ import annotations

from typing import Any

from diloco_chaos.harness.places.kubernetes.api import KubernetesApi, KubernetesError
from diloco_chaos.harness.places.remote.watching import Watching

_EVERY_S = 0.5
_HOPELESS = {"ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError",
             "RunContainerError"}
"""Why a container waits that will not run, however long it is waited for."""


class PodWatch(Watching):
    """Looks about twice a second; while the API server is away, what was known stands."""

    def __init__(self, api: KubernetesApi, namespace: str, run: str) -> None:
        super().__init__("pods-watch", _EVERY_S, KubernetesError)
        self.lost: dict[str, str] = {}
        """Pod -> why it does not run any more."""
        self.machines: dict[str, str] = {}
        """Pod -> the machine that it is on."""
        self.hopeless: dict[str, str] = {}
        """Pod -> why it will not run."""
        self._api, self._namespace, self._run = api, namespace, run
        self._seen: set[str] = set()
        self.start()

    def look(self) -> None:
        """Look at all of the run's pods; keep their machines, and why any is lost or can't be scheduled."""
        pods = {pod.metadata.name: pod for pod in self._api.pods(self._namespace, self._run)}
        for name in self._seen - pods.keys():
            self.lost.setdefault(name, "its pod was deleted")
        self._seen |= pods.keys()
        for name, pod in pods.items():
            if pod.spec.node_name:
                self.machines[name] = pod.spec.node_name
            if pod.status.phase == "Pending" and (why := waits_for(pod))[0] in _HOPELESS:
                self.hopeless[name] = in_words(why)
            if pod.status.phase in ("Failed", "Succeeded"):
                self.lost.setdefault(name, _why(pod))


REMEDIES = {"ErrImageNeverPull": "Bring the image to every machine, or say pull_policy: IfNotPresent",
            "ErrImagePull": "Push the image to where the cluster finds it, or name another one (image, pull_secrets)",
            "ImagePullBackOff": "Push the image to where the cluster finds it, or name another one (image, "
                                "pull_secrets)",
            "InvalidImageName": "An image is called NAME:TAG",
            "Unschedulable": "Ask for less (cpu, memory), or for other machines (node_selector, tolerations)"}
"""What keeps a pod from running -> what can be done about it."""
_TOO_FEW = ("Whoever is hit with its machine shares it with nobody: one machine more is needed than there are such "
            "targets")


def waits_for(pod: Any) -> tuple[str, str]:
    """Return what keeps a pod from running: a word of Kubernetes', and its sentence; empty where it does not say."""
    for status in pod.status.container_statuses or []:
        if (waits := status.state.waiting) is not None:
            return str(waits.reason or ""), str(waits.message or "")
    for condition in pod.status.conditions or []:
        if condition.status == "False" and condition.message:
            return str(condition.reason or ""), str(condition.message)
    return "", ""


def in_words(why: tuple[str, str]) -> str:
    """Return what keeps a pod from running, and what can be done about it; empty where Kubernetes does not say."""
    said = ": ".join(filter(None, why)).rstrip(".")
    remedy = _TOO_FEW if "anti-affinity" in said else REMEDIES.get(why[0])
    return said + (f". {remedy}" if remedy else "")


def _why(pod: Any) -> str:
    status = pod.status
    for container in status.container_statuses or []:
        if (ended := container.state.terminated) is not None:
            return f"its pod ended: {ended.reason or 'exit code'} {ended.exit_code}"
    return f"its pod ended: {status.reason or status.phase}"
