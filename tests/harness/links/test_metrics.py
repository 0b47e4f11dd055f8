"""What `/metrics` counts, on both servers."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from diloco_chaos.harness.links.client import Links
from diloco_chaos.harness.links.metrics import LinkTraffic, Metrics
from diloco_chaos.harness.links.toxic import Toxic

Api = Callable[..., tuple[int, Any]]
Settled = Callable[[Callable[[], Any]], Any]
Connect = Callable[[], tuple[socket.socket, socket.socket]]
Address = tuple[str, int]


@pytest.fixture
def counters(api: Api, address: Address, listener: socket.socket) -> Callable[[], dict[tuple[str, str], int]]:
    """The counters of the link `wire`, by what is counted and in which direction."""
    listen, upstream = (f"{host}:{port}" for host, port in (address, listener.getsockname()))

    def read() -> dict[tuple[str, str], int]:
        status, answer = api("GET", "/metrics")
        assert status == 200
        values = dict(line.rsplit(" ", 1) for line in str(answer).splitlines() if not line.startswith("#"))
        names = {(what, direction): f'toxiproxy_proxy_{what}_bytes_total{{direction="{direction}",'
                                    f'listener="{listen}",proxy="wire",upstream="{upstream}"}}'
                 for what in ("received", "sent") for direction in ("upstream", "downstream")}
        return {what: int(values[name]) for what, name in names.items() if name in values}
    return read


def there_and_back(connect: Connect) -> None:
    """Five bytes upstream, eight downstream, and the end of the connection."""
    client, peer = connect()
    client.sendall(b"there")
    assert peer.recv(10) == b"there"
    peer.sendall(b"and back")
    assert client.recv(10) == b"and back"
    client.close()
    peer.close()


def test_bytes_are_counted_by_direction(connect: Connect, counters: Callable[[], Any], settled: Settled) -> None:
    for _ in range(2):
        there_and_back(connect)
    settled(lambda: counters() == {("received", "upstream"): 10, ("sent", "upstream"): 10,
                                   ("received", "downstream"): 16, ("sent", "downstream"): 16})


def test_what_a_toxic_drops_is_received_and_not_sent(
        links: Links, connect: Connect, counters: Callable[[], Any], settled: Settled) -> None:
    links.add("wire", Toxic("timeout", "upstream", {"timeout": 0}))
    client, peer = connect()
    client.sendall(b"lost")
    client.close()
    assert peer.recv(1) == b""
    peer.close()
    settled(lambda: (counters().get(("received", "upstream")), counters().get(("sent", "upstream"))) == (4, 0))


def test_what_a_link_carried_is_the_sum_of_both_directions(
        links: Links, connect: Connect, settled: Settled) -> None:
    links.create("unused", "127.0.0.1:9")
    before = links.carried().get("wire", 0)  # of former links of that name
    there_and_back(connect)
    settled(lambda: links.carried()["wire"] == before + 13)
    assert links.carried().get("unused", 0) == 0


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
def test_any_method_will_do(api: Api, method: str) -> None:
    assert api(method, "/metrics")[0] == 200


def test_without_connections_nothing_is_counted() -> None:
    assert Metrics().as_text() == ""


def test_labels_are_escaped() -> None:
    metrics = Metrics()
    metrics.traffic(direction="upstream", listener="l", proxy='a"\\\n', upstream="u").received += 3
    assert metrics.as_text().splitlines()[:3] == [
        "# HELP toxiproxy_proxy_received_bytes_total ", "# TYPE toxiproxy_proxy_received_bytes_total counter",
        'toxiproxy_proxy_received_bytes_total{direction="upstream",listener="l",proxy="a\\"\\\\\\n",upstream="u"} 3']


def test_the_same_labels_share_their_counters() -> None:
    metrics, labels = Metrics(), {"direction": "upstream", "listener": "l", "proxy": "a", "upstream": "u"}
    metrics.traffic(**labels).sent += 1
    metrics.traffic(**labels).sent += 1
    assert metrics.traffic(**labels) == LinkTraffic(0, 2)
