"""What toxics do to connections and to the ends of streams, on both servers and in both directions."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from diloco_chaos.harness.links.client import Links
from diloco_chaos.harness.links.toxic import Toxic

Open = Callable[[], Any]  # opens a `Way`

HOUR_MS = 3_600_000
SOON_MS, AT_LEAST_S = 100, 0.095
DATA = random.Random(0).randbytes(100_000)
HARMFUL = [Toxic("latency", "upstream", {"latency": HOUR_MS}), Toxic("bandwidth", "upstream", {"rate": 0}),
           Toxic("timeout", "upstream", {"timeout": 0}), Toxic("reset_peer", "upstream", {"timeout": 0}),
           Toxic("slow_close", "upstream", {"delay": HOUR_MS}), Toxic("limit_data", "upstream", {"bytes": 0}),
           Toxic("slicer", "upstream", {"average_size": 1, "delay": HOUR_MS * 1000})]


def on(stream: str, kind: str, toxicity: float = 1.0, **attributes: int) -> Toxic:
    return Toxic(kind, stream, attributes, toxicity, name="t")


def still_open(sock: socket.socket) -> bool:
    """Nothing to read, and no end either, for a tenth of a second."""
    patience = sock.gettimeout()
    sock.settimeout(0.1)
    try:
        sock.recv(1)
    except TimeoutError:
        return True
    finally:
        sock.settimeout(patience)
    return False


@pytest.mark.parametrize("toxic", HARMFUL, ids=lambda toxic: toxic.type)
def test_what_toxicity_0_spares_is_carried_and_closed(
        links: Links, open_way: Open, stream: str, toxic: Toxic) -> None:
    links.add("wire", on(stream, toxic.type, toxicity=0.0, **dict(toxic.attributes)))
    way = open_way()
    assert way.carries(b"there")
    assert way.back.carries(b"and back")
    way.source.shutdown(socket.SHUT_WR)
    assert way.end() == ("reset" if toxic.type == "reset_peer" else "closed")


@pytest.mark.parametrize("toxic", HARMFUL, ids=lambda toxic: toxic.type)
def test_the_other_direction_is_free(links: Links, open_way: Open, stream: str, toxic: Toxic) -> None:
    links.add("wire", on(stream, toxic.type, **dict(toxic.attributes)))
    assert open_way().back.carries(b"the other direction")


def test_a_noop_does_nothing(links: Links, open_way: Open, stream: str) -> None:
    links.add("wire", on(stream, "noop"))
    assert open_way().carries(DATA)


def test_a_toxic_of_toxicity_0_spares_open_connections(links: Links, open_way: Open, stream: str) -> None:
    way = open_way()
    links.add("wire", on(stream, "timeout", toxicity=0.0, timeout=0))
    assert way.carries(b"as before")


def test_a_timeout_drops_data_and_closes_the_connection(links: Links, open_way: Open, stream: str) -> None:
    links.add("wire", on(stream, "timeout", timeout=SOON_MS))
    way = open_way()
    start = time.monotonic()
    way.source.sendall(b"lost")
    assert all(way.ends())
    assert time.monotonic() - start >= AT_LEAST_S


def test_a_timeout_of_0_drops_data_until_removed_and_closes_then(
        links: Links, open_way: Open, stream: str) -> None:
    links.add("wire", on(stream, "timeout", timeout=0))
    way = open_way()
    way.source.sendall(b"lost")
    assert way.back.carries(b"the other stream is free")
    links.remove("wire", "t")
    assert all(way.ends())
    assert open_way().carries(b"a new connection")


def test_a_timeout_takes_effect_on_an_open_connection(links: Links, open_way: Open, stream: str) -> None:
    way = open_way()
    assert way.carries(b"before")
    links.add("wire", on(stream, "timeout", timeout=50))
    assert all(way.ends())


@pytest.mark.parametrize("timeout", [0, SOON_MS])
def test_a_reset_peer_resets_both_ends_after_the_first_data(
        links: Links, open_way: Open, stream: str, timeout: int) -> None:
    links.add("wire", on(stream, "reset_peer", timeout=timeout))
    way = open_way()
    start = time.monotonic()
    way.source.sendall(b"lost")
    assert way.ends() == ("reset", "reset")
    assert time.monotonic() - start >= 0.95 * timeout / 1000


def test_to_a_reset_peer_the_end_of_a_stream_is_data(links: Links, open_way: Open, stream: str) -> None:
    links.add("wire", on(stream, "reset_peer", timeout=0))
    way = open_way()
    way.source.shutdown(socket.SHUT_WR)
    assert way.ends() == ("reset", "reset")


def test_a_reset_peer_spares_an_idle_connection(links: Links, open_way: Open, stream: str) -> None:
    links.add("wire", on(stream, "reset_peer", timeout=0))
    way = open_way()
    assert still_open(way.sink)
    links.remove("wire", "t")
    assert way.carries(b"nothing happened")


def test_a_reset_peer_ends_a_connection_that_was_open_before(links: Links, open_way: Open, stream: str) -> None:
    way = open_way()
    assert way.carries(b"before")
    links.add("wire", on(stream, "reset_peer", timeout=0))
    way.source.sendall(b"lost")
    assert way.ends() == ("closed", "closed")


@pytest.mark.parametrize("when", ["while it is there", "after it was removed"])
def test_a_connection_that_was_made_beside_a_reset_peer_ends_in_a_reset(
        links: Links, open_way: Open, stream: str, when: str) -> None:
    before = open_way()
    links.add("wire", on(stream, "reset_peer", toxicity=0.0, timeout=0))
    meanwhile = open_way()
    if when == "after it was removed":
        links.remove("wire", "t")
    assert meanwhile.carries(b"as ever")
    for way in (before, meanwhile):
        way.source.close()
    assert (before.end(), meanwhile.end()) == ("closed", "reset")
    assert links.toxics("wire") or open_way().carries(b"a new one")


def test_a_timeout_that_is_removed_closes_also_what_it_spared(links: Links, open_way: Open, stream: str) -> None:
    before = open_way()
    links.add("wire", on(stream, "timeout", toxicity=0.0, timeout=0))
    meanwhile = open_way()
    assert before.carries(b"spared")
    assert meanwhile.carries(b"spared, too")
    links.remove("wire", "t")
    assert (*before.ends(), *meanwhile.ends()) == ("closed",) * 4


def test_the_end_of_one_direction_ends_both(links: Links, open_way: Open, stream: str) -> None:
    way = open_way()
    assert way.carries(b"a question")
    way.source.shutdown(socket.SHUT_WR)
    assert way.ends() == ("closed", "closed")


def drops(ways: list[Any]) -> list[bool]:
    """Which connections lose what is sent in their direction."""
    for way in ways:
        way.source.sendall(b"?")
    time.sleep(0.2)
    return [not select.select([way.sink], [], [], 0)[0] or not way.read(1) for way in ways]


@pytest.mark.parametrize(("change", "again"), [
    (lambda links, add: add("b"), True), (lambda links, add: (add("b"), links.remove("wire", "b")), True),
    (lambda links, add: add("b", "other"), False), (lambda links, add: None, False)],
    ids=["one is added after it", "the one after it is removed", "the other direction", "nothing"])
def test_of_which_connections_are_hit_a_change_next_to_a_toxic_decides_anew(
        links: Links, open_way: Open, stream: str, change: Callable[..., Any], again: bool) -> None:
    ways = [open_way() for _ in range(40)]
    other = "downstream" if stream == "upstream" else "upstream"
    links.add("wire", on(stream, "timeout", toxicity=0.5, timeout=0))
    first = drops(ways)
    change(links, lambda name, where="": links.add("wire", Toxic("noop", other if where else stream, {}, name=name)))
    assert (drops(ways) != first) is again


def test_only_the_toxic_before_the_one_that_changes_is_drawn_again(links: Links, open_way: Open, stream: str) -> None:
    ways = [open_way() for _ in range(40)]
    links.add("wire", on(stream, "timeout", toxicity=0.5, timeout=0))
    links.add("wire", Toxic("noop", stream, {}, name="between"))
    first = drops(ways)
    links.add("wire", Toxic("noop", stream, {}, name="last"))
    links.remove("wire", "last")
    assert drops(ways) == first


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_a_fault_of_both_directions_hits_as_many_connections_as_it_is_to(
        links: Links, open_way: Open, share: float) -> None:
    for each in ("upstream", "downstream"):
        links.add("wire", Toxic("timeout", each, {"timeout": 0}, share, f"f1-{each}", "f1", 2))
    ways = [open_way() for _ in range(200)]
    up, down = drops(ways), drops([way.back for way in ways])
    hit = sum(map(any, zip(up, down, strict=True)))
    assert abs(hit / 200 - share) < 0.12, "3.5 standard deviations"
    assert (up == down) is links.draws_once()


def test_a_reset_peers_timeout_can_be_changed_until_data_comes(
        links: Links, open_way: Open, stream: str) -> None:
    links.add("wire", on(stream, "reset_peer", timeout=HOUR_MS))
    way = open_way()
    links.update("wire", on(stream, "reset_peer", timeout=0))
    way.source.sendall(b"lost")
    assert way.ends() == ("reset", "reset")


@pytest.mark.parametrize("before", [False, True], ids=["new connection", "open connection"])
def test_a_slow_close_holds_the_end_and_not_the_data(
        links: Links, open_way: Open, stream: str, before: bool) -> None:
    way = open_way() if before else None
    links.add("wire", on(stream, "slow_close", delay=SOON_MS))
    way = way or open_way()
    start = time.monotonic()
    way.source.sendall(b"last words")
    way.source.close()
    assert way.read(100) == b"last words"  # and the end
    assert time.monotonic() - start >= AT_LEAST_S


@pytest.mark.parametrize("release", [
    lambda links, stream: links.remove("wire", "t"),
    lambda links, stream: links.reset(),
    lambda links, stream: links.update("wire", on(stream, "slow_close", delay=1)),
    lambda links, stream: links.update("wire", on(stream, "slow_close", toxicity=0.0, delay=HOUR_MS)),
], ids=["remove", "reset", "shorten", "spare"])
def test_a_held_end_comes_when_the_slow_close_lets_go(
        links: Links, open_way: Open, stream: str, release: Callable[[Links, str], None]) -> None:
    links.add("wire", on(stream, "slow_close", delay=HOUR_MS))
    way = open_way()
    way.source.sendall(b"at once")
    way.source.close()
    assert way.read(7) == b"at once"
    assert still_open(way.sink)
    release(links, stream)
    assert way.read(1) == b""


@pytest.mark.parametrize("limit", [1, 100, 70_001])
def test_a_limit_lets_exactly_its_bytes_through(links: Links, open_way: Open, stream: str, limit: int) -> None:
    links.add("wire", on(stream, "limit_data", bytes=limit))
    way = open_way()
    with contextlib.suppress(ConnectionError):
        way.source.sendall(DATA)
    assert way.read(limit) == DATA[:limit]
    assert all(way.ends())


def test_a_limit_closes_with_its_last_byte(links: Links, open_way: Open, stream: str) -> None:
    links.add("wire", on(stream, "limit_data", bytes=100))
    way = open_way()
    assert way.carries(b"x" * 99)
    assert way.carries(b"y")
    assert way.ends() == ("closed", "closed")


def test_a_limit_of_0_closes_at_the_first_data(links: Links, open_way: Open, stream: str) -> None:
    links.add("wire", on(stream, "limit_data", bytes=0))
    way = open_way()
    assert still_open(way.sink)
    way.source.sendall(b"lost")
    assert all(way.ends())


def test_a_limit_counts_each_connection_by_itself(links: Links, open_way: Open, stream: str) -> None:
    links.add("wire", on(stream, "limit_data", bytes=10))
    ways = [open_way(), open_way()]
    assert all(way.carries(b"123456789") for way in ways)
    for way in ways:
        way.source.sendall(b"0+")
        assert way.read(2) == b"0"


def test_a_limit_on_an_open_connection_counts_from_then_on(links: Links, open_way: Open, stream: str) -> None:
    way = open_way()
    assert way.carries(b"uncounted")
    links.add("wire", on(stream, "limit_data", bytes=10))
    way.source.sendall(b"0123456789+")
    assert way.read(11) == b"0123456789"


@pytest.mark.parametrize(("changed", "passes"), [(100, b"b" * 40), (80, b"b" * 20), (60, b""), (30, b"")])
def test_a_limit_keeps_its_count_over_an_update(
        links: Links, open_way: Open, stream: str, changed: int, passes: bytes) -> None:
    links.add("wire", on(stream, "limit_data", bytes=1000))
    way = open_way()
    assert way.carries(b"a" * 60)
    # An update interrupts the toxic between two pieces of data: after one that changes nothing, the piece that
    # has arrived is counted, too. The real server compares it with the new limit otherwise, and closes.
    links.update("wire", on(stream, "limit_data", bytes=1000))
    links.update("wire", on(stream, "limit_data", bytes=changed))
    assert way.back.carries(b"open still")
    way.source.sendall(b"b" * 60)
    assert way.read(60) == passes
    assert all(way.ends())


def test_a_limit_counts_anew_after_it_was_removed(links: Links, open_way: Open, stream: str) -> None:
    links.add("wire", on(stream, "limit_data", bytes=10))
    way = open_way()
    assert way.carries(b"123456789")
    links.remove("wire", "t")
    assert way.carries(DATA)
    links.add("wire", on(stream, "limit_data", bytes=10))
    way.source.sendall(b"0123456789+")
    assert way.read(11) == b"0123456789"


def test_a_slicers_slices_are_microseconds_apart(links: Links, open_way: Open, stream: str) -> None:
    links.add("wire", on(stream, "slicer", average_size=100, size_variation=20, delay=20_000))
    way = open_way()
    start = time.monotonic()
    assert way.carries(DATA[:1000])
    slices = 9  # at least: none has more than 120 bytes
    assert time.monotonic() - start >= 0.95 * (slices - 1) * 0.02


@pytest.mark.parametrize("release", [
    lambda links, stream: links.remove("wire", "t"),
    lambda links, stream: links.update("wire", on(stream, "slicer", average_size=50, delay=0)),
], ids=["remove", "update"])
def test_what_a_slicer_holds_goes_on_when_it_lets_go(
        links: Links, open_way: Open, stream: str, release: Callable[[Links, str], None]) -> None:
    way = open_way()
    links.add("wire", on(stream, "slicer", average_size=50, size_variation=0, delay=HOUR_MS * 1000))
    way.source.sendall(DATA[:1000])
    first = way.sink.recv(1000)
    assert len(first) <= 50
    assert still_open(way.sink)
    release(links, stream)
    assert first + way.read(1000 - len(first)) == DATA[:1000]


def test_a_slicer_without_delay_loses_and_swaps_nothing(links: Links, open_way: Open, stream: str) -> None:
    links.add("wire", on(stream, "slicer", average_size=1000, size_variation=500, delay=0))
    assert open_way().carries(DATA)
