"""Elastic data parallelism: when somebody goes or comes all stand still to form another group, and go on with those who
are there then; who comes begins with what one of the others has."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.data_parallel.group_checkpoint import GroupCheckpoint
from diloco_chaos.harness.trainer.data_parallel.hub import Hub, Member
from diloco_chaos.harness.trainers.core.effects import Effect, Timer


class ElasticDataParallel(Hub):
    """See the module. Somebody is gone when the connection ends, at once where its process died, or after
    `heartbeat_timeout` where nothing is heard of it any more.

    The first who goes or comes opens a rendezvous, which takes `reconfiguration`; whoever goes or comes meanwhile does
    not prolong it, so that one who keeps coming and going can't hold up the others for ever. A connection that is back
    before it is over, of a process that has what all have, is as good as one that never broke.
    """

    def __init__(self, config: TrainerConfig, saved: GroupCheckpoint, incarnation: int = 0) -> None:
        super().__init__(config, saved, incarnation)
        self._closes = math.inf
        """When the rendezvous is over that is under way."""
        self._overdue = False  # there was nobody when it was time for a new group

    def start(self, now: float) -> Iterable[Effect]:
        """One that comes after another waits for everybody only for so long."""
        yield from super().start(now)
        if self.saved.resumed:
            yield from self._rendezvous(now, self.config.heartbeat_timeout)

    def came(self, member: Member, now: float) -> Iterable[Effect]:
        """All stand still to take it in; the very first group begins at once."""
        if self._overdue:
            self._overdue = False
            yield from self._rendezvous(now)
        elif not self.group:
            if self.peers.keys() >= set(self.config.starters):
                yield from (self._rendezvous(now) if self.saved.resumed else
                            self.begin(list(self.peers), now, self.saved))
        elif self.group.keys() == self.peers.keys() == self._intact().keys():
            yield from self.begin(list(self.group), now, None)  # it was away for a moment
        elif self.group.keys() <= self.peers.keys():
            self.training = False
            yield from self._rendezvous(now)

    def went(self, member: Member, now: float) -> Iterable[Effect]:
        """All stand still to go on without it."""
        yield from self._rendezvous(now)

    def regroup(self, now: float) -> Iterable[Effect]:
        """Those who are there go on: with what they have, or what one of them has, or else from the checkpoint."""
        if self._closes == math.inf:
            return  # all were back before it was over
        self._closes = math.inf
        intact = self._intact()
        if not self.peers:
            self._overdue = True
        elif not intact:
            yield from self.begin(list(self.peers), now, self.saved)
        elif intact.keys() == self.peers.keys():
            yield from self.begin(list(self.peers), now, None)
        else:
            yield from self.fetch(min(intact))

    def fetched(self, state: GroupCheckpoint, now: float) -> Iterable[Effect]:
        """The others begin with it."""
        yield from self.begin(list(self.peers), now, state, self._intact())

    def begin(self, names: Collection[str], now: float, state: GroupCheckpoint | None, have_it: Collection[str] = ()
              ) -> Iterable[Effect]:
        """Whatever brought this group about, no other is being formed any more."""
        self._closes = math.inf
        yield from super().begin(names, now, state, have_it)

    def _rendezvous(self, now: float, patience: float = 0.0) -> Iterable[Effect]:
        """Form a new group when there was time for it; not later than was decided before."""
        closes = now + patience + self.config.reconfiguration
        if closes < self._closes:
            self._closes = closes
            yield Timer("regroup", closes)

    def _intact(self) -> dict[str, Member]:
        """Return the group's members that have what the group has, by name."""
        return {name: member for name, member in self.peers.items()
                if self.group.get(name) == member.incarnation and member.step == self.step and name not in self.damaged}
