"""A rate that several connections have together."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.simulation.network import SimulatedNetwork
from diloco_chaos.harness.simulation.parameters import Parameters
from diloco_chaos.harness.simulation.shared_link import SharedLink
from diloco_chaos.harness.simulation.world import World

RATE = 1000.0


@dataclass
class Parcel:
    size: int
    name: str = ""


class Way:
    """One shared link, and when what came through."""

    def __init__(self):
        self.world = World(0)
        self.link = SharedLink(self.world, RATE)
        self.came = {}

    def send(self, sender, size, name=None, at=0.0):
        self.world.at(at, lambda: self.link.carry(sender, Parcel(size, name or sender), self.note))
        return self

    def note(self, parcel):
        self.came[parcel.name] = round(self.world.now, 6)

    def run(self, until=1e6):
        self.world.run(until)
        return self.came


def test_one_alone_has_all_of_it():
    assert Way().send("a", 500).run() == {"a": 0.5}


def test_two_at_the_same_time_have_half_each():
    assert Way().send("a", 500).send("b", 500).run() == {"a": 1.0, "b": 1.0}


def test_who_is_through_leaves_its_part_to_the_others():
    assert Way().send("a", 200).send("b", 600).run() == {"a": 0.4, "b": 0.8}


def test_who_comes_later_takes_its_part_from_then_on():
    assert Way().send("a", 1000).send("b", 500, at=0.5).run() == {"a": 1.5, "b": 1.5}


def test_what_one_sends_keeps_its_order_and_counts_as_one():
    found = Way().send("a", 500, "first").send("a", 0, "end").send("b", 500).run()
    assert found == {"first": 1.0, "end": 1.0, "b": 1.0}
    assert list(found) == ["first", "end", "b"]


def test_what_is_withdrawn_comes_back_in_order_and_takes_nothing_any_more():
    way = Way().send("a", 1000, "a1").send("a", 1000, "a2").send("b", 1000)
    way.run(0.5)
    assert way.link.bytes_of("a") == 2000
    assert [parcel.name for parcel in way.link.withdraw("a")] == ["a1", "a2"]
    assert (way.link.bytes_of("a"), way.run()) == (0, {"b": 1.25})


def test_one_more_would_have_its_part_beside_those_that_are_there():
    way = Way().send("a", 10_000).send("b", 10_000)
    assert way.link.seconds(1000) == 1.0
    way.run(0.1)
    assert way.link.seconds(1000) == 3.0


SENDINGS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 5000), st.floats(0, 10)), min_size=1, max_size=30)


@given(SENDINGS)
def test_everything_comes_through_once_in_its_senders_order_and_no_faster_than_the_rate(sendings):
    way = Way()
    sendings = sorted(sendings, key=lambda sending: sending[2])
    for number, (sender, size, at) in enumerate(sendings):
        way.send(sender, size, f"{sender}{number}", at)
    came = way.run()
    assert len(came) == len(sendings)
    for sender in "abcd":
        own = [name for name in came if name.startswith(sender)]
        assert own == sorted(own, key=lambda name: int(name[1:]))
    busy = free_at = 0.0  # it is never idle while somebody has something under way
    for _, size, at in sendings:
        free_at = max(free_at, at) + size / RATE
        busy += size / RATE
    assert max(came.values()) == pytest.approx(free_at, abs=1e-5)


# -- links that share --------------------------------------------------------------------------------------------------

class Witness:
    def __init__(self, world):
        self.world, self.came = world, []

    def arrived(self, connection, message, tensors):
        self.came.append((round(self.world.now, 6), message))

    def ended(self, connection, reason):
        self.came.append((round(self.world.now, 6), reason))


class Site:
    """Three links, of which two share 1000 bytes per second upstream."""

    def __init__(self):
        self.world = World(0)
        self.network = SimulatedNetwork(self.world, Parameters(delay=0.001, jitter=0.0))
        self.server, self.client = Witness(self.world), Witness(self.world)
        self.lines = {}
        for number, name in enumerate("abc"):
            self.lines[name] = self.network.create(name).connect(number, self.client, self.server)
        self.network.share(["a", "b"], RATE, ["upstream"])

    def send(self, name, size=500):
        self.lines[name].to_server(size, name, {})

    def came(self, until=100.0):
        self.world.run(until)
        return self.server.came


def test_links_share_a_rate_in_one_direction_and_a_third_one_does_not_feel_it():
    site = Site()
    for name in "abc":
        site.send(name)
    site.lines["a"].to_client(500, "down", {})
    assert site.came() == [(0.001, "c"), (1.001, "a"), (1.001, "b")]
    assert site.client.came == [(0.001, "down")]


def test_a_connection_made_later_shares_too():
    site = Site()
    site.lines["a"] = site.network.links["a"].connect(9, site.client, site.server)
    site.send("a")
    assert site.came() == [(0.501, "a")]


def test_when_sharing_is_over_what_waited_comes_at_once():
    site = Site()
    site.send("a", 5000)
    site.world.run(1.0)
    site.network.share(["a", "b"], None, ["upstream"])
    assert site.came() == [(1.0, "a")]
    assert not site.network.links["a"].shares


def test_a_broken_connection_takes_nothing_from_the_others():
    site = Site()
    site.send("a", 5000)
    site.send("b")
    site.world.run(0.5)
    site.network.links["a"].break_all()
    assert (0.75, "b") in [(round(at, 3), message) for at, message in site.came()]
    assert "a" not in [message for _, message in site.server.came]


def test_who_is_off_the_network_hears_of_what_was_under_way_when_it_is_back():
    site = Site()
    site.send("a")
    site.world.run(0.1)
    site.network.links["a"].vanish(True)
    assert site.came(10.0) == []
    site.network.links["a"].vanish(False)
    assert [message for _, message in site.came()] == ["a"]
