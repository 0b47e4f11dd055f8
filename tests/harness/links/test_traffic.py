"""What a link does to the bytes on it, on both servers."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from diloco_chaos.harness.links.client import Links
from diloco_chaos.harness.links.toxic import Toxic

Dial = Callable[[], socket.socket]
Connect = Callable[[], tuple[socket.socket, socket.socket]]

DATA = random.Random(0).randbytes(10_000_000)
LATENCY_MS, AT_LEAST_S = 100, 0.095
HIGH_LATENCY_MS, ONE_BY_ONE_S = 400, 8.0  # ten megabytes are some 40 chunks at least: 16 s one after another
ENDLESS = 400_000_000


def read(sock: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes, fewer where the stream ends before."""
    parts = []
    while size and (part := sock.recv(min(size, 1 << 20))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def ended(sock: socket.socket) -> bool:
    """Wait for the end of a stream that carries no more data: closed or reset."""
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


def round_trip_s(client: socket.socket, peer: socket.socket) -> float:
    """Seconds for one byte there and one back."""
    start = time.monotonic()
    client.sendall(b"?")
    assert read(peer, 1) == b"?"
    peer.sendall(b"!")
    assert read(client, 1) == b"!"
    return time.monotonic() - start


def refuses(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, 20).close()
    except ConnectionRefusedError:
        return True
    return False


def transfer(source: socket.socket, sink: socket.socket, data: bytes) -> bytes:
    """Send `data` and the end of the stream, and read on the other side until it ends."""
    def send() -> None:
        source.sendall(data)
        source.shutdown(socket.SHUT_WR)
    sender = threading.Thread(target=send)
    sender.start()
    received = read(sink, len(data) + 1)
    sender.join()
    return received


def test_bytes_go_both_ways(connect: Connect) -> None:
    client, peer = connect()
    client.sendall(b"to the upstream")
    assert read(peer, 15) == b"to the upstream"
    peer.sendall(b"to the client")
    assert read(client, 13) == b"to the client"


def test_connections_do_not_mix(connect: Connect) -> None:
    pairs = [connect() for _ in range(20)]
    for number, (client, _) in enumerate(pairs):
        client.sendall(b"%02d" % number)
    assert [read(peer, 2) for _, peer in pairs] == [b"%02d" % number for number in range(20)]


@pytest.mark.parametrize("toxic", [None, Toxic("latency", "upstream", {"latency": 20, "jitter": 20}),
                                   Toxic("bandwidth", "upstream", {"rate": 50_000})], ids=str)
def test_ten_megabytes_arrive_byte_for_byte(links: Links, connect: Connect, toxic: Toxic | None) -> None:
    if toxic is not None:
        links.add("wire", toxic)
    assert transfer(*connect(), DATA) == DATA


def test_ten_megabytes_arrive_intact_both_ways_at_once(links: Links, connect: Connect) -> None:
    for stream in ("upstream", "downstream"):
        links.add("wire", Toxic("latency", stream, {"latency": 30, "jitter": 10}))
    client, peer = connect()
    back = DATA[::-1]
    with ThreadPoolExecutor(4) as pool:
        sent = [pool.submit(client.sendall, DATA), pool.submit(peer.sendall, back)]
        there, here = pool.submit(read, peer, len(DATA)), pool.submit(read, client, len(back))
        assert there.result() == DATA
        assert here.result() == back
        for sending in sent:
            sending.result()


@pytest.mark.parametrize("stream", ["upstream", "downstream"])
def test_latency_delays_the_stream_it_is_set_on(links: Links, connect: Connect, stream: str) -> None:
    links.add("wire", Toxic("latency", stream, {"latency": LATENCY_MS}))
    assert round_trip_s(*connect()) >= AT_LEAST_S


def test_latency_adds_up(links: Links, connect: Connect) -> None:
    for stream in ("upstream", "downstream"):
        for number in (1, 2):
            links.add("wire", Toxic("latency", stream, {"latency": LATENCY_MS}, name=f"{stream}{number}"))
    assert round_trip_s(*connect()) >= 4 * AT_LEAST_S


def test_latency_does_not_limit_the_rate(links: Links, connect: Connect) -> None:
    links.add("wire", Toxic("latency", "upstream", {"latency": HIGH_LATENCY_MS}))
    client, peer = connect()
    start = time.monotonic()
    assert transfer(client, peer, DATA) == DATA
    assert time.monotonic() - start < ONE_BY_ONE_S


def test_jitter_keeps_the_order(links: Links, connect: Connect) -> None:
    links.add("wire", Toxic("latency", "upstream", {"latency": 5, "jitter": 5}))
    client, peer = connect()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for number in range(300):
        client.sendall(struct.pack("!H", number))
    assert struct.unpack("!300H", read(peer, 600)) == tuple(range(300))


def test_toxics_take_effect_on_an_open_connection(links: Links, connect: Connect) -> None:
    client, peer = connect()
    round_trip_s(client, peer)
    links.add("wire", Toxic("latency", "downstream", {"latency": LATENCY_MS}))
    assert round_trip_s(client, peer) >= AT_LEAST_S
    links.update("wire", Toxic("latency", "downstream", {"latency": 3 * LATENCY_MS}))
    assert round_trip_s(client, peer) >= 3 * AT_LEAST_S
    links.remove("wire", "latency_downstream")
    assert min(round_trip_s(client, peer) for _ in range(20)) < AT_LEAST_S


def test_data_held_by_a_latency_goes_on_when_it_is_removed(links: Links, connect: Connect) -> None:
    links.add("wire", Toxic("latency", "upstream", {"latency": 3_600_000}))
    client, peer = connect()
    client.sendall(b"an hour early")
    links.remove("wire", "latency_upstream")
    assert read(peer, 13) == b"an hour early"


@pytest.mark.parametrize("stream", ["upstream", "downstream"])
def test_a_bandwidth_bounds_the_rate_from_above(links: Links, connect: Connect, stream: str) -> None:
    links.add("wire", Toxic("bandwidth", stream, {"rate": 200}))
    client, peer = connect()
    source, sink = (client, peer) if stream == "upstream" else (peer, client)
    start = time.monotonic()
    assert transfer(source, sink, DATA[:100_000]) == DATA[:100_000]
    assert time.monotonic() - start >= 0.9 * 100_000 / 200_000


def test_a_bandwidth_can_be_raised_under_way(links: Links, connect: Connect) -> None:
    links.add("wire", Toxic("bandwidth", "upstream", {"rate": 1}))
    client, peer = connect()
    client.sendall(DATA[:100_000])  # a hundred seconds at this rate
    first = read(peer, 1)
    # As with a limit: a rate that changes while the real server cuts a piece from the data makes it panic.
    links.update("wire", Toxic("bandwidth", "upstream", {"rate": 1}))
    links.update("wire", Toxic("bandwidth", "upstream", {"rate": 100_000}))
    assert first + read(peer, 99_999) == DATA[:100_000]


def test_a_bandwidth_of_0_holds_the_data_until_it_is_removed(links: Links, connect: Connect) -> None:
    links.add("wire", Toxic("bandwidth", "upstream", {"rate": 0}))
    client, peer = connect()
    client.sendall(b"held")
    peer.settimeout(0.1)
    with pytest.raises(TimeoutError):
        peer.recv(1)
    peer.settimeout(20)
    links.remove("wire", "bandwidth_upstream")
    assert read(peer, 4) == b"held"


def test_the_end_of_a_stream_comes_after_its_data(links: Links, connect: Connect) -> None:
    links.add("wire", Toxic("latency", "upstream", {"latency": LATENCY_MS}))
    client, peer = connect()
    start = time.monotonic()
    client.sendall(b"last words")
    client.close()
    assert read(peer, 100) == b"last words"
    assert time.monotonic() - start >= AT_LEAST_S


def test_a_disabled_link_closes_its_connections_and_refuses_new_ones(
        links: Links, address: tuple[str, int], connect: Connect) -> None:
    client, peer = connect()
    links.set_enabled("wire", False)
    assert all(ended(end) for end in (client, peer))
    assert refuses(address)


def test_an_enabled_link_listens_at_the_same_address_with_its_toxics(
        links: Links, address: tuple[str, int], connect: Connect) -> None:
    round_trip_s(*connect())
    links.add("wire", Toxic("latency", "upstream", {"latency": LATENCY_MS}))
    for _ in range(5):
        links.set_enabled("wire", False)
        assert refuses(address)
        links.set_enabled("wire", True)
        assert round_trip_s(*connect()) >= AT_LEAST_S


def test_a_deleted_link_closes_its_connections_and_refuses_new_ones(
        links: Links, address: tuple[str, int], connect: Connect) -> None:
    client, peer = connect()
    links.delete("wire")
    assert all(ended(end) for end in (client, peer))
    assert refuses(address)


def test_a_reset_heals_a_cut_and_slowed_link(links: Links, connect: Connect) -> None:
    links.add("wire", Toxic("latency", "upstream", {"latency": 3_600_000}))
    links.set_enabled("wire", False)
    links.reset()
    round_trip_s(*connect())


def test_a_client_is_hung_up_on_while_the_upstream_refuses(dial: Dial, listener: socket.socket) -> None:
    upstream = listener.getsockname()
    listener.close()
    assert ended(dial())
    with socket.create_server(upstream) as back:
        client = dial()
        peer = back.accept()[0]
        with peer:
            round_trip_s(client, peer)


def test_an_upstream_that_dies_in_mid_transfer_ends_the_clients_connection(connect: Connect) -> None:
    client, peer = connect()
    dead = threading.Event()

    def send_until_it_fails() -> None:
        try:
            while True:
                client.sendall(DATA)
        except ConnectionError:
            dead.set()

    sender = threading.Thread(target=send_until_it_fails, daemon=True)
    sender.start()
    read(peer, 1_000_000)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # as killed ones do
    peer.close()
    assert dead.wait(20)
    round_trip_s(*connect())


def test_a_receiver_that_stops_reading_stops_the_sender(connect: Connect) -> None:
    client, peer = connect()
    client.settimeout(0.5)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < ENDLESS:
            sent += client.send(DATA)
    assert sent < ENDLESS
    client.settimeout(20)
    client.shutdown(socket.SHUT_WR)
    received = 0
    while part := peer.recv(1 << 20):
        received += len(part)
    assert received == sent


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_closed_connections_leave_no_open_files(server: Any, address: tuple[str, int], connect: Connect,
                                                settled: Callable[[Callable[[], Any]], Any]) -> None:
    pairs = [connect() for _ in range(30)]
    round_trip_s(*pairs[-1])
    during = open_files(server.pid)
    for number, (client, peer) in enumerate(pairs):
        first, second = (client, peer) if number % 2 else (peer, client)
        first.close()
        assert ended(second)
        second.close()
    settled(lambda: open_files(server.pid) <= during - 2 * len(pairs))
