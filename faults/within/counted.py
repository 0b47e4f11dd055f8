"""Faults of calls that the target's own processes count when they are hit."""

from __future__ import annotations

from typing import ClassVar

from diloco_chaos.faults.base import Fault
from diloco_chaos.faults.evidence import Effect, Evidence, Injection


class Counted(Fault):
    """What it hits is counted where it is hit; `observe_end` returns `ok` and `hit` of that, or `why` there is nothing.
    """

    may_end_target: ClassVar[bool] = True

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """Every target has counted a call that was hit."""
        if why := on.observed.get("why"):
            return Effect(False, str(why))
        return Effect(bool(on.observed.get("ok")), str(on.observed.get("hit", "nobody counted calls that were hit")))
