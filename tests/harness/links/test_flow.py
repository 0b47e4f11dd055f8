"""One direction of a connection, under a clock that the test moves: nothing here waits."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.links.flow import Flow
from harness.links.toxics import Attributes, Bandwidth, Latency, Timeout

DELAYING = st.lists(st.builds(Latency, st.integers(0, 500), st.integers(0, 500))
                    | st.builds(Bandwidth, st.integers(1, 1000)), max_size=3)
STEPS = st.lists(st.one_of(
    st.tuples(st.just("feed"), st.integers(1, 100_000)),
    st.tuples(st.just("set"), DELAYING),
    st.tuples(st.just("block"), st.booleans()),
    st.tuples(st.just("wait"), st.floats(0.001, 2)),
), max_size=30)


class Timer:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when, self.callback, self.cancelled = when, callback, False

    def __lt__(self, other: Timer) -> bool:
        return self.when < other.when

    def cancel(self) -> None:
        self.cancelled = True


class Bench:
    """A flow between two pretended sockets, in a pretended loop."""

    def __init__(self, *toxics: Attributes) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []
        self.reading = True
        self.sent: list[tuple[float, bytes]] = []
        self.ended = self.silent = 0
        loop: Any = self
        self.flow = Flow(loop, loop, loop, random.Random(0), on_end=self._end, on_silence=self._silence)
        self.flow.set_toxics(toxics)

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        heapq.heappush(self.timers, timer := Timer(when, callback))
        return timer

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        return self.call_at(self.now + delay, callback)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def write(self, data: bytes | memoryview) -> None:
        self.sent.append((self.now, bytes(data)))

    def wait(self, seconds: float) -> None:
        """Let time pass, and fire the timers on their way."""
        until = self.now + seconds
        while self.timers and self.timers[0].when <= until:
            timer = heapq.heappop(self.timers)
            if not timer.cancelled:
                self.now = max(self.now, timer.when)
                timer.callback()
        self.now = until

    @property
    def received(self) -> bytes:
        return b"".join(data for _, data in self.sent)

    def _end(self) -> None:
        self.ended += 1

    def _silence(self) -> None:
        self.silent += 1


@given(STEPS)
def test_whatever_happens_all_bytes_arrive_in_order_and_then_the_end(steps: list[tuple[str, Any]]) -> None:
    bench, source, fed = Bench(), random.Random(1), b""
    for step, value in steps:
        if step == "feed" and bench.reading:  # a paused source sends nothing
            fed += (data := source.randbytes(value))
            bench.flow.feed(data)
        elif step == "set":
            bench.flow.set_toxics(value)
        elif step == "block":
            bench.flow.block(value)
        elif step == "wait":
            bench.wait(value)
        assert fed.startswith(bench.received)
    bench.flow.end()
    bench.flow.block(False)
    bench.wait(3600)
    assert bench.received == fed
    assert bench.ended == 1
    assert not any(not timer.cancelled for timer in bench.timers)


@given(st.lists(st.tuples(st.floats(0, 0.2), st.integers(1, 50_000)), min_size=1, max_size=30))
def test_chunks_are_delayed_side_by_side(chunks: list[tuple[float, int]]) -> None:
    bench, due = Bench(Latency(100)), []
    for gap, size in chunks:
        bench.wait(gap)
        bench.flow.feed(b"x" * size)
        due.append(bench.now + 0.1)
    bench.wait(1)
    assert [when for when, _ in bench.sent] == pytest.approx(due)


def test_a_slow_link_trickles() -> None:
    bench = Bench(Bandwidth(10))
    bench.flow.feed(b"x" * 5_000)
    bench.wait(10)
    assert [when for when, _ in bench.sent] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert [len(data) for _, data in bench.sent] == [1_000] * 5


@pytest.mark.parametrize("size", [1, 100, 60_000])
def test_what_waits_is_bounded_however_small_the_chunks(size: int) -> None:
    bench, fed = Bench(Latency(1000)), 0
    while bench.reading:
        bench.flow.feed(b"x" * size)
        fed += size + 256
        assert fed <= Latency.window_bytes + size + 256
    bench.wait(2)
    assert bench.reading
    assert len(bench.received) == fed * size // (size + 256)


def test_a_source_is_read_again_when_half_of_what_waited_is_gone() -> None:
    bench = Bench(Bandwidth(1000))
    while bench.reading:
        bench.flow.feed(b"x" * 10_000)
    bench.wait(0.06)
    assert not bench.reading
    bench.wait(0.2)
    assert bench.reading


def test_a_timeout_counts_from_the_last_data_and_drops_what_was_queued() -> None:
    bench = Bench(Latency(500))
    bench.flow.feed(b"under way")
    bench.flow.set_toxics([Timeout(1000)])
    bench.wait(0.9)
    bench.flow.feed(b"too late")
    bench.wait(0.9)
    assert bench.silent == 0
    bench.wait(0.2)
    assert (bench.silent, bench.received) == (1, b"")


def test_an_end_passes_a_timeout_but_not_the_data_before_it() -> None:
    held, dropped = Bench(Bandwidth(0)), Bench(Timeout(0))
    for bench in (held, dropped):
        bench.flow.feed(b"x")
        bench.flow.end()
        bench.wait(math.inf)
    assert (held.ended, dropped.ended) == (0, 1)


def test_a_stopped_flow_is_silent() -> None:
    bench = Bench(Latency(100))
    bench.flow.feed(b"x")
    bench.flow.stop()
    bench.flow.feed(b"y")
    bench.flow.set_toxics([Timeout(10)])
    bench.flow.end()
    bench.wait(10)
    assert (bench.sent, bench.ended, bench.silent) == ([], 0, 0)
