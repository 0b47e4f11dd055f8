"""A job that saves its state every ten rounds, and when it is asked to end, and goes on from the newest:
`saving_job.py FOLDER [BUG]`."""

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path


def save(folder, state, bug):
    """Write the state; none of a bug's kind is ever half there."""
    final = folder / f"state-{state['round']}.json"
    path = final if bug == "swallows" else final.with_suffix(".json.tmp")
    with open(path, "w") as file:
        file.write(json.dumps(state))
        file.flush()
        if bug != "unsynced":
            os.fsync(file.fileno())
    path.rename(final)


def saved(folder, state, bug):
    """Save it, or do with an error what the bug does."""
    while True:
        try:
            return save(folder, state, bug)
        except OSError:
            if bug == "swallows":
                return None
            if bug != "retries":
                raise
            time.sleep(0.02)


def listen(bug):
    """Return the signals by which the job is asked to end, as they come; a bug may keep it from hearing them."""
    asked = []
    hears = {"deaf": {signal.SIGUSR1: signal.SIG_IGN}, "stays": {signal.SIGTERM: signal.SIG_IGN}}
    for number in (signal.SIGUSR1, signal.SIGTERM):
        if bug not in hears or number in hears[bug]:
            signal.signal(number, hears.get(bug, {}).get(number, lambda number, _: asked.append(number)))
    return asked


def main(folder, bug=""):
    """Train to the hundredth round, or until it is asked to end."""
    asked, every, saves = listen(bug), 40 if bug == "deaf" else 10, True
    quickest = float("inf")
    state = {"round": 0, "loss": 4.0, "padding": "x" * 20_000}
    folder.mkdir(parents=True, exist_ok=True)
    if states := [*folder.glob("state-*.json")]:
        state = json.loads(max(states, key=lambda path: int(path.stem[6:])).read_text())
    while state["round"] < 100:
        time.sleep(0.03)
        state["round"] += 1
        state["loss"] *= 0.99
        print(f"step={state['round']} loss={state['loss']:.6f}", flush=True)
        with contextlib.suppress(OSError), (folder / "history.txt").open("a") as history:
            history.write(f"{state['loss']}\n")  # which it does not need to go on
        if saves and (state["round"] % every == 0 or asked):
            since = time.monotonic()
            saved(folder, state, bug)
            took = time.monotonic() - since
            quickest = min(quickest, took)
            saves = bug != "impatient" or took < 5 * quickest  # it takes a slow disk for one that is gone
        if asked:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
