"""The pod whose end is that of the run. It has our image: it stands beside the nodes, answers, and asks for us."""

from __future__ import annotations

import time
from pathlib import Path

from diloco_chaos.harness.links.probe import Sounding
from diloco_chaos.harness.places.kubernetes.api import KubernetesError
from diloco_chaos.harness.places.kubernetes.manifests import NODES, OWNER
from diloco_chaos.harness.places.kubernetes.pods import KubernetesPods
from diloco_chaos.harness.places.links.run_links import RunLinks
from diloco_chaos.harness.places.remote.connection import AgentConnection
from diloco_chaos.harness.places.remote.hosts import LOOK_S, Host
from diloco_chaos.harness.trainers.wire.pod_probe import Beside

_ECHO, _PROBES = 6999, 6998


class Owner:
    """See the module. Implements `diloco_chaos.harness.places.capabilities.Asks`."""

    def __init__(self, pods: KubernetesPods, links: RunLinks, run: Path, token: str) -> None:
        """`run`: the run's folder. `token`: of the run."""
        self._pods, self._links, self._run, self._token = pods, links, run, token
        self._beside = Beside(token, pods.dial_newest(OWNER, _PROBES))
        self._beside_since = 0.0  # when the agent began that was asked for it
        self.host: Host | None = None
        """What it runs in, from `begin` on."""

    def begin(self) -> Host:
        """Have its pod made."""
        self._pods.api.let_go_on(self._pods.namespace, self._pods.objects.name(OWNER))
        self.host = Host(OWNER, AgentConnection(OWNER, self._run, self._token, self._pods.dial_newest(OWNER)))
        return self.host

    def wait(self, until: float) -> None:
        """Wait until its agent can be asked.

        Raises:
            ClusterError: its pod will not run, or not until then.
        """
        while self.host is not None and not self.host.agent.wait(LOOK_S):
            for pod in self._pods.of(OWNER):
                self._pods.must_come(pod.metadata.name, "the run's own pod", until)
            time.sleep(LOOK_S)

    def stand_beside(self) -> None:
        """Have it answer and ask for us; and again where it is another one."""
        if self.host is not None and self.host.agent.began != self._beside_since:
            self._beside_since = self.host.agent.began
            argv = ["python3", "-m", "diloco_chaos.harness.trainers.wire.pod_probe", str(_ECHO), str(_PROBES)]
            self.host.agent.soon("spawn", name=f"{OWNER}.0", argv=argv)

    def echo(self) -> str:
        """Return the address (host:port) at which the link server finds its echo: it finds nothing of the harness'
        machine."""
        return f"{OWNER}.{self._pods.objects.name(NODES)}:{_ECHO}"

    def ask(self, link: str, reply_bytes: int, send_bytes: int, watch_close: bool) -> Sounding:
        """Measure a link from its pod: on the way from here a connection's end looks the same however it came."""
        try:
            return self._beside.ask(self._links.asked_by_nodes_at(link), reply_bytes=reply_bytes,
                                    send_bytes=send_bytes, watch_close=watch_close)
        except (OSError, ValueError) as error:
            raise KubernetesError(f"{link} can't be measured: {error}") from error

    def close(self) -> None:
        """Ask nothing more."""
        self._beside.close()
