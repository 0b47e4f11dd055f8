"""The built-in trainer as node specs: what a cluster must know to run it."""

from __future__ import annotations

import sys
from pathlib import Path

from chaos.plan import Plan
from chaos.scenario import SYNCER
from harness.cluster.base import NodeSpec
from harness.trainer.state import STATE


def node_specs(plan: Plan, run: Path, epoch: float) -> list[NodeSpec]:
    """Syncer and learners; hold points that faults wait for are armed in the first incarnation."""
    def spec(name: str, role: str, more: tuple[str, ...]) -> NodeSpec:
        argv = (sys.executable, "-m", "harness.trainer.node", "--role", role, "--name", name, "--run", str(run),
                "--epoch", repr(epoch), "--incarnation", "{incarnation}", *more)
        held = [f"{planned.fault.when.hold}:{planned.fault.when.count}" for planned in plan.faults
                if planned.fault.when and planned.fault.when.hold and planned.fault.when.node == name]
        return NodeSpec(name, argv, listens=role == "syncer", state=STATE if role == "syncer" else "",
                        connects_to="" if role == "syncer" else SYNCER,
                        first_start=tuple(part for hold in held for part in ("--hold", hold)))
    return [spec(SYNCER, "syncer", ("--listen", "{listen}")),
            *(spec(name, "learner", ("--connect", "{connect}")) for name in plan.cluster.names)]
