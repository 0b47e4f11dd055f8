"""One direction of one connection: bytes come in from a source and go out to a sink when their time has come.

Driven by the transports' callbacks and one timer, not by tasks: where no toxic hits, a chunk goes from one
socket to the other within the callback that read it. What waits here is bounded: at the window the source is
no longer read, and TCP holds the sender back.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from diloco_chaos.harness.links.corruption import Corruption
from diloco_chaos.harness.links.metrics import LinkTraffic
from diloco_chaos.harness.links.pace import Pace
from diloco_chaos.harness.links.toxics import Attributes

_CHUNK_OVERHEAD = 256  # what a queued chunk costs beside its bytes: a flood of tiny ones is bounded as well
# asyncio reads into 256 KiB and shrinks that, which leaves a page to the smallest chunk: queue a copy.
_SMALL_CHUNK = 16 * 1024
_BURST = 64  # pieces handed over before other links have their turn: a chunk can be cut very small


class LinkFlow:
    """Carries bytes from `source` to `sink` at the pace that the toxics allow, in order.

    What goes by is counted in `traffic`. `on_end` is called once, when the source has ended and all its data
    has gone on. The others tell what toxics want of the connection: `on_silence` that it is dropped, `on_reset`
    that it is reset, `on_limit` (instead of `on_end`) that the sink is closed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, source: asyncio.Transport, sink: asyncio.Transport,
                 rng: random.Random, traffic: LinkTraffic, *, on_end: Callable[[], None],
                 on_silence: Callable[[], None], on_reset: Callable[[], None],
                 on_limit: Callable[[], None]) -> None:
        self._loop = loop
        self._source = source
        self.sink = sink
        self._pace = Pace(rng)
        self._corruptions: Sequence[Corruption] = ()
        self._traffic = traffic
        self._on_end = on_end
        self._on_silence = on_silence
        self._on_reset = on_reset
        self._on_limit = on_limit
        self._queue: deque[tuple[float, memoryview]] = deque()  # arrival, data
        self._held = 0  # bytes in the queue, overhead included
        self._ready: float | None = None  # when the first chunk has been delayed
        self._due: float | None = None  # when its next `_size` bytes go on
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._silence: asyncio.TimerHandle | None = None
        self._reset: asyncio.TimerHandle | None = None  # nothing goes on any more once it is there
        self._blocked = False  # the sink takes no more for now
        self._paused = False  # the source isn't read for now
        self._ending = False  # the source has ended
        self._end_due: float | None = None  # when that may be passed on
        self.over = False  # nothing will go on any more

    def set_toxics(self, toxics: Mapping[str, Attributes], corruptions: Sequence[Corruption] = ()) -> None:
        """Let `toxics`, by name, decide on all that hasn't gone on yet, what is queued included. `corruptions`: what
        those of them do that corrupt, in the order in which data passes them."""
        if self.over or self._reset is not None:
            return
        self._corruptions = corruptions
        self._pace.set(toxics, self._loop.time())
        self._ready = self._due = self._end_due = None
        self._cancel_timer()
        if self._pace.reset_s is not None and (self._queue or self._ending):
            self._await_reset(self._pace.reset_s)
        if self._pace.swallows:
            self._drop()
        self._watch_silence()
        self._throttle()
        self._pump()

    def feed(self, data: bytes) -> None:
        """Take what the source sent."""
        if self.over:
            return
        self._traffic.received += len(data)
        if self._pace.reset_s is not None:
            self._await_reset(self._pace.reset_s)
            return
        if self._pace.swallows:
            self._watch_silence()  # as in Toxiproxy, the timeout counts from the last data
            return
        if self._pace.untouched and not self._queue and not self._blocked:
            self._send(data)
            return
        now = self._loop.time()
        if not self._queue and not self._blocked and self._timer is None and self._goes_on(now, data):
            return
        if len(data) < _SMALL_CHUNK:
            data = bytes(memoryview(data))
        self._queue.append((now, memoryview(data)))
        self._held += len(data) + _CHUNK_OVERHEAD
        self._throttle()
        if self._timer is None:  # else the first chunk is waiting, and this one behind it
            self._pump()

    def _goes_on(self, now: float, data: bytes) -> bool:
        """Hand a chunk over that nothing waits before and nothing holds; else keep what was drawn for it."""
        self._ready = self._pace.ready_at(now)
        self._size = self._pace.slice(len(data))
        self._due = self._pace.release_at(self._ready, self._size, now)
        if self._size < len(data) or self._due > now:
            return False
        self._ready = self._due = None
        self._carry(data)
        return True

    def end(self) -> None:
        """The source sends no more: end once the queue has gone on (latency delays data, not an end)."""
        self._ending = True
        if self._pace.reset_s is not None:
            self._await_reset(self._pace.reset_s)
        elif self._timer is None:
            self._pump()

    def block(self, blocked: bool) -> None:
        """The sink's buffer is full, or has room again."""
        self._blocked = blocked
        if not blocked and self._timer is None:
            self._pump()

    def stop(self) -> None:
        """Forget what is queued; nothing goes on any more and no callback is called."""
        self.over = True
        self._drop()
        self._cancel_timer()
        for timer in (self._silence, self._reset):
            if timer is not None:
                timer.cancel()

    def _pump(self) -> None:
        """Hand over all that is due, and set the timer for what comes next."""
        self._timer = None
        for _ in range(_BURST):
            if not self._queue or self._blocked:
                break
            due = self._plan() if self._due is None else self._due
            if due > self._loop.time():
                if due != math.inf:  # a rate of 0 waits for a change of the toxics
                    self._timer = self._loop.call_at(due, self._pump)
                return
            self._hand_over()
        if self._queue and not self._blocked:
            self._timer = self._loop.call_at(self._loop.time(), self._pump)
        elif self._ending and not self._queue and not self.over and self._reset is None:
            self._pass_end_on()

    def _plan(self) -> float:
        arrival, data = self._queue[0]
        if self._ready is None:
            self._ready = self._pace.ready_at(arrival)
        self._size = self._pace.slice(len(data))
        self._due = self._pace.release_at(self._ready, self._size, self._loop.time())
        return self._due

    def _hand_over(self) -> None:
        arrival, data = self._queue[0]
        self._held -= self._size
        self._due = None
        if self._size == len(data):
            self._queue.popleft()
            self._held -= _CHUNK_OVERHEAD
            self._ready = None
        else:
            self._queue[0] = (arrival, data[self._size:])
        self._carry(data[:self._size])
        self._throttle()

    def _carry(self, data: bytes | memoryview) -> None:
        self._send(data)
        self._pace.carry(len(data))
        if self._pace.exhausted:
            self.stop()
            self._on_limit()

    def _send(self, data: bytes | memoryview) -> None:
        for corruption in self._corruptions:
            data = corruption.spoil(data)
        self._traffic.sent += len(data)
        self.sink.write(data)

    def _drop(self) -> None:
        self._queue.clear()
        self._held = 0

    def _pass_end_on(self) -> None:
        """Pass the end on, when it has been held for as long as the toxics want."""
        now = self._loop.time()
        if self._end_due is None:
            self._end_due = now + self._pace.end_delay_s
        if self._end_due > now:
            self._timer = self._loop.call_at(self._end_due, self._pump)
        else:
            self.stop()
            self._on_end()

    def _await_reset(self, seconds: float) -> None:
        """Let nothing on any more, and reset the connection; as in Toxiproxy, no further change stops that."""
        if self._reset is None and not self.over:
            self._drop()
            self._cancel_timer()
            self._throttle()
            self._reset = self._loop.call_later(seconds, self._on_reset)

    def _throttle(self) -> None:
        """Stop reading the source at a full window, go on when half of it has drained."""
        window = self._pace.window_bytes
        if not self._paused and self._held >= window:
            self._paused = True
            self._source.pause_reading()
        elif self._paused and self._held <= window // 2:
            self._paused = False
            self._source.resume_reading()

    def _watch_silence(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
        if self._pace.silence_s is not None:
            self._silence = self._loop.call_later(self._pace.silence_s, self._on_silence)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
