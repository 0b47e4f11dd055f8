"""Elastic data parallelism: who is gone is noticed after the time of silence, then the others stand still to form a
smaller group, and go on; who comes back has them stand still again, and begins with what one of them has."""

from __future__ import annotations

from collections.abc import Iterable

from harness.trainer.config import TrainerConfig
from harness.trainer.effects import Effect, Timer
from harness.trainer.hub import Hub, Member
from harness.trainer.saved import Saved


class ElasticDataParallel(Hub):
    """See the module. A connection that is back within the time of silence, of a process that has what all have, is as
    good as one that never broke."""

    def __init__(self, config: TrainerConfig, saved: Saved, incarnation: int = 0) -> None:
        super().__init__(config, saved, incarnation)
        self._overdue = False  # there was nobody when it was time for a new group

    def start(self, now: float) -> Iterable[Effect]:
        """One that comes after another waits for everybody only for so long."""
        yield from super().start(now)
        if self.saved.resumed:
            yield self._in(now, self.config.silence)

    def came(self, member: Member, now: float) -> Iterable[Effect]:
        """All stand still to take it in; the very first group begins at once."""
        if self._overdue:
            self._overdue = False
            yield self._in(now)
        elif not self.group:
            if self.peers.keys() >= set(self.config.starters):
                yield from [self._in(now)] if self.saved.resumed else self.begin(list(self.peers), now, self.saved)
        elif self.group.keys() == self.peers.keys() == self._intact().keys():
            yield from self.begin(list(self.group), now, None)  # it was away for a moment
        elif self.group.keys() <= self.peers.keys():
            self.training = False
            yield self._in(now)

    def went(self, member: Member, now: float) -> Iterable[Effect]:
        """It is missed once it has been silent for long enough."""
        yield self._in(max(now, member.heard + self.config.silence))

    def regroup(self, now: float) -> Iterable[Effect]:
        """Those who are there go on: with what they have, or what one of them has, or else from the checkpoint."""
        intact = self._intact()
        if not self.peers:
            self._overdue = True
        elif self.training and self.group.keys() == self.peers.keys():
            pass  # it is done already
        elif not intact:
            yield from self.begin(list(self.peers), now, self.saved)
        elif intact.keys() == self.peers.keys():
            yield from self.begin(list(self.peers), now, None)
        else:
            yield from self.fetch(min(intact))

    def fetched(self, state: Saved, now: float) -> Iterable[Effect]:
        """The others begin with it."""
        yield from self.begin(list(self.peers), now, state, self._intact())

    def _in(self, now: float, wait: float = 0.0) -> Timer:
        return Timer("regroup", now + wait + self.config.reconfiguration)

    def _intact(self) -> dict[str, Member]:
        """Those of the group that have what it has."""
        return {name: member for name, member in self.peers.items()
                if self.group.get(name) == member.incarnation and member.step == self.step}
