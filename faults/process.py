"""Faults of processes: what a machine does to a node that it loses."""

from __future__ import annotations

import signal
from typing import ClassVar, Literal

from faults.base import Fault, Felt, Hit, names
from harness.cluster.base import Ability
from harness.units import Seconds, show_seconds

TYPICAL_START_S = 3.0
"""What a new process needs until it trains, for the predicted availability only."""


class Kill(Fault):
    """SIGKILL. The cluster's restart policy brings the node back: a kill has no undo that could race it."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"kill", "restart"})
    lasts: ClassVar[bool] = False

    kind: Literal["kill"] = "kill"
    restart_after: Seconds | None = None
    """Until the cluster starts it again; none: it stays dead."""

    def inject(self, hit: Hit) -> Felt:
        """Kill every target; felt is the exit status that the kernel reported."""
        statuses = [hit.cluster.kill(target, self.restart_after) for target in self.targets]
        died = all(status == -signal.SIGKILL for status in statuses)
        return {"ok": died, "exit_status": ", ".join("SIGKILL" if status == -signal.SIGKILL else str(status)
                                                     for status in statuses)}

    def words(self) -> str:
        """What it does, for people."""
        back = "" if self.restart_after is None else f", back after {show_seconds(self.restart_after)}"
        return f"kill {names(self.targets)}{back}"

    def downtime(self) -> float:
        """Until it trains again."""
        return float("inf") if self.restart_after is None else self.restart_after + TYPICAL_START_S
