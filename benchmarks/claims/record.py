"""Measure what `docs/claims.md` has from simulations of its own, and keep it in `benchmarks/claims/claims.json`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from diloco_chaos.chaos.fleet.sweep_tables import failed_document, grace_document, wan_document
from diloco_chaos.chaos.fleet.sweeps import failed_share, grace, wan
from diloco_chaos.chaos.fleet.sweeps.cell import CELLS
from diloco_chaos.harness.base.workers import Job, Result, Task, Workers, workers_for
from diloco_chaos.harness.fleet.fleet import Fleet
from diloco_chaos.harness.fleet.paper import PUBLISHED, fitted, fleet_of
from diloco_chaos.harness.fleet.replications import TRIALS, Summary, replicated

_DAYS, _REPLICATIONS = 30.0, 100
_DAY_S = 86_400.0
_SEED = 100
"""Others than those with which anything was tried."""
_UPTIME_OF = (1, 2, 4, 8)
_DILUTED = ((1_200_000, 8), (2_400_000, 8), (2_400_000, 16))


def record(say: Callable[[str], None]) -> dict[str, Any]:
    """Run all simulations of the page and return their results; it takes some ten minutes on two cores."""
    recorded = {"fleet": _fleet(), "seed": _SEED}
    say("fleet: done")
    workers = _workers(CELLS)
    try:
        asked = wan.Wan.model_validate({
            "parameters": ("1B", "12B", "100B"), "rtt": ("1ms", "30ms", "100ms", "300ms"),
            "rate": (0.5, 1.0, 2.0, 5.0, 20.0, 100.0, 400.0), "seed": _SEED})
        recorded["wan"] = wan_document(asked, wan.swept(asked, workers))
        say("wide-area network: done")
        gone = failed_share.FailedShare(seed=_SEED)
        recorded["failed_share"] = failed_document(gone, failed_share.swept(gone, workers))
        say("failed share: done")
        window = grace.Grace(seed=_SEED)
        recorded["grace"] = grace_document(window, grace.swept(window, workers))
    finally:
        workers.close()
    return recorded


def _workers(task: Task[Job, Result]) -> Workers[Job, Result]:
    return workers_for(task, len(os.sched_getaffinity(0)))


def _fleet() -> dict[str, Any]:
    """The published cells; uptime by the number of learners; the rule that M learners are like one of M times fewer
    chips."""
    base = fitted()
    published = [fleet_of(cell, base) for cell in PUBLISHED]
    up = [_decoupled(base, 2_400_000, learners) for learners in _UPTIME_OF]
    many = [_decoupled(base, chips, learners) for chips, learners in _DILUTED]
    alone = [_decoupled(base, chips // learners, 1) for chips, learners in _DILUTED]
    workers = _workers(TRIALS)
    try:
        summaries = iter(replicated([*published, *up, *many, *alone], _DAYS * _DAY_S, _REPLICATIONS, _SEED, workers))
    finally:
        workers.close()
    cells = [{"chips": cell.chips, "mode": cell.mode, "learners": cell.learners, "published": cell.goodput,
              "goodput": next(summaries).goodput.mean} for cell in PUBLISHED]
    return {"cells": cells, "uptime": {learners: next(summaries).uptime.mean for learners in _UPTIME_OF},
            "diluted": _pairs([next(summaries) for _ in many], [next(summaries) for _ in alone])}


def _decoupled(base: Fleet, chips: int, learners: int) -> Fleet:
    return base.model_copy(update={"mode": "decoupled", "chips": chips, "learners": learners})


def _pairs(many: list[Summary], alone: list[Summary]) -> list[dict[str, Any]]:
    return [{"chips": split.fleet.chips, "learners": split.fleet.learners, "goodput": split.goodput.mean,
             "of_fewer_chips": whole.goodput.mean} for split, whole in zip(many, alone, strict=True)]
