"""The real Toxiproxy in a pod of its own; the harness reaches it by way of the API server."""

from __future__ import annotations

import time

from diloco_chaos.harness.links.client import LinkError, Links
from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.kubernetes.forward import Forward
from diloco_chaos.harness.places.kubernetes.manifests import API_PORT, LINKS
from diloco_chaos.harness.places.kubernetes.pods import KubernetesPods
from diloco_chaos.harness.places.remote.hosts import LOOK_S


class ToxiproxyPod:
    """See the module."""

    def __init__(self, pods: KubernetesPods) -> None:
        self._pods = pods
        self._links: Links | None = None
        self._times_made = 0
        self._forwards: dict[int, Forward] = {}  # its port -> ours that leads to it

    @property
    def links(self) -> Links:
        """Return the client of its API.

        Raises:
            ClusterError: it is not up.
        """
        if self._links is None:
            raise ClusterError("the links are not up yet")
        return self._links

    def make(self) -> None:
        """Ask for its pod."""
        self._pods.make(self._pods.objects.links(self._times_made))
        self._times_made += 1

    def wait(self) -> None:
        """Wait until its API answers.

        Raises:
            ClusterError: its pod will not run, or is not there in time.
        """
        links = Links(self._forward(API_PORT).address)
        until = time.monotonic() + self._pods.objects.settings.start_within
        while True:
            try:
                links.version()
                break
            except LinkError:
                for pod in self._pods.of(LINKS):
                    self._pods.must_come(pod.metadata.name, "Toxiproxy", until)
                time.sleep(LOOK_S)
        self._links = links

    def restart(self) -> None:
        """Its pod is deleted, and there is another one; links were in its memory only."""
        for pod in self._pods.of(LINKS):
            self._pods.api.delete_pod(self._pods.namespace, pod.metadata.name)
        self.make()
        self.wait()

    def asked_at(self, address: str) -> str:
        """Return the address (host:port) at which the harness finds a side of a link, by the one at which nodes find
        it."""
        return self._forward(int(address.rpartition(":")[2])).address

    def close(self) -> None:
        """Close every forward that leads to it."""
        for forward in self._forwards.values():
            forward.close()

    def _forward(self, port: int) -> Forward:
        if port not in self._forwards:
            self._forwards[port] = Forward(self._pods.dial_newest(LINKS, port))
        return self._forwards[port]
