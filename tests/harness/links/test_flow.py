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

from diloco_chaos.harness.links.flow import LinkFlow
from diloco_chaos.harness.links.metrics import LinkTraffic
from diloco_chaos.harness.links.toxics import (
    Attributes,
    BandwidthAttributes,
    LatencyAttributes,
    LimitDataAttributes,
    ResetPeerAttributes,
    SlicerAttributes,
    SlowCloseAttributes,
    TimeoutAttributes,
)

DELAYING = st.lists(st.builds(LatencyAttributes, st.integers(0, 500), st.integers(0, 500))
                    | st.builds(BandwidthAttributes, st.integers(1, 1000))
                    | st.builds(SlicerAttributes, st.integers(1000, 9000), st.integers(0, 999), st.integers(0, 999))
                    | st.builds(SlowCloseAttributes, st.integers(0, 500)), max_size=3)
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
        self.told: list[str] = []
        self.traffic = LinkTraffic()
        loop: Any = self
        self.flow = LinkFlow(loop, loop, loop, random.Random(0), self.traffic,
                             on_end=self._tell("end"), on_silence=self._tell("silence"),
                             on_reset=self._tell("reset"), on_limit=self._tell("limit"))
        self.set(*toxics)

    def set(self, *toxics: Attributes) -> None:
        """Set `toxics`, which are named by their place."""
        self.flow.set_toxics({str(place): toxic for place, toxic in enumerate(toxics)})

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

    @property
    def sizes(self) -> list[int]:
        return [len(data) for _, data in self.sent]

    def _tell(self, what: str) -> Callable[[], None]:
        return lambda: self.told.append(what)


@given(STEPS)
def test_whatever_happens_all_bytes_arrive_in_order_and_then_the_end(steps: list[tuple[str, Any]]) -> None:
    bench, source, fed = Bench(), random.Random(1), b""
    for step, value in steps:
        if step == "feed" and bench.reading:  # a paused source sends nothing
            fed += (data := source.randbytes(value))
            bench.flow.feed(data)
        elif step == "set":
            bench.set(*value)
        elif step == "block":
            bench.flow.block(value)
        elif step == "wait":
            bench.wait(value)
        assert fed.startswith(bench.received)
    bench.flow.end()
    bench.flow.block(False)
    bench.wait(3600)
    assert bench.received == fed
    assert bench.told == ["end"]
    assert bench.traffic == LinkTraffic(len(fed), len(fed))
    assert not any(not timer.cancelled for timer in bench.timers)


@given(st.lists(st.tuples(st.floats(0, 0.2), st.integers(1, 50_000)), min_size=1, max_size=30))
def test_chunks_are_delayed_side_by_side(chunks: list[tuple[float, int]]) -> None:
    bench, due = Bench(LatencyAttributes(100)), []
    for gap, size in chunks:
        bench.wait(gap)
        bench.flow.feed(b"x" * size)
        due.append(bench.now + 0.1)
    bench.wait(1)
    assert [when for when, _ in bench.sent] == pytest.approx(due)


def test_a_slow_link_trickles() -> None:
    bench = Bench(BandwidthAttributes(10))
    bench.flow.feed(b"x" * 5_000)
    bench.wait(10)
    assert [when for when, _ in bench.sent] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert bench.sizes == [1_000] * 5


@pytest.mark.parametrize("size", [1, 100, 60_000])
def test_what_waits_is_bounded_however_small_the_chunks(size: int) -> None:
    bench, fed = Bench(LatencyAttributes(1000)), 0
    while bench.reading:
        bench.flow.feed(b"x" * size)
        fed += size + 256
        assert fed <= LatencyAttributes.window_bytes + size + 256
    bench.wait(2)
    assert bench.reading
    assert len(bench.received) == fed * size // (size + 256)


def test_a_source_is_read_again_when_half_of_what_waited_is_gone() -> None:
    bench = Bench(BandwidthAttributes(1000))
    while bench.reading:
        bench.flow.feed(b"x" * 10_000)
    bench.wait(0.06)
    assert not bench.reading
    bench.wait(0.2)
    assert bench.reading


def test_a_timeout_counts_from_the_last_data_and_drops_what_was_queued() -> None:
    bench = Bench(LatencyAttributes(500))
    bench.flow.feed(b"under way")
    bench.set(TimeoutAttributes(1000))
    bench.wait(0.9)
    bench.flow.feed(b"too late")
    bench.wait(0.9)
    assert bench.told == []
    bench.wait(0.2)
    assert (bench.told, bench.received) == (["silence"], b"")


def test_an_end_passes_a_timeout_but_not_the_data_before_it() -> None:
    held, dropped = Bench(BandwidthAttributes(0)), Bench(TimeoutAttributes(0))
    for bench in (held, dropped):
        bench.flow.feed(b"x")
        bench.flow.end()
        bench.wait(math.inf)
    assert (held.told, dropped.told) == ([], ["end"])


@pytest.mark.parametrize("toxic", [LatencyAttributes(100), ResetPeerAttributes(100), TimeoutAttributes(100)])
def test_a_stopped_flow_is_silent(toxic: Attributes) -> None:
    bench = Bench(toxic)
    bench.flow.feed(b"x")
    bench.flow.stop()
    bench.flow.feed(b"y")
    bench.set(TimeoutAttributes(10))
    bench.flow.end()
    bench.wait(10)
    assert (bench.sent, bench.told) == ([], [])


def test_slices_keep_to_their_sizes_and_gaps() -> None:
    bench = Bench(SlicerAttributes(100, 20, 1_500))
    bench.flow.feed(bytes(1_000))
    bench.wait(1)
    *whole, last = bench.sizes
    assert all(80 <= size <= 120 for size in whole)
    assert len(set(whole)) > 1
    assert last <= 120
    assert sum(whole) + last == 1_000
    assert [when for when, _ in bench.sent] == pytest.approx([n * 0.0015 for n in range(len(bench.sent))])


@pytest.mark.parametrize(("slicer", "sizes"), [
    (SlicerAttributes(10), {10}), (SlicerAttributes(0, 5), {60}), (SlicerAttributes(100), {60}),
    (SlicerAttributes(1, 0), {1}), (SlicerAttributes(2, 50), {*range(1, 53)})])
def test_whatever_the_setting_no_slice_is_empty_or_too_large(slicer: SlicerAttributes, sizes: set[int]) -> None:
    bench = Bench(slicer)
    bench.flow.feed(bytes(60))
    bench.wait(0)
    assert set(bench.sizes) <= sizes
    assert len(bench.received) == 60


def test_a_chunk_cut_very_small_leaves_other_links_their_turn() -> None:
    bench = Bench(SlicerAttributes(1))
    bench.flow.feed(bytes(10_000))
    bench.flow.end()
    assert 0 < len(bench.sent) < 1_000
    bench.wait(0)
    assert (len(bench.received), bench.told) == (10_000, ["end"])


@given(st.lists(st.integers(1, 100), max_size=20), st.integers(0, 1000))
def test_a_limit_lets_its_bytes_through_and_no_more(chunks: list[int], limit: int) -> None:
    bench, fed = Bench(LimitDataAttributes(limit)), random.Random(2).randbytes(sum(chunks))
    for number, size in enumerate(chunks):
        bench.flow.feed(fed[sum(chunks[:number]):][:size])
    bench.flow.end()
    assert bench.received == fed[:limit]
    assert bench.told == (["limit"] if fed and len(fed) >= limit else ["end"])


def test_limits_count_what_went_on_since_each_was_set() -> None:
    bench = Bench(LimitDataAttributes(100))
    bench.flow.feed(bytes(30))
    bench.set(LimitDataAttributes(100), LimitDataAttributes(50))
    bench.flow.feed(bytes(30))
    bench.set(LimitDataAttributes(200), LimitDataAttributes(50))
    bench.flow.feed(bytes(100))
    assert (len(bench.received), bench.told) == (80, ["limit"])


def test_a_limit_counts_what_comes_out_of_a_delay() -> None:
    bench = Bench(LatencyAttributes(100), LimitDataAttributes(10))
    bench.flow.feed(bytes(20))
    assert bench.told == []
    bench.wait(0.1)
    assert (bench.sizes, bench.told) == ([10], ["limit"])


def test_delays_of_the_end_add_up_after_the_data_and_start_anew_with_a_change() -> None:
    bench = Bench(LatencyAttributes(1000), SlowCloseAttributes(1000), SlowCloseAttributes(500))
    bench.flow.feed(b"x")
    bench.flow.end()
    bench.wait(2.4)
    assert (bench.received, bench.told) == (b"x", [])
    bench.set(SlowCloseAttributes(200))
    bench.wait(0.1)
    assert bench.told == []
    bench.wait(0.2)
    assert bench.told == ["end"]


@pytest.mark.parametrize("change", [
    (), (ResetPeerAttributes(3_600_000),), (LatencyAttributes(1),), (TimeoutAttributes(0),)])
def test_a_reset_under_way_is_not_stopped(change: tuple[Attributes, ...]) -> None:
    bench = Bench(ResetPeerAttributes(1000))
    bench.wait(5)
    bench.flow.feed(b"first")
    bench.wait(0.5)
    bench.set(*change)
    bench.flow.feed(b"second")
    bench.flow.block(True)
    bench.flow.end()
    bench.flow.block(False)
    assert bench.told == []
    bench.wait(0.6)
    assert (bench.sent, bench.told) == ([], ["reset"])


@pytest.mark.parametrize("waiting", ["data", "end"])
def test_what_waits_when_a_reset_peer_comes_starts_its_time(waiting: str) -> None:
    bench = Bench(LatencyAttributes(1000), SlowCloseAttributes(1000))
    if waiting == "data":
        bench.flow.feed(b"x")
    else:
        bench.flow.end()
    bench.set(ResetPeerAttributes(100))
    bench.wait(5)
    assert (bench.sent, bench.told) == ([], ["reset"])
    assert bench.reading
