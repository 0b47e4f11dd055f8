"""The embedded proxy from inside: what it keeps, draws and leaves behind, and how ends pass."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from diloco_chaos.harness.links.addresses import join_address, split_address
from diloco_chaos.harness.links.metrics import Metrics
from diloco_chaos.harness.links.proxy import Proxy
from diloco_chaos.harness.links.toxics import REGISTRY, new_toxic

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Bench:
    """A proxy in front of a listening upstream, in the loop of the test."""

    def __init__(self, proxy: Proxy, arrived: asyncio.Queue[Streams]) -> None:
        self.proxy = proxy
        self._arrived = arrived

    async def connect(self) -> tuple[Streams, Streams]:
        """Both ends of a new connection through the proxy."""
        client = await asyncio.open_connection(*split_address(self.proxy.listen))
        return client, await self._arrived.get()

    def add(self, kind: str, stream: str = "upstream", **fields: Any) -> None:
        self.proxy.put_toxic(new_toxic({"type": kind, "stream": stream, **fields}))


def on_bench(scenario: Callable[[Bench], Awaitable[None]], seed: int = 0) -> None:
    async def run() -> None:
        arrived: asyncio.Queue[Streams] = asyncio.Queue()
        upstream = await asyncio.start_server(lambda *streams: arrived.put_nowait(streams), "127.0.0.1", 0)
        proxy = Proxy("a", join_address(*upstream.sockets[0].getsockname()[:2]), random.Random(seed),
                      Metrics())
        proxy.reserve("127.0.0.1:0")
        proxy.start()
        try:
            async with asyncio.timeout(30):
                await scenario(Bench(proxy, arrived))
        finally:
            proxy.close()
            upstream.close()
    asyncio.run(run())


def test_what_was_under_way_the_other_way_when_an_end_passed_still_arrives() -> None:
    async def scenario(bench: Bench) -> None:
        bench.add("latency", "downstream", attributes={"latency": 100})
        (reader, writer), (peer_reader, peer_writer) = await bench.connect()
        peer_writer.write(b"the answer")
        while bench.proxy.traffic("downstream").received < 10:
            await asyncio.sleep(0)
        writer.write(b"all I have to say")
        writer.write_eof()
        assert await peer_reader.read() == b"all I have to say"
        assert await reader.read() == b"the answer"
    on_bench(scenario)


def test_an_end_waits_for_all_that_was_sent_before_it() -> None:
    async def scenario(bench: Bench) -> None:
        bench.add("latency", "upstream", attributes={"latency": 20})
        (_, writer), (peer_reader, _) = await bench.connect()
        writer.write(b"q" * 1_000_000)
        writer.write_eof()
        assert len(await peer_reader.read()) == 1_000_000
    on_bench(scenario)


def test_what_a_reset_client_had_sent_still_arrives() -> None:
    async def scenario(bench: Bench) -> None:
        bench.add("latency", "upstream", attributes={"latency": 50})
        (_, writer), (peer_reader, _) = await bench.connect()
        writer.write(b"last words")
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        await asyncio.sleep(0.02)  # let the proxy read: a reset discards what a receiver hasn't read yet
        writer.transport.abort()
        assert await peer_reader.read() == b"last words"
    on_bench(scenario)


def test_toxicity_is_drawn_once_for_each_connection_from_the_seed() -> None:
    hits: list[list[bool]] = []

    async def scenario(bench: Bench) -> None:
        bench.add("timeout", attributes={"timeout": 30}, toxicity=0.5)
        outcome = []
        for _ in range(16):
            (_, writer), (peer_reader, _) = await bench.connect()
            writer.write(b"?")
            outcome.append(await peer_reader.read(1) == b"")
            writer.close()
        hits.append(outcome)

    for seed in (1, 1, 2):
        on_bench(scenario, seed)
    assert hits[0] == hits[1] != hits[2]
    assert 0 < sum(hits[0]) < 16


TOGETHER = {"attributes": {"timeout": 0}, "toxicity": 0.5, "draw": "f1"}


def hits_of(bench: Bench, pairs: Sequence[tuple[Streams, Streams]]) -> list[set[str]]:
    """Which toxics hit each connection, by their names."""
    by_port = {connection._client.transport.get_extra_info("peername")[1]: connection._hit
               for connection in bench.proxy._connections}
    return [set(by_port[client[1].get_extra_info("sockname")[1]]) for client, _ in pairs]


def test_toxics_that_are_drawn_together_hit_the_same_connections() -> None:
    async def scenario(bench: Bench) -> None:
        before = [await bench.connect() for _ in range(40)]
        for stream in ("upstream", "downstream"):
            bench.add("timeout", stream, name=f"together-{stream}", **TOGETHER)
            bench.add("timeout", stream, name=f"apart-{stream}", attributes={"timeout": 0}, toxicity=0.5)
        hits = hits_of(bench, before + [await bench.connect() for _ in range(40)])
        both = [len(each & {"together-upstream", "together-downstream"}) for each in hits]
        assert set(both) == {0, 2}
        assert 20 < both.count(2) < 60
        assert {len(each & {"apart-upstream", "apart-downstream"}) for each in hits} == {0, 1, 2}
    on_bench(scenario)


def test_who_is_hit_by_toxics_that_are_drawn_together_is_hit_until_their_end() -> None:
    async def scenario(bench: Bench) -> None:
        pairs = [await bench.connect() for _ in range(40)]
        bench.add("latency", name="t", **(TOGETHER | {"attributes": {"latency": 1}}))
        first = hits_of(bench, pairs)
        bench.add("noop", name="another")
        bench.proxy.remove_toxic("another")
        assert hits_of(bench, pairs) == first
        bench.proxy.remove_toxic("t")
        bench.add("latency", name="t", **(TOGETHER | {"attributes": {"latency": 1}}))
        assert hits_of(bench, pairs) != first, "a later fault of the same name is another draw"
    on_bench(scenario)


def test_what_comes_back_when_a_limit_closes_the_connection_still_arrives() -> None:
    async def scenario(bench: Bench) -> None:
        bench.add("latency", "downstream", attributes={"latency": 100})
        bench.add("limit_data", "upstream", attributes={"bytes": 5})
        (reader, writer), (peer_reader, peer_writer) = await bench.connect()
        peer_writer.write(b"the answer")
        while bench.proxy.traffic("downstream").received < 10:
            await asyncio.sleep(0)
        writer.write(b"quest" + b"ion")
        assert await peer_reader.read() == b"quest"
        assert await reader.read() == b"the answer"
    on_bench(scenario)


@pytest.mark.parametrize("kind", [*REGISTRY, None])
def test_a_closed_proxy_leaves_no_tasks_timers_or_open_files(kind: str | None) -> None:
    async def scenario(bench: Bench) -> None:
        attributes = {"latency": 3_600_000, "rate": 1, "timeout": 3_600_000, "delay": 3_600_000,
                      "average_size": 1, "bytes": 10}
        files, tasks = len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
        pairs = [await bench.connect() for _ in range(10)]
        if kind is not None:
            bench.add(kind, attributes=attributes)
        for (_, writer), (_, peer_writer) in pairs:
            writer.write(b"x" * 100_000)
            peer_writer.write(b"x" * 100_000)
            await asyncio.sleep(0)
        bench.proxy.close()
        for (reader, writer), (peer_reader, peer_writer) in pairs:
            for stream in (reader, peer_reader):
                await asyncio.gather(stream.read(), return_exceptions=True)
            for sink in (writer, peer_writer):
                sink.close()
                await asyncio.gather(sink.wait_closed(), return_exceptions=True)
        while len(asyncio.all_tasks()) > tasks or len(os.listdir("/proc/self/fd")) > files - 2:
            await asyncio.sleep(0.01)  # the listening and the reserving socket are gone as well
        loop: Any = asyncio.get_running_loop()
        waiting = [handle for handle in loop._scheduled if not handle.cancelled()]
        assert len(waiting) <= 2  # this sleep's, at most, and the time limit of the test
    on_bench(scenario)


def test_connections_that_are_still_being_made_end_with_the_proxy() -> None:
    async def scenario(bench: Bench) -> None:
        host, port = split_address(bench.proxy.listen)
        for turns in range(8):  # stop it at every stage of accepting and dialling
            with socket.socket() as client:
                client.setblocking(False)
                client.connect_ex((host, port))
                for _ in range(turns):
                    await asyncio.sleep(0)
                bench.proxy.stop()
                loop = asyncio.get_running_loop()
                outcome = await asyncio.gather(loop.sock_recv(client, 1), return_exceptions=True)
                assert outcome[0] == b"" or isinstance(outcome[0], ConnectionError)
            bench.proxy.start()
        while bench.proxy._connections:
            await asyncio.sleep(0)
    on_bench(scenario)
