"""Does a node that ends take along what it has started?"""

from __future__ import annotations

from diloco_chaos.chaos.checks.base import Finding, check, need, violations
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.harness.base.lines import line


@check(needs={"rounds"}, unverified="judged")
def left_behind(history: History) -> Finding | None:
    """No process of a node with `left_behind: fail` is there a moment after the node has ended, by itself or because
    it was asked to."""
    held = [node for node in history.plan.cluster.all_nodes if history.plan.trainer.must_leave_nothing(node)]
    if not held:
        return None
    ends = [gone for gone in history.exits if gone.target in held and gone.left is not None]
    need(ends, f"{', '.join(held)} never ended by itself, or this place does not tell what it left behind",
         "let it be terminated: `{terminate: NODE, at: 5s, restart_after: 1s}`, with --on local")
    wrong = [line(f"{gone.target}.{gone.incarnation} ended at ", gone.t, f", and left behind: {'; '.join(gone.left)}")
             for gone in ends if gone.left]
    return Finding(not wrong, f"{len(wrong)} of {len(ends)} ends", "0", wrong[:5], figures=violations(wrong))
