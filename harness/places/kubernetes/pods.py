"""The pods of a run: what its nodes run in, and where they are found."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from diloco_chaos.harness.places.base import ClusterError, NodeSpec
from diloco_chaos.harness.places.kubernetes.api import ApiAwayError, KubernetesApi, KubernetesError
from diloco_chaos.harness.places.kubernetes.forward import Forward
from diloco_chaos.harness.places.kubernetes.manifests import AGENT_PORT, NODES, Manifests
from diloco_chaos.harness.places.kubernetes.watch import PodWatch, in_words, waits_for
from diloco_chaos.harness.places.nodes.nodes import Nodes
from diloco_chaos.harness.places.remote.connection import AgentConnection
from diloco_chaos.harness.places.remote.hosts import LOOK_S, Host, Hosts, needed
from diloco_chaos.harness.places.remote.process import RemoteProcess
from diloco_chaos.harness.trainers.core.programs import Program

ANY, PYTHON = "0.0.0.0", "python3"  # noqa: S104 - of a pod's own network
LISTEN = 7000
_ALLOWED_S = 4.0


class KubernetesPods:
    """The pods of one run."""

    def __init__(self, api: KubernetesApi, objects: Manifests) -> None:
        """`objects`: of the run; they have an owner from `begin` on."""
        self.api, self.objects = api, objects
        self.watch: PodWatch | None = None
        """What becomes of them, once they are watched."""

    @property
    def namespace(self) -> str:
        """Return the namespace that they are in."""
        return self.objects.namespace

    def begin(self) -> None:
        """The namespace, where the run has one of its own, and the job that owns all else."""
        settings = self.objects.settings
        if not settings.namespace:
            self.api.make(self.namespace, self.objects.own_namespace())
        job = self._until_allowed(lambda: self.make(self.objects.owner_job()))
        self.objects = Manifests(settings, self.objects.run, self.objects.folder, str(job.metadata.uid))

    def make(self, what: Mapping[str, Any]) -> Any:
        """One of the run's objects."""
        return self.api.make(self.namespace, what)

    def of(self, part: str = "") -> list[Any]:
        """Return the pods of a part of the run, or all."""
        return self.api.pods(self.namespace, self.objects.run, part)

    def dial_newest(self, part: str, port: int = AGENT_PORT) -> Callable[[], Any]:
        """Connections to the pod that is this part of the run now."""
        def dial() -> Any:
            pods = [pod for pod in self.of(part)
                    if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None]
            if not pods:
                raise KubernetesError(f"no pod of {part} runs")
            newest = max(pods, key=lambda pod: pod.metadata.creation_timestamp)
            return self.api.dial(self.namespace, newest.metadata.name, port)
        return dial

    def must_come(self, pod: str, what: str, until: float) -> None:
        """Check that a pod may still come. `until`: by `time.monotonic()`.

        Raises:
            ClusterError: the pod will not run, or the time is up; with what Kubernetes says.
        """
        assert self.watch is not None, "the cluster was started"
        hopeless = self.watch.hopeless.get(pod, "")
        if hopeless or time.monotonic() > until:
            matches = [listed for listed in self.of() if listed.metadata.name == pod]
            why = hopeless or (in_words(waits_for(matches[0])) if matches else "it is gone")
            within = "" if hopeless else f" within {self.objects.settings.start_within:g} s"
            raise ClusterError(f"{what}: its pod does not run{within}: {why or 'Kubernetes does not say why'}")

    def _until_allowed(self, make: Callable[[], Any]) -> Any:
        """A namespace that was just made takes a moment to be one that things can be made in."""
        until = time.monotonic() + _ALLOWED_S
        while True:
            try:
                return make()
            except ApiAwayError:
                raise
            except KubernetesError:
                if self.objects.settings.namespace or time.monotonic() > until:
                    raise
                time.sleep(LOOK_S)


class PodHosting:
    """Implements `diloco_chaos.harness.places.remote.hosts.Hosting`."""

    def __init__(self, pods: KubernetesPods, run: Path, token: str) -> None:
        """`run`: the run's folder. `token`: of the run."""
        self._pods, self._run, self._token = pods, run, token

    def make(self, spec: NodeSpec, number: int, before: Host | None, hosts: Hosts) -> Host:
        """A pod; it shares its machine with none that it must not."""
        manifest = self._pods.objects.node(spec.name, number, spec.reads, "" if hosts.avoided else spec.machine,
                                           (spec.state, spec.disk), sorted(hosts.avoided),
                                           spec.program.image if spec.program else "")
        pod = manifest["metadata"]["name"]
        self._pods.make(manifest)
        dial = partial(self._pods.api.dial, self._pods.namespace, pod, AGENT_PORT)
        return Host(pod, AgentConnection(spec.name, self._run, self._token, dial))

    def give_up(self, host: Host) -> None:
        """Delete it."""
        self._pods.api.delete_pod(self._pods.namespace, host.name)

    def must_come(self, host: Host, what: str, until: float) -> None:
        """Check the host's pod like any other pod."""
        self._pods.must_come(host.name, what, until)

    def lost(self, host: Host) -> str:
        """Return why its pod is lost, as the watch saw it; empty: it is not, as far as is known."""
        return self._pods.watch.lost.get(host.name, "") if self._pods.watch is not None else ""

    def machine(self, host: Host) -> str:
        """Return its machine's name, as the watch saw it; empty: not known yet."""
        return self._pods.watch.machines.get(host.name, "") if self._pods.watch is not None else ""

    def needs(self, spec: NodeSpec, host: Host) -> Mapping[str, bytes]:
        """Return the files that a node needs, by the same names: pods have volumes there."""
        return needed(spec, self._run)


class PodAddresses:
    """Implements `diloco_chaos.harness.places.commands.Addresses`."""

    def __init__(self, pods: KubernetesPods, hosts: Hosts, nodes: Nodes[RemoteProcess]) -> None:
        self._pods, self._hosts, self._nodes = pods, hosts, nodes
        self._seen: dict[str, Forward] = {}  # node -> our port that leads to its own

    def port_for(self, spec: NodeSpec, program: Program) -> int:
        """Return the program's own port, or always the same one: each pod has a network address of its own."""
        return program.port or LISTEN

    def found_at(self, node: str) -> str:
        """Return the name that a headless service gives it."""
        return f"{node}.{self._pods.objects.name(NODES)}"

    def seen_at(self, node: str) -> tuple[str, int]:
        """Return our host and port that lead to it by way of the API server."""
        if node not in self._seen:
            pod, port = self._hosts[node].name, self._nodes.ports[node]
            self._seen[node] = Forward(partial(self._pods.api.dial, self._pods.namespace, pod, port))
        host, _, port_here = self._seen[node].address.rpartition(":")
        return host, int(port_here)

    def words(self, node: str) -> Mapping[str, str]:
        """Return its image's interpreter, and the address of all its interfaces."""
        return {"python": PYTHON, "host": ANY}

    def close(self) -> None:
        """Close every forward that leads to a node."""
        for forward in self._seen.values():
            forward.close()
