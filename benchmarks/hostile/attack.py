"""Attacks a real run while it trains: `python -m benchmarks.hostile.attack --connections 10000 --seconds 300`.

Somebody on this machine who does not have the run's token opens connections to every port that its processes listen
on: the syncer's, each learner's link, and the link server's API. They are idle, slow, huge, random, or say what was
valid in another run. The run has 1,024 descriptors a process, loses a learner meanwhile, and must pass all its checks.
Progress on standard error, one JSON object on standard output; exits with 1 where the run did not pass, or where its
syncer or its tape grew by more than they may.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from diloco_chaos.harness.trainer.protocol.messages import Hello, Report
from diloco_chaos.harness.trainers.wire.frames import encode

SCENARIO = """diloco_chaos: 1
name: attacked
deadline: {deadline}s
cluster: {{model: micro, corpus: markov, fragments: 4, batch: 4, learners: 3, budget: {budget}, step_time: 60ms,
          heartbeat_timeout: 2s}}
faults: [{{kill: learner-1, at: {kill_at}s, restart_after: 2s}}]
"""
MOST_MEMORY, MOST_TAPE = 50 << 20, 5 << 20
"""Bytes by which the syncer, and what the tape says of strangers, may grow."""
_DESCRIPTORS = 1024
_STEP_S, _REST_S = 0.06, 15.0
_HELD_S = 20.0
_STRANGERS = ("refused_frame", "partial_frame")
Writer = asyncio.StreamWriter


async def _idle(writer: Writer, rng: random.Random) -> None:
    """Says nothing."""


async def _slow(writer: Writer, rng: random.Random) -> None:
    """A frame, byte by byte."""
    for byte in _of_another_run(rng):
        writer.write(bytes((byte,)))
        await asyncio.sleep(0.5)


async def _huge(writer: Writer, rng: random.Random) -> None:
    """As much as it is let, behind a header that promises more."""
    writer.write(b"DLC1" + (1 << 20).to_bytes(4, "big") + (1 << 26).to_bytes(8, "big"))
    for _ in range(64):
        writer.write(bytes(1 << 17))
        await writer.drain()


async def _garbage(writer: Writer, rng: random.Random) -> None:
    """Whatever comes to its mind."""
    writer.write(rng.randbytes(rng.choice((1, 64, 1 << 16))))


async def _replayed(writer: Writer, rng: random.Random) -> None:
    """What was right in another run, and then more."""
    writer.write(_of_another_run(rng) * rng.choice((1, 50)))


def _of_another_run(rng: random.Random) -> bytes:
    hello = Hello(token=rng.randbytes(16).hex(), node="learner-1", incarnation=rng.choice((0, 9)), step=1, tokens=1,
                  position=0, versions=[0] * 4, steps=[0] * 4)
    return b"".join((bytes(encode(hello)), bytes(encode(Report(step=9, tokens=9, position=9, fragments=[])))))


WAYS: tuple[Callable[[Writer, random.Random], Awaitable[None]], ...] = (_idle, _slow, _huge, _garbage, _replayed)


class Attack:
    """All connections, and what came of them."""

    def __init__(self, ports: Callable[[], list[int]], seed: int) -> None:
        self._ports, self._rng = ports, random.Random(seed)
        self.made: Counter[str] = Counter()

    async def run(self, connections: int, seconds: float) -> None:
        """As many, evenly over this time."""
        began, under_way = time.monotonic(), set()
        for number in range(connections):
            await asyncio.sleep(max(0.0, began + number * seconds / connections - time.monotonic()))
            under_way.add(task := asyncio.create_task(self._one(self._rng.choice(self._ports()))))
            task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)

    async def _one(self, port: int) -> None:
        way = self._rng.choice(WAYS)
        with suppress(OSError, TimeoutError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            self.made[way.__name__.strip("_")] += 1
            try:
                async with asyncio.timeout(_HELD_S):
                    await way(writer, self._rng)
                    while await reader.read(1 << 16):
                        pass
            finally:
                writer.close()


class Victim:
    """The run that is attacked."""

    def __init__(self, home: Path, seconds: float) -> None:
        scenario = home / "attacked.yaml"
        scenario.write_text(SCENARIO.format(deadline=round(2 * seconds + 120), kill_at=round(seconds / 3),
                                            budget=round((seconds + _REST_S) / _STEP_S)))
        self._runs = home / "runs"
        self.process = subprocess.Popen(
            [str(Path(sys.executable).with_name("diloco-chaos")), "run", str(scenario), "--runs-dir", str(self._runs)],
            stdout=subprocess.DEVNULL, stderr=sys.stderr,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS, _DESCRIPTORS)))

    @property
    def folder(self) -> Path:
        """Of the run itself, which begins once its references were trained."""
        return next(self._runs.glob("*-attacked-*"))

    def wait_until_steady(self) -> None:
        """Raises RuntimeError where it never is."""
        while not self.tape_has('"event":"steady"'):
            if self.process.poll() is not None:
                raise RuntimeError(f"the run ended before it was steady (exit code {self.process.returncode})")
            time.sleep(0.2)

    def tape_has(self, text: str) -> bool:
        """Whether the syncer's says so."""
        return any(text in path.read_text() for path in self._runs.glob("*-attacked-*/tape/syncer.0.jsonl"))

    def ports(self) -> list[int]:
        """Return the TCP ports on which its processes listen now, sorted."""
        numbers = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.Error):
                numbers += [connection.laddr.port for connection in process.net_connections("tcp")
                            if connection.status == psutil.CONN_LISTEN]
        return sorted(set(numbers))

    def syncer_memory(self) -> int:
        """Resident, in bytes."""
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.Error):
                command = process.cmdline()
                if "--role" in command and command[command.index("--role") + 1] == "syncer":
                    return int(process.memory_info().rss)
        return 0

    def of_strangers(self) -> int:
        """Bytes of the tape that tell of them."""
        return sum(len(line) for path in (self.folder / "tape").glob("*.jsonl") for line in path.open("rb")
                   if any(f'"event":"{name}"'.encode() in line for name in _STRANGERS))


async def _attacked(victim: Victim, connections: int, seconds: float, seed: int) -> tuple[Counter[str], int]:
    ports, most = victim.ports(), 0
    attack = Attack(lambda: ports, seed)
    running = asyncio.create_task(attack.run(connections, seconds))
    while not running.done():
        await asyncio.sleep(1.0)
        most = max(most, victim.syncer_memory())
    await running
    return attack.made, most


def main() -> int:
    """The command line; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of connections that were closed, as they should be
    with tempfile.TemporaryDirectory(prefix="diloco-chaos-attack-") as home:
        victim = Victim(Path(home), given.seconds)
        try:
            victim.wait_until_steady()
            before = victim.syncer_memory()
            made, most = asyncio.run(_attacked(victim, given.connections, given.seconds, given.seed))
            code = victim.process.wait()
        finally:
            victim.process.terminate()  # harmless where it has ended; it undoes what it did
            victim.process.wait()
        report: dict[str, Any] = json.loads((victim.folder / "report.json").read_text())
        grown, tape_bytes = most - before, victim.of_strangers()
    print(json.dumps({"connections": dict(made), "seconds": given.seconds, "exit_code": code,
                      "checks": {check["name"]: check["verdict"] for check in report["checks"]},
                      "syncer_grew_mb": round(grown / 1e6, 1), "tape_grew_mb": round(tape_bytes / 1e6, 3)}))
    return 0 if code == 0 and grown < MOST_MEMORY and tape_bytes < MOST_TAPE else 1


if __name__ == "__main__":
    sys.exit(main())
