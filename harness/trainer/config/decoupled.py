"""Decoupled DiLoCo (arXiv 2604.21428): nobody waits for anybody.

Learners train on while a fragment travels; K answers and a grace window are enough to merge it. The fragments are due
one after the other, staggered over H steps, and at most ceil(tau) of them are exchanged at a time.
"""

from __future__ import annotations

import math
from typing import Protocol

from diloco_chaos.harness.trainer.algorithm.fragments import offsets

Settings = dict[str, int | str]


class Exchanged(Protocol):
    """The settings that an exchange of fragments goes by; `TrainerConfig` has them."""

    @property
    def fragments(self) -> int:
        """P."""

    @property
    def sync_every(self) -> int:
        """H, in inner steps."""

    @property
    def overlap(self) -> float:
        """Tau, in inner steps."""


class Decoupled:
    """The rules for when which fragments are exchanged, and which learners wait. Other modes that exchange fragments
    are changes to this."""

    complete = False
    """Whether all learners must be there to go on, and to begin."""

    def __init__(self, config: Exchanged) -> None:
        self._config = config

    @classmethod
    def implied(cls, learners: int) -> Settings:
        """Settings that follow from the mode."""
        return {"quorum": learners, "grace": 0} if cls.complete else {}

    @property
    def blocking(self) -> bool:
        """Return whether a learner waits for the merge of what it answered: here only where there is no overlap."""
        return self._config.overlap == 0

    @property
    def patience(self) -> float:
        """c_steps of a fragment with which a learner waits for its merge: H, and tau while that is under way."""
        return self._config.sync_every + math.floor(self._config.overlap) if self.blocking else math.inf

    @property
    def most_rounds(self) -> int:
        """Fragments that may be exchanged at a time: as many as the overlap has steps."""
        return max(1, math.ceil(self._config.overlap))

    @property
    def offsets(self) -> list[int]:
        """Return after how many of the H steps each fragment is due."""
        return offsets(self._config.fragments, self._config.sync_every)
