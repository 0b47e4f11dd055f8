"""Merging one fragment set (M = 8, 10 million float32 parameters, RDA) beside a torch copy of as many floats."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch

from diloco_chaos.harness.trainer.algorithm.merge import merge

LEARNERS, PARAMETERS, TENSORS, ROUNDS = 8, 10_000_000, 10, 7


def measure(say: Callable[[str], None]) -> dict[str, Any]:
    """Medians of interleaved rounds, one thread each: a copy into new memory, which a merge needs, too, and into memory
    that is there."""
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    parts = [{f"tensor{index}": random.standard_normal(PARAMETERS // TENSORS, np.float32)
              for index in range(TENSORS)} for _ in range(LEARNERS)]
    floats = torch.from_numpy(np.stack([np.concatenate(list(part.values())) for part in parts]))
    allocated = torch.zeros_like(floats)
    times: dict[str, list[float]] = {"merge": [], "copy_into_new_memory": [], "copy_into_memory_that_is_there": []}
    for _ in range(ROUNDS):
        for name, work in (("merge", lambda: merge(parts, [1.0] * LEARNERS, "rda", ())),
                           ("copy_into_new_memory", floats.clone), ("copy_into_memory_that_is_there",
                                                                    lambda: allocated.copy_(floats))):
            began = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - began)
    say(f"  merge: {({name: round(median(seconds), 3) for name, seconds in times.items()})}")
    ratios = {f"over_{name}": round(median(
        mine / its for mine, its in zip(times["merge"], times[name], strict=True)), 2) for name in times
        if name != "merge"}
    return {name: round(median(seconds), 4) for name, seconds in times.items()} | ratios
