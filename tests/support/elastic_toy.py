"""A trainer that is not ours: workers that count together, through a hub. It needs Python alone.
It tells `diloco_chaos.progress`, where that is there.

    python elastic_toy.py hub [HOST:]PORT           adds up who has voted, without those who are gone
    python elastic_toy.py worker HOST:PORT [CHILD]  votes for the next round until it is ended; CHILD: starts a sleeper,
                                                    GROUP: two ranks, and says how they ended; KEEP FOLDER: begins
                                                    with the newest round that it has kept there

@FILE instead of either: the hub takes any port and writes its address there, the worker reads it. 0.0.0.0@FILE: the
hub listens at all its addresses, and writes that of its host name.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

try:
    from diloco_chaos import progress
except ImportError:  # it is nobody's need
    progress = None

ROUND_S = 0.03
PATIENCE_S = 0.2


class Hub:
    """A round is made by all who are connected, or by those who vote for it in time."""

    def __init__(self) -> None:
        self.made = 0
        self.there: set[asyncio.StreamWriter] = set()
        self.votes: set[asyncio.StreamWriter] = set()
        self.first = 0.0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.there.add(writer)
        try:
            while line := await reader.readline():
                self.made = max(self.made, int(line))
                self.first = self.first if self.votes else time.monotonic()
                self.votes.add(writer)
                self.close_round()
        except (OSError, ValueError):
            pass
        self.there.discard(writer)
        self.votes.discard(writer)
        writer.close()

    def close_round(self) -> None:
        if self.votes and (self.votes >= self.there or time.monotonic() - self.first > PATIENCE_S):
            self.made += 1
            for writer in self.votes:
                writer.write(f"{self.made} {len(self.votes)}\n".encode())
            self.votes.clear()

    async def run(self, where: str) -> None:
        address, _, file = where.partition("@")
        host, _, port = (f"{address}:0" if file else where).rpartition(":")
        async with await asyncio.start_server(self.serve, host or "127.0.0.1", int(port)) as server:
            if file:
                named, taken = server.sockets[0].getsockname()
                found = socket.gethostbyname(socket.gethostname()) if address else named
                Path(file).write_text(f"{found}:{taken}")
            while True:
                await asyncio.sleep(PATIENCE_S / 4)
                self.close_round()


def kept(file: Path) -> int:
    """The newest round that was kept."""
    try:
        made, again = map(int, file.read_bytes().split())
        if made == again:
            return made
        print("what was kept is damaged")
    except FileNotFoundError:
        print("nothing was kept")
    except ValueError as error:
        print(f"what was kept is damaged: {error}")
    return 0


def work(where: str, keep: Path | None = None) -> None:
    made = 0 if keep is None else kept(keep / "made")
    while True:
        try:
            host, _, port = (Path(where[1:]).read_text() if where.startswith("@") else where).rpartition(":")
            with socket.create_connection((host, int(port)), 1) as link, link.makefile("rw") as file:
                while True:
                    time.sleep(ROUND_S)
                    file.write(f"{made}\n")
                    file.flush()
                    number, members = map(int, file.readline().split())
                    made = number
                    if keep is not None:
                        keep.mkdir(parents=True, exist_ok=True)
                        new = keep.with_suffix(".new")
                        new.write_text(f"{made} {made}")
                        new.replace(keep / "made")
                    print(f"round={made} members={members} loss={1 / made:.4f}")
                    if progress is not None:
                        progress.round(made, loss=1 / made, members=members)
                        progress.hold("round.told")
        except (OSError, ValueError) as error:
            print(f"the hub is gone: {error}")
            time.sleep(0.1)


def see(rank: str) -> None:
    """Start it, and say how it ended."""
    done = subprocess.run(["sh", "-c", "sleep 1000 & wait"], env=os.environ | {"RANK": rank}, check=False)
    print(f"rank {rank} ended with {done.returncode}")


if __name__ == "__main__":
    if sys.argv[1] == "hub":
        asyncio.run(Hub().run(sys.argv[2]))
    if sys.argv[3:] == ["CHILD"]:
        subprocess.Popen(["sleep", "1000"])
    if sys.argv[3:] == ["GROUP"]:  # two ranks, each with a process below it that has its environment
        for rank in ("0", "1"):
            threading.Thread(target=see, args=(rank,), daemon=True).start()
    work(sys.argv[2], Path(sys.argv[4]) if sys.argv[3:4] == ["KEEP"] else None)
