"""What happens to a node's pod: its memory or disk is used up, it is deleted, evicted, or drained with its machine."""

from __future__ import annotations

import time
from contextlib import suppress

from diloco_chaos.harness.places.base import STOP_TIMEOUT_S
from diloco_chaos.harness.places.kubernetes.api import KubernetesError
from diloco_chaos.harness.places.kubernetes.pods import PYTHON, KubernetesPods
from diloco_chaos.harness.places.nodes.incarnation import Incarnation
from diloco_chaos.harness.places.nodes.nodes import FULL_DISK, Nodes
from diloco_chaos.harness.places.remote.connection import GoneError
from diloco_chaos.harness.places.remote.files import AgentFiles
from diloco_chaos.harness.places.remote.hosts import LOOK_S, Hosts
from diloco_chaos.harness.places.remote.process import RemoteProcess

FILLING = ".filling"
_HEADROOM, _HOG_S, _RESIZED_S = 12 << 20, 5, 10.0


class PodMemory:
    """Implements `diloco_chaos.harness.places.capabilities.MemoryLimits`."""

    def __init__(self, pods: KubernetesPods, nodes: Nodes[RemoteProcess]) -> None:
        self._pods, self._nodes = pods, nodes
        self._squeezed: set[str] = set()  # pods whose memory is limited to what they use

    def exhaust_memory(self, node: str, restart_after: float | None) -> None:
        """A limit just above what it uses, and a second process that asks for more: the kernel kills the largest."""
        current = self._nodes[node]
        if not current.alive or current.process.host.lost:
            return
        current.expect_exit(restart_after)
        self._squeezed.add(current.process.host.name)
        current.process.host.soon(lambda: self._squeeze(current.process))

    def on_end(self, node: Incarnation[RemoteProcess], status: int) -> None:
        """Its pod stays: it gets its memory back before anything starts there."""
        host = node.process.host
        if host.name in self._squeezed:
            self._squeezed.discard(host.name)
            host.soon(lambda: self._pods.api.resize(self._pods.namespace, host.name, self._pods.objects.resources()))

    def _squeeze(self, process: RemoteProcess) -> None:
        with suppress(GoneError):  # it has ended meanwhile: nothing is taken from it
            self._take(process)

    def _take(self, process: RemoteProcess) -> None:
        stat, pod = process.agent.ask("stat", name=process.name), process.host.name
        limit = int(stat["used"]) + _HEADROOM
        self._pods.api.resize(self._pods.namespace, pod, self._pods.objects.resources(memory=limit))
        until = time.monotonic() + _RESIZED_S
        while int(process.agent.ask("stat", name=process.name)["limit"]) > limit:
            if time.monotonic() > until:
                raise KubernetesError(f"the memory of {pod} was not limited within {_RESIZED_S:g} s: can this "
                                      f"Kubernetes resize pods in place (1.33 and newer)?")
            time.sleep(LOOK_S)
        process.agent.ask("expose", name=process.name)
        size = limit - int(stat["memory"]) + 4 * _HEADROOM  # more than is left when the kernel keeps no file any more
        hog = f"import time; b = b'x' * {size}; time.sleep({_HOG_S})"
        process.agent.ask("spawn", name=f"{process.name}.hog", argv=[PYTHON, "-c", hog])


class PodDisks:
    """Implements `diloco_chaos.harness.places.capabilities.Disks`."""

    def __init__(self, nodes: Nodes[RemoteProcess], hosts: Hosts, files: AgentFiles) -> None:
        self._nodes, self._hosts, self._files = nodes, hosts, files

    def fill_disk(self, node: str, restart_after: float) -> int:
        """Write zeros until there is no space."""
        self._nodes.expect_no_space(node, FULL_DISK, restart_after)
        return int(self._hosts[node].agent.ask("fill", path=self._filling(node))["filled"])

    def empty_disk(self, node: str) -> None:
        """Remove the zeros."""
        with suppress(GoneError):
            self._hosts[node].agent.ask("remove", path=self._filling(node))
        self._nodes.space_again(node, FULL_DISK)

    def _filling(self, node: str) -> str:
        return f"{self._files.folder(node)}/{FILLING}"


class PodRemoval:
    """Implements `Pods` and `Drains` of `diloco_chaos.harness.places.capabilities`."""

    def __init__(self, pods: KubernetesPods, nodes: Nodes[RemoteProcess], hosts: Hosts) -> None:
        self._pods, self._nodes, self._hosts = pods, nodes, hosts

    def delete_pod(self, node: str, restart_after: float | None, *, evict: bool = False,
                   grace: float = STOP_TIMEOUT_S) -> None:
        """The next incarnation gets a new one."""
        current = self._nodes[node]
        host = current.process.host
        if not current.alive or host.lost:
            return
        current.expect_exit(restart_after)
        host.leaving = True
        if evict:
            self._pods.api.evict_pod(self._pods.namespace, host.name)
        else:
            host.agent.ask("last_words", seconds=grace)
            self._pods.api.delete_pod(self._pods.namespace, host.name, grace=int(grace))

    def drain(self, node: str, restart_after: float | None) -> None:
        """Evict this run's pods only: nothing is done to the machine, nor to pods of others on it. The machine may be
        shared."""
        machine = self._hosts.machine_of(node)
        self._hosts.avoided.add(machine)
        for name in self._hosts.on(machine):
            self.delete_pod(name, restart_after, evict=True)
