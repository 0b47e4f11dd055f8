"""Simulated links: as a link server serves them, what becomes of them all at once, and what a probe would measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from diloco_chaos.harness.links.probe import PROBE_TIMEOUT_S, Sounding
from diloco_chaos.harness.places.links.run_links import RunLinks
from diloco_chaos.harness.simulation.flow import passage
from diloco_chaos.harness.simulation.host import SimulatedHost
from diloco_chaos.harness.simulation.network import Link, SimulatedNetwork
from diloco_chaos.harness.simulation.server import SimulatedServer
from diloco_chaos.harness.simulation.world import World

_QUESTION_BYTES = 120
_RESTART_S = 0.9


class SimulatedLinks:
    """Implements `diloco_chaos.harness.places.links.run_links.ProxyServer`."""

    pid = 0

    def __init__(self, network: SimulatedNetwork) -> None:
        self.control = network

    def make(self, side: str, upstream: str, enabled: bool) -> str:
        """Make a side of a link; return its name, by which nodes find it."""
        self.control.create(side)
        return side

    def asked_at(self, address: str) -> str:
        """Return its name, by which the harness finds it, too."""
        return address

    def carried(self) -> Mapping[str, int] | None:
        """Return None: this is not known."""
        return None

    def undone_by(self) -> None:
        """It ends with this process."""


class NetworkFaults:
    """Implements `Network`, `LinkServer` and `SharedLinks` of `diloco_chaos.harness.places.capabilities`."""

    def __init__(self, world: World, network: SimulatedNetwork, links: RunLinks) -> None:
        self._world, self._network, self._links = world, network, links
        self._coming: list[Link] = []  # links that are restarted

    def disconnect(self, node: str, off: bool) -> None:
        """Packets of all its links are lost."""
        for link in self._links.of(node):
            self._network.links[link].vanish(off)

    def restart_links(self) -> float:
        """Break all connections, and refuse new ones for a while; return how many seconds that takes."""
        for link in self._network.links.values():
            if link.enabled:
                link.enable(False)
                self._coming.append(link)
                self._world.after(_RESTART_S, self._is_back, link)
        return _RESTART_S

    def share_links(self, links: Sequence[str], rate: float | None, streams: Sequence[str]) -> None:
        """Let these links share a rate, as if they all went through one."""
        self._network.share(links, rate, streams)

    def bring_back(self) -> None:
        """Bring back now every link that is about to be there again."""
        for link in list(self._coming):
            self._is_back(link)

    def residue(self) -> list[str]:
        """Links that share a rate, in words."""
        return [f"{link.name} shares a rate" for link in self._network.links.values() if link.shares]

    def _is_back(self, link: Link) -> None:
        if link in self._coming:
            self._coming.remove(link)
            if not self._links.is_disabled(link.name):
                link.enable(True)


def sounding(link: Link, server: SimulatedServer, around: SimulatedHost, reply_bytes: int, send_bytes: int,
             watch_close: bool) -> Sounding:
    """Return what a probe through a link would measure now; `server`: what it leads to."""
    if not link.enabled:
        return Sounding("refused")
    if link.vanished:
        return Sounding("silent")
    up, down = link.paces()
    base = around.parameters.delay
    spent, received = base, 0
    for pace, size in ((up, _QUESTION_BYTES + send_bytes), (down, _QUESTION_BYTES // 2 + reply_bytes)):
        if pace is down and not server.listening:
            return Sounding("closed", spent)
        if pace is down and server.frozen:
            return Sounding("silent", PROBE_TIMEOUT_S)
        took, passed, end = passage(pace, size, around.world.now)
        took += link.shared_s("downstream" if pace is down else "upstream", passed)
        received = passed if pace is down else 0
        if end == "silent" or (end != "answered" and took > PROBE_TIMEOUT_S):
            return Sounding("silent", PROBE_TIMEOUT_S, received)
        spent += took + base / 2
        if end != "answered":
            return Sounding(end, spent, received)
    closing = up.end_delay_s + down.end_delay_s + base if watch_close else None
    return Sounding("answered", spent, received, closing)
