"""Three interpreters of effects, to be held to one suite: on sockets, under virtual time, and the tests' own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.record.storage.checkpoint import load
from diloco_chaos.harness.record.tape.events import Custom, Event, Listening
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.record.tape.writing import TapeWriter
from diloco_chaos.harness.simulation.client import SimulatedClient
from diloco_chaos.harness.simulation.disk import MemoryDisk
from diloco_chaos.harness.simulation.host import SimulatedHost
from diloco_chaos.harness.simulation.network import Link
from diloco_chaos.harness.simulation.parameters import Parameters
from diloco_chaos.harness.simulation.server import SimulatedServer
from diloco_chaos.harness.simulation.world import World
from diloco_chaos.harness.trainers.core.effects import Compute, Effect
from diloco_chaos.harness.trainers.core.roles import COORDINATOR
from diloco_chaos.harness.trainers.node.client import ClientDriver
from diloco_chaos.harness.trainers.node.failpoints import Failpoints
from diloco_chaos.harness.trainers.node.server import ServerDriver
from diloco_chaos.harness.trainers.wire.messages import Introduction, Message, vocabulary
from inmemory import InMemoryNodes

WORKER, TOKEN = "learner-1", "t" * 32
_PATIENCE_S = 60.0
Answer = Callable[..., Iterable[Effect]]
"""answer(method, *given, now) -> the effects of an input."""


class Say(Message, frozen=True, kw_only=True):
    """Something, in words."""

    text: str


WORDS = vocabulary(Introduction | Say)
HELLO = Introduction(token=TOKEN, node=WORKER, incarnation=0)


@dataclass
class Played:
    """What came of it."""

    inputs: dict[str, list[tuple[Any, ...]]] = field(default_factory=lambda: {COORDINATOR: [], WORKER: []})
    """Node -> (method, what it was given, the time), in order."""
    notes: dict[str, list[str]] = field(default_factory=lambda: {COORDINATOR: [], WORKER: []})
    """Node -> texts of its `note` events."""
    stored: dict[str, Tensors] = field(default_factory=dict)
    """What the coordinator has committed, by file."""
    snapshots: list[Tensors] = field(default_factory=list)

    def of(self, node: str, method: str) -> list[tuple[Any, ...]]:
        """What a method was given each time, and when."""
        return [given for name, *given in self.inputs[node] if name == method]  # type: ignore[misc]


class Scripted:
    """A core that answers as a test says, and notes what it is given."""

    messages, steady, heartbeat_timeout, incarnation = WORDS, True, 3.0, 0

    def __init__(self, name: str, answer: Answer, inputs: list[tuple[Any, ...]]) -> None:
        self.name, self._answer, self._inputs = name, answer, inputs

    def status(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def compute(self, step: Compute) -> tuple[int, float]:
        """What it was asked for."""
        return step.position, step.lr

    def __getattr__(self, method: str) -> Callable[..., Iterable[Effect]]:
        if not method.startswith("on_") and method != "start":
            raise AttributeError(method)

        def called(*given: Any) -> Iterable[Effect]:
            self._inputs.append((method, *given))
            return list(self._answer(method, *given))
        return called


Play = Callable[[Answer, Answer, Path], Played]
"""Until both have stopped, or the coordinator has."""


def in_memory(coordinator: Answer, worker: Answer, folder: Path) -> Played:
    """The tests' own."""
    played = Played()

    class Nodes(InMemoryNodes):
        def new_syncer(self) -> Any:
            return Scripted(COORDINATOR, coordinator, played.inputs[COORDINATOR])

        def new_learner(self, name: str) -> Any:
            return Scripted(name, worker, played.inputs[name])
    nodes = Nodes()
    nodes.start_syncer()
    nodes.start_learner(WORKER)
    nodes.run(_PATIENCE_S)
    assert nodes.over, "it never stopped"
    for event in nodes.tape:
        if isinstance(event, Custom):
            played.notes[event.node].append(event.fields["text"])
    played.stored = {name: tensors for name, (tensors, _) in nodes.disk.items()}
    played.snapshots = [tensors for _, tensors in nodes.snapshots]
    return played


def simulated(coordinator: Answer, worker: Answer, folder: Path) -> Played:
    """Under virtual time."""
    played, world, disk = Played(), World(0), MemoryDisk()

    def note(node: str, incarnation: int, event: Event) -> None:
        if isinstance(event, Custom):
            played.notes[node].append(event.fields["text"])
    host = SimulatedHost(world, Parameters(), note, lambda tensors, meta: played.snapshots.append(tensors))
    link = Link(WORKER, world, host.parameters)
    server = SimulatedServer(host, COORDINATOR, 0, Failpoints({}), disk,
                             lambda: Scripted(COORDINATOR, coordinator, played.inputs[COORDINATOR]))  # type: ignore[arg-type]
    client = SimulatedClient(host, WORKER, 0, Failpoints({}), link, lambda: server,
                             lambda: Scripted(WORKER, worker, played.inputs[WORKER]))  # type: ignore[arg-type]
    while None in (server.status, client.status):
        assert world.now < _PATIENCE_S, "it never stopped"
        world.run(world.now + 0.1)
    played.stored = {name: disk.read(name).tensors for name in disk.names()}
    return played


def on_sockets(coordinator: Answer, worker: Answer, folder: Path) -> Played:
    """Two drivers on loopback."""
    played, epoch = Played(), time.monotonic()
    server = ServerDriver(Scripted(COORDINATOR, coordinator, played.inputs[COORDINATOR]),  # type: ignore[arg-type]
                          TapeWriter(folder / "tape", COORDINATOR, 0, epoch), epoch, folder, Failpoints({}), TOKEN)
    client = ClientDriver(Scripted(WORKER, worker, played.inputs[WORKER]),  # type: ignore[arg-type]
                          TapeWriter(folder / "tape", WORKER, 0, epoch), epoch, folder, Failpoints({}))

    async def both() -> None:
        serving = asyncio.ensure_future(server.run("127.0.0.1", 0))
        while not (listening := Tape.read(folder / "tape").of(Listening)):
            await asyncio.sleep(0.001)
        await asyncio.gather(serving, client.run("127.0.0.1", listening[0].port))
    asyncio.run(asyncio.wait_for(both(), _PATIENCE_S))
    for event in Tape.read(folder / "tape").named("note"):
        played.notes[event.node].append(event.fields["text"])
    played.stored = {path.name: load(path)[0] for path in sorted((folder / "state").glob("*"))}
    played.snapshots = [load(path)[0] for path in sorted((folder / "snapshots").glob("*"))]
    return played
