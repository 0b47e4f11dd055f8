"""Two workers that make each round together; one of them computes: `paired_job.py FOLDER NAME PEER [impatient]`.

With the bug a worker whose peer is late for once leaves it out, and never takes it back.
"""

import sys
import time
from pathlib import Path

ROUNDS, ROUND_S, PATIENCE_S, LOOK_S = 50, 0.2, 0.7, 0.01


def compute(seconds):
    """Use a processor for so long."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


class Pair:
    """What two workers know of each other: files of a folder."""

    def __init__(self, folder, name, peer, impatient):
        folder.mkdir(parents=True, exist_ok=True)
        self.mine, self.other, self.patience = folder / name, folder / peer, PATIENCE_S if impatient else float("inf")
        self.without = False

    def finish(self, number):
        """Say that this round is made here, and wait for the other one; return how many made it."""
        (new := self.mine.with_suffix(".new")).write_text(str(number))
        new.rename(self.mine)
        since = time.monotonic()
        while not self.without and self.reached() < number:
            time.sleep(LOOK_S)
            if time.monotonic() - since > self.patience:
                self.without = True
                self.other.with_suffix(".out").touch()
        return 1 if self.without else 2

    def reached(self):
        """Return the other's newest round."""
        return int(self.other.read_text()) if self.other.exists() else 0

    def left_out(self):
        """Return whether the other one goes on alone."""
        return self.mine.with_suffix(".out").exists()


def main(folder, name, peer, bug=""):
    """Train to the fiftieth round; who is left out waits for the end."""
    pair, computes = Pair(folder, name, peer, bug == "impatient"), name < peer
    while not pair.reached() and not pair.finish(0):
        time.sleep(LOOK_S)
    for number in range(1, ROUNDS + 1):
        if computes:
            compute(ROUND_S)
        elif pair.without:
            time.sleep(ROUND_S)
        while pair.left_out() and pair.reached() < ROUNDS:
            time.sleep(LOOK_S)
        if pair.left_out():
            return
        members = pair.finish(number)
        print(f"step={number} loss={4.0 * 0.99 ** number:.6f} members={members}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
