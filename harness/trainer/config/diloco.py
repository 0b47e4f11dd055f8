"""DiLoCo (arXiv 2311.08105): H steps on one's own, then all learners stop and the whole model is merged."""

from __future__ import annotations

from diloco_chaos.harness.trainer.config.decoupled import Settings
from diloco_chaos.harness.trainer.config.streaming import Streaming


class DiLoCo(Streaming):
    """All fragments at once, and nothing is trained meanwhile."""

    @classmethod
    def implied(cls, learners: int) -> Settings:
        """No overlap."""
        return {**super().implied(learners), "overlap": 0}

    @property
    def most_rounds(self) -> int:
        """All fragments."""
        return self._config.fragments

    @property
    def offsets(self) -> list[int]:
        """All at once, after H steps."""
        return [0] * self._config.fragments
