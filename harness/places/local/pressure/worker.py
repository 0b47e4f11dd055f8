"""Keeps this machine busy: `python -m diloco_chaos.harness.places.local.pressure.worker --parent PID ...`.

It begins once a byte comes through `--begin` (a pipe), when what ends it is in the undo log, and lasts until it is
killed. The harness' death kills it, and its own death its workers. Where memory gets short the kernel takes it first.
"""

from __future__ import annotations

import argparse
import mmap
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

from diloco_chaos.harness.base.machine import memory_and_left
from diloco_chaos.harness.base.parent_death import die_with_parent
from diloco_chaos.harness.base.units import show_bytes
from diloco_chaos.harness.places.local.pressure.limits import RESERVE

_CHUNK, _PAGE = 16 << 20, mmap.PAGESIZE
_WRITE = 1 << 20
_AGAIN_S = 0.05


def main() -> None:
    """Wait for the byte; fork the workers, and wait for them."""
    parser = argparse.ArgumentParser()
    for name in ("parent", "begin", "workers", "nice", "size"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--resource", choices=["cpu", "memory", "io"])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--processors", default="")
    given = parser.parse_args()
    die_with_parent(given.parent)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    if not os.read(given.begin, 1):
        return
    os.sched_setaffinity(0, {int(processor) for processor in given.processors.split(",")})
    os.nice(given.nice)
    here = os.getpid()
    for _ in range(given.workers):
        if not os.fork():
            die_with_parent(here)
            _work(given.resource, given.size // given.workers, given.folder)
    signal.signal(signal.SIGTERM, lambda *_: None)
    with suppress(ChildProcessError):  # all were waited for: their time counts as this one's
        while True:
            os.wait()


def _work(resource: str, size: int, folder: Path) -> None:
    """Do it for ever."""
    try:
        _hold(size) if resource == "memory" else _store(size, folder) if resource == "io" else _burn()
    except OSError as error:
        print(f"failed: {error}", flush=True)
        os._exit(1)


def _burn() -> None:
    while True:
        pass


def _hold(size: int) -> None:
    """Hold so much memory, and touch all of it again and again, while a part of what must stay free is free."""
    total, _ = memory_and_left()
    held: list[mmap.mmap] = []
    while sum(map(len, held)) < size:
        if memory_and_left()[1] < RESERVE * total:
            print(f"failed: it stopped at {show_bytes(sum(map(len, held)))}: the rest must stay free", flush=True)
            break
        held.append(mmap.mmap(-1, min(_CHUNK, size - sum(map(len, held)))))
        _touch(held[-1])
    print(f"held {sum(map(len, held))}", flush=True)
    while memory_and_left()[1] >= RESERVE / 2 * total:
        for piece in held:
            _touch(piece)
        time.sleep(_AGAIN_S)
    print("failed: it gave all back: others wanted what must stay free", flush=True)
    os._exit(1)


def _touch(piece: mmap.mmap) -> None:
    piece[::_PAGE] = os.urandom(1) * len(range(0, len(piece), _PAGE))


def _store(size: int, folder: Path) -> None:
    """Write files without a name, and sync each part; where one is full it is written over."""
    part = os.urandom(min(_WRITE, max(size, 1)))
    with TemporaryFile(dir=folder, buffering=0) as file:
        while True:
            file.seek(0)
            for _ in range(max(1, size // len(part))):
                file.write(part)
                os.fsync(file.fileno())


if __name__ == "__main__":
    main()
