"""A job that trains on a device: `device_job.py FILE LIBRARY [swallows | retries]`.

`tests.support.stub_runtime` makes the library. The job ends with status 3 at the first error of its device, and goes on
from its last round when it is started again."""

import ctypes
import json
import sys
import time
from pathlib import Path


def main(file, library, bug=""):
    """Train to the hundredth round, and save each."""
    state = json.loads(file.read_text()) if file.exists() else {"round": 0, "loss": 4.0}
    device = ctypes.CDLL(library)

    def must(code):
        if code and bug != "swallows":
            print(f"CUDA error {code}", flush=True)
            sys.exit(3)

    def step():
        while bug == "retries" and device.step(ctypes.byref(loss)):
            time.sleep(0.1)
        if bug != "retries":
            must(device.step(ctypes.byref(loss)))

    must(device.begin())
    loss = ctypes.c_double(state["loss"])
    while state["round"] < 100:
        time.sleep(0.03)
        step()
        state = {"round": state["round"] + 1, "loss": loss.value}
        new = file.with_suffix(".new")
        new.write_text(json.dumps(state))
        new.rename(file)
        print(f"step={state['round']} loss={state['loss']:.6f}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
