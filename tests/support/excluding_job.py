"""A worker that leaves its node out once it has failed there twice: `excluding_job.py FOLDER NAME [trusts]`."""

import json
import sys
import time
from pathlib import Path

FAILURES = 2


def save(file, state):
    """Write it as a whole."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps(state))
    new.rename(file)


def main(folder, name, bug=""):
    """Train to the three hundredth round, unless the node is not to be trusted any more."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    state = json.loads(file.read_text()) if file.exists() else {"round": 0, "begun": 0}
    if state["begun"] >= FAILURES and bug != "trusts":
        print(f"{name} has failed {state['begun']} times: left out", flush=True)
        return
    state["begun"] += 1
    save(file, state)
    while state["round"] < 300:
        time.sleep(0.03)
        state["round"] += 1
        save(file, state)
        print(f"step={state['round']} loss={4.0 * 0.99 ** state['round']:.6f}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
