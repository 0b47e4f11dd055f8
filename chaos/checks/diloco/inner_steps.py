"""Were the inner steps taken as AdamW says, from where the step before ended, and on the plan's batches?"""

from __future__ import annotations

from diloco_chaos.chaos.checks.base import Finding, check, violations
from diloco_chaos.chaos.evidence.history import History


@check(needs={"tokens"}, unverified="judged")
def inner_steps_correct(history: History) -> Finding | None:
    """What learners told of a sample of their inner steps, at a few coordinates, is what a reference that shares no
    code with the trainer computes: AdamW's step, with the rate of the event log; its count of steps; moments that are
    those after the step before, over receipts and restored checkpoints; and the batch, cut from the corpus again."""
    found = history.plan.trainer.inner_steps(history)
    if found is None:
        return None
    read = f"{found.batches:,} batches read again" if found.batches else "the corpus is not here: batches are not known"
    return Finding(not found.wrong, f"{len(found.wrong)} differences in {found.steps:,} inner steps", "0",
                   [difference.what for difference in found.wrong[:5]] or [
                       f"{found.steps:,} steps of {found.processes:,} processes computed again, {read}"],
                   figures=violations(found.wrong))
