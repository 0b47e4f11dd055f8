"""A link with somebody at each end who remembers what came, and when; processes whose cores do what a test says."""

from __future__ import annotations

import pytest

from diloco_chaos.harness.links.toxic import Toxic
from diloco_chaos.harness.simulation.client import SimulatedClient
from diloco_chaos.harness.simulation.disk import MemoryDisk
from diloco_chaos.harness.simulation.host import SimulatedHost
from diloco_chaos.harness.simulation.network import Link
from diloco_chaos.harness.simulation.parameters import Parameters
from diloco_chaos.harness.simulation.server import SimulatedServer
from diloco_chaos.harness.simulation.world import World
from diloco_chaos.harness.trainers.node.failpoints import Failpoints

DELAY = 0.001


class Witness:
    """An end of connections."""

    def __init__(self, world):
        self.world, self.came, self.end = world, [], None

    def arrived(self, connection, message, tensors):
        self.came.append((round(self.world.now, 6), message))

    def ended(self, connection, reason):
        assert self.end is None, "told twice"
        self.end = (round(self.world.now, 6), reason)

    @property
    def messages(self):
        return [message for _, message in self.came]


class Line:
    """One link and one connection through it; messages are whatever a test says."""

    def __init__(self, delay=DELAY, jitter=0.0, seed=0):
        self.world = World(seed)
        self.link = Link("learner-1", self.world, Parameters(delay=delay, jitter=jitter))
        self.client, self.server = Witness(self.world), Witness(self.world)
        self.connect()

    def connect(self):
        """A connection, in place of the one before."""
        self.connection = self.link.connect(1, self.client, self.server)

    def toxic(self, kind, stream="upstream", toxicity=1.0, **attributes):
        toxic = Toxic(kind, stream, attributes, toxicity)
        self.link.add(toxic)
        return toxic

    def send(self, message, size=100):
        self.connection.to_server(size, message, {})

    def at(self, when):
        self.world.run(when)
        return self


@pytest.fixture(scope="session")
def line():
    """line(delay, jitter, seed) -> a Line."""
    return Line


class Core:
    """A state machine that answers each input with the effects that a test has laid down for it."""

    def __init__(self, effects):
        self.effects, self.inputs, self.steady = effects, [], True
        self.heartbeat_timeout = 1e6

    def __getattr__(self, method):
        if not method.startswith("on_") and method != "start":
            raise AttributeError(method)

        def called(*arguments):
            self.inputs.append((method, *arguments))
            effects = self.effects.get(method, ())
            return effects.pop(0) if isinstance(effects, list) and effects else effects
        return called

    def compute(self, step):
        return 0.5

    def times(self, method):
        return [round(entry[-1], 6) for entry in self.inputs if entry[0] == method]


class Machines:
    """A server and a client whose first inputs come at once; nothing is left to chance, and delays are small."""

    def __init__(self, server=None, client=None, holds=None, disk=None, make_server=None, **parameters):
        """`server`, `client`: method of the core -> list of effects for each call."""
        usual = {"start_learner": 0, "start_syncer": 0, "delay": 0.001, "jitter": 0, "compute": 1, "compute_spread": 0,
                 "write": 1, "sync": 1, "late": 0}
        self.world, self.events = World(0), []
        around = SimulatedHost(self.world, Parameters(**(usual | parameters)), self._note, lambda *arguments: None)
        self.link = Link("learner-1", self.world, around.parameters)
        self.disk = disk or MemoryDisk()
        self.server_core, self.client_core = Core(server or {}), Core(client or {})
        self.server = SimulatedServer(around, "syncer", 0, Failpoints(holds or {}), self.disk,
                                      make_server or (lambda: self.server_core))
        self.client = SimulatedClient(around, "learner-1", 0, Failpoints(holds or {}), self.link, lambda: self.server,
                                      lambda: self.client_core)

    def _note(self, node, incarnation, event):
        self.events.append(event.stamped(self.world.now, node, incarnation))

    def at(self, when):
        while self.world.now < when:
            self.world.run(when)
        return self

    def of(self, event):
        return [(each.t, dict(each.payload())) for each in self.events if each.event == event]


@pytest.fixture(scope="session")
def machines():
    """machines(server, client, holds, disk, ...) -> Machines."""
    return Machines
