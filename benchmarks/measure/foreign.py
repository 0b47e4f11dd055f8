"""What it costs a trainer of commands to be watched: the harness that reads its log, and links that are caught."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.runner.run import run_plan
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import Plan, freeze
from diloco_chaos.harness.record.tape.events import Event, Merge, Step

PAIRS = 5
_RATES = (2, 100)
_SECONDS = 15
_TRIPS = 5000
TELLING = """diloco_chaos: 1
name: bench-telling
trainer:
  kind: commands
  nodes:
    worker:
      worker: true
      run: >-
        {{python}} -uc "import time; began = time.monotonic();
        [(time.sleep(max(0, began + n / {rate} - time.monotonic())),
        print(f'committed round={{{{n}}}} members=1 loss={{{{1 / n:.5f}}}} time={{{{time.time()}}}}'))
        for n in range(1, {rounds} + 1)]"
  progress:
    - node: worker
      log: 'committed round=(?P<round>\\d+) members=(?P<members>\\d+) loss=(?P<loss>\\S+) time=(?P<time>\\S+)'
  rounds: {rounds}
deadline: 60s
faults: []
"""
ASKING = """diloco_chaos: 1
name: bench-asking
trainer:
  kind: commands
  nodes:
    server:
      listens: true
      port: {port}
      run: >-
        {{python}} -uc "import socket; server = socket.create_server(('127.0.0.1', {port}));
        [[taken.sendall(word) for word in iter(lambda: taken.recv(64), b'')]
        for taken in iter(lambda: server.accept()[0], None)]"
    client:
      worker: true
      peers: {peers}
      run: >-
        {{python}} -uc "import socket, time; link = socket.create_connection(('127.0.0.1', {port}));
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1);
        ask = lambda: (link.sendall(bytes(64)), link.recv(64)); [ask() for _ in range(500)];
        began = time.perf_counter(); [ask() for _ in range({trips})];
        took = (time.perf_counter() - began) / {trips} * 1e6;
        [print(f'round={{{{n}}}} took={{{{took:.2f}}}}') for n in (1, 2, 3)]"
  progress:
    - {{node: client, log: 'round=(?P<round>\\d+) took=(?P<loss>\\S+)'}}
  rounds: 3
deadline: 60s
faults: []
"""


class _Clock(NullAudience):
    """Processor time of this process while the run is steady."""

    def __init__(self) -> None:
        self.began: tuple[float, float] | None = None
        self.ended = (0.0, 0.0)

    def on_event(self, event: Event) -> None:
        """The first and the last of its rounds."""
        if isinstance(event, Merge):
            self.ended = time.process_time(), time.monotonic()
            self.began = self.began or self.ended

    @property
    def share(self) -> float:
        """Of one core."""
        assert self.began, "nothing was told"
        return (self.ended[0] - self.began[0]) / (self.ended[1] - self.began[1])


def measure(runs: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Share of a core that reading a hundred rounds a second takes, beside two; what a caught link adds to a trip."""
    shares: dict[int, list[float]] = {rate: [] for rate in _RATES}
    trips: dict[str, list[float]] = {"direct": [], "caught": []}
    for pair in range(PAIRS):
        for rate in _RATES:
            clock = _Clock()
            run_plan(_plan(TELLING.format(rate=rate, rounds=rate * _SECONDS)), runs, clock)
            shares[rate].append(clock.share)
        for peers in trips:
            trips[peers].append(_trip(peers, runs))
        say(f"  foreign {pair}: " + ", ".join(f"{rate} rounds/s {values[-1]:.1%} of a core"
                                              for rate, values in shares.items())
            + ", " + ", ".join(f"{peers} {values[-1]:.0f} us" for peers, values in trips.items()))
    few, many = (median(shares[rate]) for rate in _RATES)
    added = [caught - direct for caught, direct in zip(trips["caught"], trips["direct"], strict=True)]
    return {"seconds": _SECONDS, "pairs": PAIRS, "harness_share_of_a_core": {str(rate): round(median(values), 4)
                                                                            for rate, values in shares.items()},
            "share_for_98_rounds_per_s": round(many - few, 4),
            "round_trip_us": {peers: round(median(values), 1) for peers, values in trips.items()},
            "caught_adds_us": {"median": round(median(added), 1), "least": round(min(added), 1),
                               "most": round(max(added), 1), "trips": _TRIPS}}


def _plan(text: str) -> Plan:
    return freeze(parse(text), 0)


def _trip(peers: str, runs: Path) -> float:
    """Microseconds of one, as the client says."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    result = run_plan(_plan(ASKING.format(port=port, peers=peers, trips=_TRIPS)), runs, NullAudience())
    return result.history.tape.of(Step, node="client")[0].loss or 0.0
