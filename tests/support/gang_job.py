"""Two that average their gradients and die together: `gang_job.py serve|join PORT FOLDER [BUG]`.

Each saves its state every twenty rounds, and goes on from the newest
file; where the other is gone, it ends, for its scheduler to start it again.
"""

import contextlib
import json
import random
import socket
import sys
import time
from pathlib import Path

ROUNDS, EVERY, WIDTH, PATIENCE_S = 90, 20, 4, 10


def example(number):
    """What a round is made on."""
    numbers = random.Random(number)
    values = [numbers.gauss(0, 1) for _ in range(WIDTH)]
    return values, sum(values) + numbers.gauss(0, 0.3)


class State:
    """Weights, momentum, and where it is in the data."""

    def __init__(self, folder, name, bug):
        self.folder, self.name, self.bug = folder, name, bug
        self.round, self.weights, self.momentum, self.data = 0, [0.0] * WIDTH, [0.0] * WIDTH, int(name == "join")
        self.again = False
        folder.mkdir(parents=True, exist_ok=True)
        if files := sorted(folder.glob(f"{name}-*.json"), key=lambda path: int(path.stem.split("-")[1])):
            self.again = True
            self.round, self.weights, self.momentum, self.data = json.loads(files[-1].read_text())
            self.restore(files)

    def restore(self, files):
        """Do to what was read what the bug does."""
        if self.bug == "ahead":
            self.round += 30
        if self.bug == "older" and self.name == "join":
            self.weights = json.loads(files[-2].read_text())[1]

    def save(self):
        """Write it whole, or not at all."""
        if self.round % EVERY == 0 and not (self.bug == "unsaved" and self.again):
            new = self.folder / f"{self.name}.tmp"
            new.write_text(json.dumps([self.round, self.weights, self.momentum, self.data]))
            new.rename(self.folder / f"{self.name}-{self.round}.json")

    def train(self, exchange):
        """Make a round; `exchange`: how one sends its gradient and gets the other's."""
        time.sleep(0.02)
        values, target = example(self.data)
        error = sum(a * b for a, b in zip(self.weights, values, strict=True)) - target
        mine = [2 * error * value for value in values]
        theirs = exchange(mine)
        self.momentum = [0.8 * m + (a + b) / 2 for m, a, b in zip(self.momentum, mine, theirs, strict=True)]
        self.weights = [w - 0.01 * m for w, m in zip(self.weights, self.momentum, strict=True)]
        self.round, self.data = self.round + 1, self.data + 2
        print(f"round={self.round} loss={error * error:.9f}", flush=True)
        self.save()


def connected(kind, port):
    """Return the connection with the other one. A link accepts before its end is there: who serves speaks first."""
    if kind == "serve":
        with socket.create_server(("127.0.0.1", port)) as server:
            connection = server.accept()[0]
            connection.sendall(b".")
            return connection
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            connection = socket.create_connection(("127.0.0.1", port), 1)
            if connection.recv(1):
                return connection
        time.sleep(0.02)
    return sys.exit("the other one never came")


def main(kind, port, folder, bug=""):
    """Train to the last round."""
    state = State(Path(folder), kind, bug)
    with connected(kind, int(port)) as connection, connection.makefile("rw") as stream:
        connection.settimeout(PATIENCE_S)

        def exchange(mine):
            stream.write(json.dumps(mine) + "\n")
            stream.flush()
            if not (theirs := stream.readline()):
                sys.exit("the other one is gone")
            return json.loads(theirs)
        while state.round < ROUNDS:
            state.train(exchange)


if __name__ == "__main__":
    main(*sys.argv[1:])
