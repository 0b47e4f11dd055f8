"""A job that sends each round to a server of metrics, and whose watchdog ends it where it makes no round for a second:
`watched_job.py FILE [wrong-thread]`."""

import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

ROUNDS, PATIENCE_S = 140, 1.0
METRICS = ("127.0.0.1", 9)  # whether anyone listens does not matter


class Watchdog:
    """Ends the process with status 3 where nobody has fed it for a second."""

    def __init__(self):
        self._fed = time.monotonic()
        threading.Thread(target=self._watch, daemon=True).start()

    def feed(self):
        """Say that all is well."""
        self._fed = time.monotonic()

    def _watch(self):
        while time.monotonic() - self._fed < PATIENCE_S:
            time.sleep(0.05)
        print("watchdog: no round for a second", flush=True)
        os._exit(3)


def feed_for_ever(watchdog):
    """Say that all is well, whatever the main thread does."""
    while True:
        watchdog.feed()
        time.sleep(0.1)


def main(file, bug=""):
    """Train to the last round, and save each."""
    state = json.loads(file.read_text()) if file.exists() else {"round": 0, "loss": 4.0}
    watchdog = Watchdog()
    if bug == "wrong-thread":
        threading.Thread(target=feed_for_ever, args=(watchdog,), daemon=True).start()
    metrics = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    while state["round"] < ROUNDS:
        time.sleep(0.03)
        state = {"round": state["round"] + 1, "loss": state["loss"] * 0.99}
        new = file.with_suffix(".new")
        new.write_text(json.dumps(state))
        new.rename(file)
        metrics.sendto(json.dumps(state).encode(), METRICS)
        print(f"step={state['round']} loss={state['loss']:.6f}", flush=True)
        if bug != "wrong-thread":
            watchdog.feed()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
