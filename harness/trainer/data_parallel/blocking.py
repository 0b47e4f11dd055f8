"""Data parallelism as it is run at scale: while anybody is gone all others stand still, and once everybody is there
again all go back to the last checkpoint. Only who is dead is started again."""

from __future__ import annotations

from collections.abc import Iterable

from diloco_chaos.harness.trainer.data_parallel.hub import Hub, Member
from diloco_chaos.harness.trainers.core.effects import Effect


class DataParallel(Hub):
    """See the module."""

    def came(self, member: Member, now: float) -> Iterable[Effect]:
        """The last one is there: from the last checkpoint on."""
        if self.peers.keys() >= set(self.config.names):
            yield from self.begin(self.config.names, now, self.saved)

    def went(self, member: Member, now: float) -> Iterable[Effect]:
        """All stand still until it is there again."""
        return ()
