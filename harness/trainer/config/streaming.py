"""Streaming DiLoCo (arXiv 2501.18512): fragments one after the other, overlapped with training; all wait for all."""

from __future__ import annotations

from diloco_chaos.harness.trainer.config.decoupled import Decoupled


class Streaming(Decoupled):
    """K = M: a fragment is merged when everybody has answered; who has made tau steps meanwhile stands until then."""

    complete = True

    @property
    def blocking(self) -> bool:
        """Always."""
        return True
