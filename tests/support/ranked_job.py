"""A node with two ranks: `ranked_job.py FOLDER [gives-up | waits | forgets]`. Each goes on alone; one that ends is
started again.

With the bug `gives-up` the launcher leaves a rank that has ended out for ever, with `waits` the other one waits for it,
with `forgets` the launcher never starts the second one.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROUND_S, LOOK_S, AGAIN_S = 0.05, 0.01, 1.5
RANKS = ("0", "1")


def launch(folder, bug):
    """Start both, and those again that end."""
    folder.mkdir(parents=True, exist_ok=True)
    if bug == "forgets":
        (folder / RANKS[1]).write_text("0")
    running = {rank: start(folder, bug, rank) for rank in RANKS[:1 if bug == "forgets" else None]}
    while True:
        time.sleep(LOOK_S)
        for rank, process in running.items():
            if process.poll() is not None and bug != "gives-up":
                time.sleep(AGAIN_S)
                running[rank] = start(folder, bug, rank)


def start(folder, bug, rank):
    """Start one rank."""
    return subprocess.Popen([sys.executable, "-S", __file__, str(folder), bug, rank],
                            env=os.environ | {"LOCAL_RANK": rank})


def reached(folder, rank):
    """Return the newest round of a rank."""
    file = folder / rank
    return int(file.read_text()) if file.exists() else 0


def train(folder, bug, rank):
    """Make rounds; who comes later goes on from the newest."""
    other = next(name for name in RANKS if name != rank)
    while not (folder / other).exists():
        (folder / rank).write_text("0")
        time.sleep(LOOK_S)
    made = max(reached(folder, rank), reached(folder, other))
    while True:
        time.sleep(ROUND_S)
        made += 1
        while bug == "waits" and reached(folder, other) < made - 1:
            time.sleep(LOOK_S)
        print(f"[rank{rank}] step={made} loss={4.0 * 0.99 ** made:.6f}", flush=True)
        (new := folder / f"{rank}.new").write_text(str(made))
        new.rename(folder / rank)


if __name__ == "__main__":
    arguments = [*sys.argv[1:], ""][:2] if len(sys.argv) < 4 else sys.argv[1:]
    if len(arguments) == 2:
        launch(Path(arguments[0]), arguments[1])
    train(Path(arguments[0]), *arguments[1:])
