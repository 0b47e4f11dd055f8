"""A job that reads its data from a mapped file, and gives that memory back when the machine is short of it:
`caching_job.py FILE [waits]`. With the bug it goes on only once there is memory again."""

import mmap
import os
import sys
import time
from pathlib import Path

ROUNDS, ROUND_S, PAGES = 150, 0.03, 400
SHORT = 700_000_000
"""Bytes less than at the beginning."""
PAGE_OUT = 21  # madvise(2): MADV_PAGEOUT


def available():
    """Return the bytes of memory that can be had."""
    with open("/proc/meminfo") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) << 10


def mapped(path):
    """Return data that are on the disk, and not in memory yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w+b") as file:
        file.write(os.urandom(PAGES * mmap.PAGESIZE))
        file.flush()
        os.fsync(file.fileno())
        data = mmap.mmap(file.fileno(), 0)
    data.madvise(mmap.MADV_RANDOM)  # a page at a time
    return data


def main(path, bug=""):
    """Train to the last round."""
    data, enough, gave = mapped(path), available() - SHORT, False
    for number in range(1, ROUNDS + 1):
        time.sleep(ROUND_S)
        seen = sum(data[::mmap.PAGESIZE])
        if (short := available() < enough) and not gave:
            data.madvise(PAGE_OUT)
        while bug == "waits" and available() < enough:
            time.sleep(ROUND_S)
        gave = short
        print(f"step={number} loss={4.0 * 0.99 ** number + seen * 1e-12:.6f}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
