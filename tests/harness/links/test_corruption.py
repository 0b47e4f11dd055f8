"""Bits that turn over: the same ones whatever the pieces in which a stream comes, and counted."""

from __future__ import annotations

import random
import socket
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.links.client import Links
from diloco_chaos.harness.links.corruption import Corrupted, Corruption, Corruptions
from diloco_chaos.harness.links.toxic import Toxic
from diloco_chaos.harness.links.toxics import CorruptAttributes, ToxicSettings

DATA = random.Random(0).randbytes(10_000)


def corruption(*, seed: int = 0, stream: str = "upstream", **settings: int) -> Corruption:
    attributes = CorruptAttributes(**settings, seed=seed)
    return Corruption("a", ToxicSettings("f1-corrupt", "corrupt", stream, 1.0, attributes), attributes)


def turned(out: bytes) -> list[int]:
    """The places of bytes in which one bit is another one; none may have more."""
    places = [place for place, (before, after) in enumerate(zip(DATA, out, strict=True)) if before != after]
    assert all((DATA[place] ^ out[place]).bit_count() == 1 for place in places)
    return places


@given(st.lists(st.integers(1, 4000), min_size=1, max_size=20), st.integers(0, 3000), st.integers(0, 3000),
       st.integers(0, 4))
def test_the_pieces_in_which_data_comes_make_no_difference(
        sizes: list[int], after: int, every: int, count: int) -> None:
    whole, pieces = (corruption(after=after, every=every, count=count, seed=7) for _ in range(2))
    expected, out, turn = bytes(whole.spoil(DATA)), b"", 0
    while len(out) < len(DATA):
        out += bytes(pieces.spoil(DATA[len(out):len(out) + sizes[turn % len(sizes)]]))
        turn += 1
    assert out == expected
    assert pieces.account == whole.account


def test_one_bit_turns_over_in_each_block_from_where_it_begins() -> None:
    places = turned(bytes(corruption(after=500, every=1000).spoil(DATA)))
    assert [(place - 500) // 1000 for place in places[:9]] == list(range(9))
    assert places[0] >= 500


def test_no_more_bits_turn_over_than_were_asked_for() -> None:
    assert len(turned(bytes(corruption(every=100, count=3).spoil(DATA)))) == 3


def test_what_is_handed_in_stays_as_it_was() -> None:
    given_ = bytearray(DATA)
    assert corruption(every=100).spoil(memoryview(given_)) != DATA
    assert given_ == DATA


def test_another_seed_and_the_other_direction_hit_other_bits() -> None:
    hit = [turned(bytes(each.spoil(DATA))) for each in (
        corruption(every=1000), corruption(every=1000, seed=1), corruption(every=1000, stream="downstream"))]
    assert len(set(map(tuple, hit))) == 3


def test_a_toxic_that_changes_nothing_has_no_account_and_one_that_comes_back_goes_on_with_its_own() -> None:
    known, settings = Corruptions(), CorruptAttributes(every=1000)
    toxic = ToxicSettings("f1", "corrupt", "upstream", 1.0, settings)
    first = known.of("a", toxic)
    assert first is not None
    first.spoil(DATA)
    assert known.of("a", toxic) is first
    assert first.account.bits == 10
    known.of("a", ToxicSettings("f1", "corrupt", "upstream", 1.0, CorruptAttributes(every=100)))
    first.spoil(DATA)
    assert first.account.bits == 110


@pytest.mark.parametrize("stream", ["upstream", "downstream"])
def test_the_server_tells_what_it_changed_also_when_the_toxic_is_gone(
        embedded: Any, stream: str) -> None:
    links = Links(embedded.address)
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        link = f"corrupt-{stream}"
        host, _, port = links.create(link, f"127.0.0.1:{upstream.getsockname()[1]}").rpartition(":")
        links.add(link, Toxic("corrupt", stream, {"every": 1000, "after": 0, "count": 5, "seed": 3}, name="f1"))
        with socket.create_connection((host, int(port)), 20) as client:
            peer = upstream.accept()[0]
            source, sink = (client, peer) if stream == "upstream" else (peer, client)
            source.sendall(DATA)
            came = b""
            while len(came) < len(DATA):
                came += sink.recv(65536)
            links.remove(link, "f1")
            sink.sendall(b"back")
            assert source.recv(10) == b"back"
            source.sendall(DATA)
            assert sink.recv(10, socket.MSG_WAITALL) == DATA[:10]
            peer.close()
    assert len(turned(came)) == 5
    assert links.corrupted()[link, "f1"] == Corrupted(len(DATA), 5, zlib.crc32(DATA), zlib.crc32(came))
    links.delete(link)
