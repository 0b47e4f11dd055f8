"""Was everything computed as the formulas say?"""

from __future__ import annotations

from chaos.checks.base import Finding, Unknown, check
from chaos.evidence.history import History


@check(needs={"fragments"}, unverified="judged")
def arithmetic_correct(history: History) -> Finding | None:
    """Every version of every fragment, and every step, computed again by a reference that shares no code with the
    trainer; there is one for the quadratic model."""
    found = history.plan.under_test.recomputed(history.plan.cluster, history)
    if found is None:
        return None
    if found.missing and found.difference is None:
        raise Unknown(found.missing)
    made = len(history.merges) + len(history.recovered_merges)
    of = f" of {made:,}" if found.versions < made and found.difference is None else ""
    done = f"{found.versions:,}{of} versions, {found.steps:,} steps computed again"
    if found.difference is None:
        return Finding(True, done, "all the same")
    return Finding(False, f"differs at {found.difference.t:.2f} s", "all the same", [found.difference.words, done])
