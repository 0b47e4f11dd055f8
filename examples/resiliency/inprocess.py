"""The same job under the in-process restart of nvidia-resiliency-ext, and nothing of diloco-chaos in it.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=... MASTER_PORT=... python inprocess.py FOLDER

trains to the end. When a rank fails, the others leave the step that they are in and call `run` again in the same
processes, without the one that is gone: they go on from the newest checkpoint in FOLDER. (The wrapper reads the
types of `run`, so annotations are no strings here.)
"""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
from nvidia_resiliency_ext import inprocess
from torch import distributed as dist
from torch import nn
from train import EVERY, STEP_S, STEPS, Job, batch, load, save

TIMEOUT = timedelta(seconds=60)
WRAPPED = inprocess.Wrapper()


@WRAPPED
def run(folder: Path, call: inprocess.CallWrapper | None = None) -> None:
    """Train until all steps are made; called again after each failure."""
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=TIMEOUT)
    dist.init_process_group("gloo", store=dist.PrefixStore(f"run-{call.iteration}", store), timeout=TIMEOUT,
                            rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    job = Job()
    if kept := load(folder):
        kept["random"] = kept["random"][:job.world] + kept["random"][:1] * (job.world - len(kept["random"]))
        job.load_state_dict(kept)
    while job.step < STEPS:
        inputs, targets = batch(job.step, job.rank)
        loss = nn.functional.mse_loss(job.model(inputs), targets)
        job.optimizer.zero_grad()
        loss.backward()
        job.optimizer.step()
        job.schedule.step()
        job.step += 1
        print(f"step={job.step} members={job.world} loss={loss.item()} time={time.time():.3f}", flush=True)
        if job.step % EVERY == 0:
            save(job, folder)
        call.ping()
        time.sleep(STEP_S)


def main() -> None:
    """See the module."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    run(folder)


if __name__ == "__main__":
    main()
