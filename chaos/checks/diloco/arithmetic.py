"""Was everything computed as the formulas say?"""

from __future__ import annotations

from diloco_chaos.chaos.checks.base import Finding, Unknown, check
from diloco_chaos.chaos.evidence.history import History


@check(unverified="judged")
def arithmetic_correct(history: History) -> Finding | None:
    """A reference that shares no code with the trainer computes the same again: on the quadratic model every version
    and every step, from the event log alone; else what nodes kept of what they computed with, held against the log's
    digests."""
    recomputed = history.plan.trainer.recomputed(history)
    if recomputed is None:
        return None
    if recomputed.missing and recomputed.difference is None:
        raise Unknown(recomputed.missing)
    made = len(history.merges) + len(history.recovered_merges)
    of = f" of {made:,}" if recomputed.versions < made and recomputed.difference is None else ""
    also = f"{recomputed.steps:,} steps" if recomputed.steps else f"{recomputed.answers:,} outer gradients and receipts"
    done = f"{recomputed.versions:,}{of} versions, {also} computed again"
    if recomputed.difference is None:
        return Finding(True, done, "all the same")
    return Finding(False, f"differs at {recomputed.difference.t:.2f} s", "all the same",
                   [recomputed.difference.what, done])
