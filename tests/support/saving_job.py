"""A job that saves its state every ten rounds and goes on from the newest: `saving_job.py FOLDER [BUG]`."""

import contextlib
import json
import os
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


def main(folder, bug=""):
    """Train to the hundredth round."""
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
        if state["round"] % 10 == 0:
            saved(folder, state, bug)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
