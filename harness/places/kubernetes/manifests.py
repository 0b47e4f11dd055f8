"""The objects that a run consists of, as Kubernetes is told of them (its API reference, v1).

Pods have no capabilities, no token of a service account, and a root that can't be written. All are owned by one Job,
whose pod ends when the harness is not heard of any more: then the API server itself removes the Job, and with it
everything that it owns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diloco_chaos.harness.places.kubernetes.api import CONTAINER, MACHINE, PART, RUN
from diloco_chaos.harness.places.kubernetes.settings import KubernetesSettings
from diloco_chaos.harness.places.remote.agent import TOKEN

AGENT_PORT, API_PORT = 8700, 8474
OWNER, LINKS, NODES = "owner", "links", "nodes"
"""Parts of a run, beside each node by its name."""
_NOBODY = 10001
_AGENT, _AGENT_FILE = "/diloco-chaos", "agent.py"
_BACKOFF_LIMIT = 1000
_LEAST_MILLICPU = 10  # the kernel's own: a millisecond in a tenth of a second
_QUICK = 1  # seconds between the end of the owner's pod and that of everything


@dataclass(frozen=True)
class Manifests:
    """The manifests of one run."""

    settings: KubernetesSettings
    run: str
    """Its label."""
    folder: Path
    """The run's folder, which nodes find at the same path."""
    owner: str = ""
    """The owning Job's uid."""

    @property
    def namespace(self) -> str:
        """Return the name of the run's namespace."""
        return self.settings.namespace or f"diloco-chaos-{self.run}"

    def name(self, part: str) -> str:
        """Return what an object is called: in a namespace that others use, too, the run is a part of its name."""
        return f"{part}-{self.run}" if self.settings.namespace else part

    # -- objects -------------------------------------------------------------------------------------------------------

    def own_namespace(self) -> dict[str, Any]:
        """The run's own."""
        about = {"name": self.namespace, "labels": {RUN: self.run}}
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": about}

    def secret(self, token: str) -> dict[str, Any]:
        """Return the Secret by which the run's nodes know each other, and agents know the harness."""
        return {"apiVersion": "v1", "kind": "Secret", "metadata": self._about("token"), "stringData": {"token": token}}

    def agent(self, source: str) -> dict[str, Any]:
        """The file that every pod begins with."""
        data = {_AGENT_FILE: source}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": self._about("agent"), "data": data}

    def owner_job(self) -> dict[str, Any]:
        """Return the Job whose end is that of all other objects. It waits to be let go on until those pods are placed
        that want a machine of their own."""
        template = self._pod(OWNER, self.settings.image, [self.folder])
        template["spec"] |= {"restartPolicy": "OnFailure", "hostname": OWNER, "subdomain": self.name(NODES)}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": self._about(OWNER), "spec": {
            "suspend": True, "ttlSecondsAfterFinished": _QUICK, "backoffLimit": _BACKOFF_LIMIT, "template": template}}

    def service(self, part: str, selected: Mapping[str, str]) -> dict[str, Any]:
        """Names for pods: headless, so that a name leads to the pod itself, from its start on."""
        return {"apiVersion": "v1", "kind": "Service", "metadata": self._about(part), "spec": {
            "clusterIP": "None", "publishNotReadyAddresses": True, "selector": {RUN: self.run, **selected}}}

    def links(self, number: int) -> dict[str, Any]:
        """The real Toxiproxy, after so many before it.

        A bare pod: a controller that hears late of a Deployment's end, as after an absence of the API server, makes pod
        after pod for it.
        """
        container = {"name": LINKS, "image": self.settings.links_image, "args": ["-host=0.0.0.0"],
                     "imagePullPolicy": self.settings.pull_policy, "securityContext": _CLOSED,
                     "readinessProbe": {"tcpSocket": {"port": API_PORT}, "periodSeconds": 1},
                     "resources": {"limits": {"cpu": "1", "memory": "256Mi"}, "requests": {"cpu": "100m",
                                                                                           "memory": "64Mi"}}}
        spec = self._placed({"containers": [container], "securityContext": _USER}, "")
        about = {"name": self.name(f"{LINKS}-{number}"), "labels": self._labels(LINKS) | {MACHINE: "rest"},
                 "ownerReferences": self._owners()}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}

    def node(self, node: str, number: int, reads: Sequence[Path] = (), machine: str = "",
             disk: tuple[str, int] = ("", 0), avoided: Sequence[str] = (), image: str = "") -> dict[str, Any]:
        """A node's pod.

        Args:
            node: its name.
            number: of the first incarnation in it.
            reads: files beyond the run's folder.
            machine: it shares none with pods of another one.
            disk: a folder in the run's that has a disk of its own, and the bytes of that.
            avoided: names of machines that it is not put on.
            image: somebody else's, which says its user, and may write to its own root.
        """
        folders = sorted({path.parent for path in reads} - {self.folder})
        pod = self._pod(node, image or self.settings.image, [self.folder, *folders], machine)
        if image:
            pod["spec"]["securityContext"] = _SOMEBODY
            pod["spec"]["containers"][0]["securityContext"] = {**_CLOSED, "readOnlyRootFilesystem": False}
        if disk[1]:  # in memory: the only volume whose size is a limit
            size = {"medium": "Memory", "sizeLimit": str(disk[1])}
            pod["spec"]["volumes"].append({"name": "disk", "emptyDir": size})
            pod["spec"]["containers"][0]["volumeMounts"].append(
                {"name": "disk", "mountPath": str(self.folder / disk[0])})
        if avoided:
            elsewhere = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": list(avoided)}
            pod["spec"]["affinity"]["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [elsewhere]}]}}
        pod["metadata"] |= {"name": self.name(f"{node}-{number}"), "ownerReferences": self._owners()}
        pod["spec"] |= {"restartPolicy": "Never", "hostname": node, "subdomain": self.name(NODES)}
        return {"apiVersion": "v1", "kind": "Pod", **pod}

    def resources(self, processors: float | None = None, memory: int | None = None) -> dict[str, Any]:
        """Return what a node may use at most, and what is asked for. `processors`, `memory` (bytes): less than
        usual."""
        cpu = self.settings.cpu if processors is None else f"{max(_LEAST_MILLICPU, round(processors * 1000))}m"
        most = self.settings.memory if memory is None else str(memory)
        asked_cpu = min(amount(self.settings.cpu) / 4, amount(cpu))
        asked_memory = min(amount(self.settings.memory) / 2, amount(most) - 1)
        return {"limits": {"cpu": cpu, "memory": most},
                "requests": {"cpu": f"{round(asked_cpu * 1000)}m", "memory": str(int(asked_memory))}}

    # -- parts of them -------------------------------------------------------------------------------------------------

    def _runs_agent(self) -> list[str]:
        return ["python3", f"{_AGENT}/{_AGENT_FILE}", "--run", str(self.folder), "--port", str(AGENT_PORT),
                "--patience", str(self.settings.patience)]

    def _pod(self, part: str, image: str, folders: Sequence[Path], machine: str = "") -> dict[str, Any]:
        mounts = [{"name": "files", "mountPath": str(folder), "subPath": str(folder).lstrip("/")} for folder in folders]
        container = {
            "name": CONTAINER, "image": image, "imagePullPolicy": self.settings.pull_policy,
            "command": self._runs_agent(), "securityContext": _CLOSED,
            "env": [{"name": TOKEN, "valueFrom": {"secretKeyRef": {"name": self.name("token"), "key": "token"}}},
                    *({"name": name, "value": value} for name, value in _OURS.items())],
            "resources": self.resources(),
            "resizePolicy": [{"resourceName": what, "restartPolicy": "NotRequired"} for what in ("cpu", "memory")],
            "volumeMounts": [*mounts, {"name": "files", "mountPath": "/tmp", "subPath": "tmp"},  # noqa: S108 - its own
                             {"name": "agent", "mountPath": _AGENT, "readOnly": True}]}
        volumes = [{"name": "files", "emptyDir": {"sizeLimit": self.settings.disk}},
                   {"name": "agent", "configMap": {"name": self.name("agent")}}]
        spec = self._placed({"containers": [container], "volumes": volumes, "securityContext": _USER}, machine)
        return {"metadata": {"labels": self._labels(part) | {MACHINE: machine or "rest"}}, "spec": spec}

    def _placed(self, spec: dict[str, Any], machine: str) -> dict[str, Any]:
        """Return a pod's spec, completed by what all pods have in common."""
        others = {"matchLabels": {RUN: self.run},
                  "matchExpressions": [{"key": MACHINE, "operator": "NotIn", "values": [machine or "rest"]}]}
        apart = [{"labelSelector": others, "topologyKey": "kubernetes.io/hostname"}]
        away = [{"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute",
                 "tolerationSeconds": _BACKOFF_LIMIT} for what in ("not-ready", "unreachable")]
        return {**spec, "automountServiceAccountToken": False, "enableServiceLinks": False,
                "terminationGracePeriodSeconds": 2, "nodeSelector": self.settings.node_selector,
                "tolerations": [*self.settings.tolerations, *away],
                "imagePullSecrets": [{"name": name} for name in self.settings.pull_secrets],
                "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}}}

    def _labels(self, part: str) -> dict[str, str]:
        return {RUN: self.run, PART: part}

    def _about(self, part: str) -> dict[str, Any]:
        return {"name": self.name(part), "labels": self._labels(part), "ownerReferences": self._owners()}

    def _owners(self) -> list[dict[str, Any]]:
        return [{"apiVersion": "batch/v1", "kind": "Job", "name": self.name(OWNER), "uid": self.owner,
                 "blockOwnerDeletion": False}] if self.owner else []


_OURS = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
_CLOSED: dict[str, Any] = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                           "capabilities": {"drop": ["ALL"]}}
_SOMEBODY: dict[str, Any] = {"fsGroup": _NOBODY, "seccompProfile": {"type": "RuntimeDefault"}}
_USER: dict[str, Any] = {**_SOMEBODY, "runAsNonRoot": True, "runAsUser": _NOBODY, "runAsGroup": _NOBODY}
_UNITS = {"m": 1e-3, "": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30,
          "Ti": 2.0**40}


def amount(quantity: str) -> float:
    """A quantity of Kubernetes, such as 500m or 2Gi, as a number."""
    digits = quantity.rstrip("".join(set("".join(_UNITS))))
    return float(digits) * _UNITS[quantity[len(digits):]]
