"""Which inner steps a process tells what they were computed from: few, and the same ones every time.

They are its first step; those on both sides of what it receives for the 1st, 4th, 16th, ... time; and the last
before it saves its part of a checkpoint, which the step after that checkpoint is restored can be held against.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable

from diloco_chaos.harness.record.tape.events import InnerStep
from diloco_chaos.harness.trainer.model.replica import Replica

_RARER = 4
"""Receipts become this many times as many before the next one is told of."""


class InnerSample:
    """The sample of one process."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._step: int | None = None
        self._told: int | None = None
        self._due = True
        self._receipts, self._next = 0, 1

    def taken(self, step: int) -> Iterable[InnerStep]:
        """The replica has taken an inner step, which is the process' own by this number."""
        self._step = step
        if self._due:
            self._due = False
            yield from self.tell()

    def before_receipt(self) -> Iterable[InnerStep]:
        """What was received is about to change the weights: a fragment, or a mean gradient."""
        if self._step is None:
            return
        self._receipts += 1
        if self._receipts == self._next:
            self._next *= _RARER
            yield from self.tell()
            self._due = True

    def forget(self) -> None:
        """What the replica has comes from elsewhere now."""
        self._step, self._told, self._due = None, None, True

    def tell(self) -> Iterable[InnerStep]:
        """Tell of the newest step, once."""
        if self._step is None or self._told == self._step or (evidence := self._replica.evidence()) is None:
            return
        self._told = self._step
        yield InnerStep(step=self._step, count=evidence.count, counted=evidence.counted, batch=evidence.batch,
                        norm=evidence.norm, values=base64.b64encode(evidence.values.astype("<f4").tobytes()).decode())
