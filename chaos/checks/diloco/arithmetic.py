"""Was everything computed as the formulas say?"""

from __future__ import annotations

from diloco_chaos.chaos.checks.base import Finding, Unknown, check
from diloco_chaos.chaos.evidence.history import History


@check(unverified="judged")
def arithmetic_correct(history: History) -> Finding | None:
    """What was computed, computed again by a reference that shares no code with the trainer: on the quadratic model
    every version and every step, from the event log alone; else what nodes kept of what they computed with, held
    against the log's digests."""
    found = history.plan.trainer.recomputed(history)
    if found is None:
        return None
    if found.missing and found.difference is None:
        raise Unknown(found.missing)
    made = len(history.merges) + len(history.recovered_merges)
    of = f" of {made:,}" if found.versions < made and found.difference is None else ""
    also = f"{found.steps:,} steps" if found.steps else f"{found.answers:,} outer gradients and receipts"
    done = f"{found.versions:,}{of} versions, {also} computed again"
    if found.difference is None:
        return Finding(True, done, "all the same")
    return Finding(False, f"differs at {found.difference.t:.2f} s", "all the same", [found.difference.what, done])
