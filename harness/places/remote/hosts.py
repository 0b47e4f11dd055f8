"""What nodes on other machines run in: a host with an agent for each node, made when it is needed.

A node's incarnations follow each other on the same host: what it has on its disk stays. Where the host is gone, the
next incarnation gets a new one, with an empty disk.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from diloco_chaos.harness.places.base import ClusterError, NodeSpec
from diloco_chaos.harness.places.remote.clocks import RemoteClock
from diloco_chaos.harness.places.remote.connection import AgentConnection

SETTINGS = "cluster.json"
"""What nodes of ours read, from the run's folder."""
LOOK_S, LOOK_ANSWERS_S = 0.1, 2.0
_HISTORY = 24
_CLOCK_READINGS = 8


class AwayError(ClusterError):
    """What manages the place does not answer now; it may again."""


class Used(NamedTuple):
    """The processor time that had been used by a time on a host's clock."""

    at: float
    by_all: float
    """Seconds of processor, of all that is in it."""
    by_agent: float
    """And of the agent alone."""


class Host:
    """The surroundings of one node's incarnations, which run in it one after the other: a pod, or a job, with an agent.
    What is asked of it is done in the order of asking."""

    def __init__(self, name: str, agent: AgentConnection) -> None:
        """`name`: what the place calls it."""
        self.name, self.agent, self.clock = name, agent, RemoteClock()
        self.lost = ""
        """Why it is gone, agent and all; empty: it is there, as far as is known."""
        self.leaving = False
        """It is about to be gone: no incarnation more starts in it."""
        self.heard = 0.0
        """When its agent answered last, by this machine's clock; 0: never."""
        self.report: dict[str, Any] = {}
        """What its agent reported last of its machine, and of itself."""
        self.used: deque[Used] = deque(maxlen=_HISTORY)
        """Of late."""
        self.failure: BaseException | None = None
        """What of that which was asked of it could not be done."""
        self._hand = ThreadPoolExecutor(1, thread_name_prefix=name)

    def soon(self, act: Callable[[], None]) -> Future[None]:
        """Do this after all that was asked before, without waiting for it."""
        def done() -> None:
            if self.failure is not None:
                raise self.failure  # what is asked now needs what could not be done
            try:
                act()
            except BaseException as error:
                self.failure = error
                raise
        try:
            return self._hand.submit(done)
        except RuntimeError:  # it was closed: nothing more is done to it
            over: Future[None] = Future()
            over.set_result(None)
            return over

    def look(self, within: float = LOOK_ANSWERS_S) -> None:
        """Compare clocks, and have the agent report what it sees.

        Raises:
            AgentError: the agent does not answer within so many seconds.
        """
        reading, report = self.agent.look(within)
        self.clock.add(reading)
        self.heard = reading.at
        self.report = report
        self.used.append(Used(float(report["at"]), float(report["used"]), float(report["own"])))

    def close(self) -> None:
        """Ask nothing more; who waits for an answer gets none."""
        self.lost = self.lost or "nothing more is asked of it"
        self._hand.shutdown(wait=False, cancel_futures=True)
        self.agent.close()


class Hosting(Protocol):
    """The way in which hosts come and go at one place."""

    def make(self, spec: NodeSpec, number: int, before: Host | None, hosts: Hosts) -> Host:
        """Ask for what an incarnation will run in; it need not be there yet. `before`: its node's last one. `hosts`:
        all.

        Raises:
            AwayError: nobody can be asked now.
        """
        ...

    def give_up(self, host: Host) -> None:
        """This host was replaced."""
        ...

    def must_come(self, host: Host, what: str, until: float) -> None:
        """Raises where a host will not run, or was waited for until then.

        Raises:
            ClusterError: so it is, with what the place says.
        """
        ...

    def lost(self, host: Host) -> str:
        """Return why a host is gone; empty: it is there, as far as is known."""
        ...

    def machine(self, host: Host) -> str:
        """The machine that it is on; empty: not known yet."""
        ...

    def needs(self, spec: NodeSpec, host: Host) -> Mapping[str, bytes]:
        """The files that a node needs there, by their names there."""
        ...


class Hosts(Mapping[str, Host]):
    """Each node's newest host, by the node's name."""

    def __init__(self, hosting: Hosting, start_within: float) -> None:
        """`start_within`: seconds that a host may take to run."""
        self._hosting, self._start_within = hosting, start_within
        self._newest: dict[str, Host] = {}
        self.owner: Host | None = None
        """The run's own, where it has one."""
        self.avoided: set[str] = set()
        """Machines that get no host any more."""

    def __getitem__(self, node: str) -> Host:
        return self._newest[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self._newest)

    def __len__(self) -> int:
        return len(self._newest)

    def all(self) -> list[Host]:
        """The nodes', and the run's own."""
        return [*self._newest.values(), *([self.owner] if self.owner else [])]

    # -- their beginning -----------------------------------------------------------------------------------------------

    def prepare_all(self, nodes: Sequence[NodeSpec]) -> None:
        """Hosts for all: first for who wants a machine of its own, since the others are put elsewhere."""
        for spec in sorted(nodes, key=lambda spec: not spec.machine):
            self.prepare(spec, spec.incarnation)
            if spec.machine:
                self.wait_placed(spec.name)

    def prepare(self, spec: NodeSpec, number: int) -> None:
        """A host for a node, and a connection with its agent that is there once it runs.

        Raises:
            AwayError: nobody can be asked now.
        """
        before = self._newest.get(spec.name)
        self._newest[spec.name] = host = self._hosting.make(spec, number, before, self)
        host.soon(lambda: self._provide(host, spec))
        if before is not None:
            before.close()
            with suppress(AwayError):  # else it goes with everything else
                self._hosting.give_up(before)

    def for_next(self, spec: NodeSpec, number: int) -> Host | None:
        """The host of a node's next incarnation, another one where its last is gone; None: nobody can be asked now."""
        if self[spec.name].lost or self[spec.name].leaving:
            try:
                self.prepare(spec, number)
            except AwayError:
                return None
        return self[spec.name]

    def wait_placed(self, node: str) -> str:
        """Wait until it is known which machine a node is on; return its name.

        Raises:
            ClusterError: its host will not run, or is not there in time.
        """
        host, until = self[node], time.monotonic() + self._start_within
        while not (machine := self._hosting.machine(host)):
            self._hosting.must_come(host, node, until)
            time.sleep(LOOK_S)
        return machine

    def wait_there(self, host: Host, what: str) -> None:
        """Wait until a host's agent can be asked.

        Raises:
            ClusterError: it will not run, or is not there in time.
        """
        until = time.monotonic() + self._start_within
        while not host.agent.wait(LOOK_S):
            if host.lost:
                raise ClusterError(f"{what}: {host.lost}")
            self._hosting.must_come(host, what, until)

    def _provide(self, host: Host, spec: NodeSpec) -> None:
        """Wait for its agent, give it the files that the node needs, and compare clocks."""
        self.wait_there(host, spec.name)
        for name, content in self._hosting.needs(spec, host).items():
            host.agent.ask("put", content, path=name, within=self._start_within)
        for _ in range(_CLOCK_READINGS):
            host.look()

    # -- what goes on --------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Notice hosts that are gone, and what could not be done on one.

        Raises:
            ClusterError: something could not.
        """
        for host in self._newest.values():
            host.lost = host.lost or self._hosting.lost(host)
            if host.failure is not None and not (host.lost or host.leaving):
                raise host.failure

    def machine(self, host: Host) -> str:
        """The machine that it is on; empty: not known yet."""
        return self._hosting.machine(host)

    def machine_of(self, node: str) -> str:
        """The machine that a node is on.

        Raises:
            ClusterError: nobody knows.
        """
        if not (machine := self._hosting.machine(self[node])):
            raise ClusterError(f"nobody knows which machine {node} is on")
        return machine

    def on(self, machine: str) -> list[str]:
        """The nodes that are on a machine."""
        return [name for name, host in self.items() if self._hosting.machine(host) == machine and not host.lost]

    def close(self) -> None:
        """Ask nothing more of any."""
        for host in self.all():
            host.close()


def needed(spec: NodeSpec, run: Path) -> dict[str, bytes]:
    """The files that a node of ours needs beyond its host, by their names here; a command needs none."""
    if spec.program is not None:
        return {}
    return {SETTINGS: (run / SETTINGS).read_bytes(), **{str(path): path.read_bytes() for path in spec.reads}}
