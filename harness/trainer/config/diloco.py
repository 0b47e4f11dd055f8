"""DiLoCo (arXiv 2311.08105): H steps on one's own, then all learners stop and the whole model is merged."""

from __future__ import annotations

from diloco_chaos.harness.trainer.config.decoupled import Settings
from diloco_chaos.harness.trainer.config.streaming import Streaming


class DiLoCo(Streaming):
    """An exchange of all fragments at once, during which no learner trains."""

    @classmethod
    def implied(cls, learners: int) -> Settings:
        """No overlap."""
        return {**super().implied(learners), "overlap": 0}

    @property
    def most_rounds(self) -> int:
        """Return the number of all fragments."""
        return self._config.fragments

    @property
    def offsets(self) -> list[int]:
        """Return 0 for every fragment: all are due at once, after H steps."""
        return [0] * self._config.fragments
