"""What the syncer keeps, and who holds what of it: committed fragments, the run's counters, the learners that come.

No I/O. `syncer.py` adds the rounds in which fragments are merged.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from harness.core.effects import Close, Commit, Effect, Record, Save, Send, Snapshot
from harness.core.roles import SYNCER
from harness.storage.disk import Content
from harness.tensors import Tensors
from harness.trainer.config.cluster_config import TrainerConfig
from harness.trainer.config.schedule import snapshot_marks
from harness.trainer.coordinator.fragment_state import FragmentState, Restored, fragment_file
from harness.trainer.coordinator.peer_recovery import Recoveries, objection
from harness.trainer.coordinator.plausible import Origin, of_hello
from harness.trainer.coordinator.rounds import LearnerSession
from harness.trainer.coordinator.sessions import PeerSessions
from harness.trainer.coordinator.syncer_part import syncers
from harness.trainer.protocol.messages import Broadcast, CheckpointRequest, Clock, Donation, Hello, Welcome


class FragmentStore(PeerSessions[LearnerSession]):
    """See the module."""

    def __init__(self, config: TrainerConfig, found: Restored, incarnation: int) -> None:
        super().__init__(config, incarnation)
        self.table = config.fragment_table()
        self.states = found.states
        self.counters = found.counters
        self._found = found
        self._warm, self._budget, self._blocking = config.warm_tokens, config.budget_tokens, config.blocking
        self._recoveries = Recoveries(config, self.peers)
        self._marks = snapshot_marks(config)
        if found.resumed:
            self._marks = [mark for mark in self._marks if mark[1] > self.processed]

    @property
    def processed(self) -> int:
        """Tokens processed so far by all learners, warm start included."""
        return self._warm + self.counters.processed

    @property
    def merged(self) -> float:
        """Tokens merged so far: mean over fragments weighted by size, warm start included."""
        total = sum(fragment.size for fragment in self.table)
        weighted = sum(state.merged_tokens * fragment.size
                       for state, fragment in zip(self.states, self.table, strict=True))
        return self._warm + weighted / total

    def status(self) -> dict[str, object]:
        """For people who ask."""
        return {"steady": self.steady, "finished": self.finished, "step": self.counters.step,
                "processed": self.processed, "merged": round(self.merged), "budget": self._budget,
                "versions": [state.version for state in self.states],
                "learners": {name: {"connected": peer.connection is not None, "incarnation": peer.incarnation,
                                    "step": peer.step} for name, peer in sorted(self.peers.items())}}

    def start(self, now: float) -> Iterable[Effect]:
        """The first effects of a new process."""
        for name, why in self._found.repaired.items():
            yield Record("repaired", {"file": name, "reason": why})
        for fragment in self._found.to_commit:  # from here on a file that is missing was lost
            yield self._commit(fragment)
        yield Record("resumed" if self._found.resumed else "initial", {
            "versions": [state.version for state in self.states], "digests": [state.digest for state in self.states],
            "contributions": [state.contributions for state in self.states],
            "outer": [state.step for state in self.states],
            "step": self.counters.step, "processed": self.processed})
        yield self._next_heartbeat(now)
        yield from self._snapshots()

    @abstractmethod
    def _advance(self, now: float) -> Iterable[Effect]:
        """Somebody came or told something: go on with what that allows."""

    # -- learners come -------------------------------------------------------------------------------------------

    def _hello(self, connection: int, hello: Hello, now: float) -> Iterable[Effect]:
        newest = self.counters.newest(hello.node)
        ours = len(hello.versions) == len(hello.steps) == len(self.table)
        position = self.counters.positions.get(hello.node, self.config.warm_start)
        refusal = self._turn_away(connection, hello, newest, ours)
        if not refusal and (why := of_hello(hello, self.config, now, self.counters.step, position,
                                            self.counters.heard.get(hello.node, 0.0))):
            refusal = [Record("refused", {"learner": hello.node, "incarnation": hello.incarnation,
                                          "reason": f"impossible hello: {why}"}), Close(connection, "impossible hello")]
        if refusal:
            yield from refusal
            return
        yield from self._replace(hello, now)
        fresh = all(version < 0 for version in hello.versions)
        step = hello.step if hello.tokens else self.counters.step  # one that has made no step begins where training is
        steps = [0] * len(self.table) if fresh else list(hello.steps)
        if hello.incarnation > newest:
            self.counters.lease(hello.node, now, self.config)
        self.counters.report(hello.node, hello.incarnation, hello.tokens, hello.position, now)
        origin = Origin(now, step, hello.tokens, self.counters.positions[hello.node])
        peer = LearnerSession(hello.node, hello.incarnation, connection, step, self.counters.step, steps, now,
                              list(hello.versions),
                              origin)
        self.peers[hello.node] = self._by_connection[connection] = peer
        if hello.incarnation > newest:  # a stale one must be refused by the syncer's own successor, too
            yield self._commit(0)
        yield Record("hello", {"learner": peer.name, "incarnation": peer.incarnation, "fresh": fresh, "step": step,
                               "versions": [state.version for state in self.states], "versions_held": hello.versions})
        yield Send(Welcome(step=self.counters.step, tokens=self.processed, steady=self.steady,
                           position=self.counters.positions[hello.node]), to=connection)
        yield from self._recover(peer, now) if fresh else self._refresh(peer)
        yield from self._advance(now)
        yield from self._snapshots()

    def _refresh(self, peer: LearnerSession) -> Iterable[Effect]:
        """Tell one that comes back what it can't go on from any more."""
        for index, state in enumerate(self.states):
            held = peer.holds[index]
            behind = state.version - held
            if held < 0 or behind < 0 or state.out_of_reach(held, self.config) or (behind and self._blocking):
                yield from self._tell(peer, index)
                peer.c_steps[index] = 0

    def _recover(self, peer: LearnerSession, now: float) -> Iterable[Effect]:
        """Have a healthy peer bring a new process up to date, or do it."""
        versions = [state.version for state in self.states]
        yield from self._recoveries.begin(peer, versions, now)
        if peer.name not in self._recoveries:
            for index in [index for index, version in enumerate(versions) if peer.holds[index] < version]:
                yield from self._tell(peer, index)

    def _renew(self, peer: LearnerSession, reason: str, now: float) -> Iterable[Effect]:
        """Send everything to a learner that has nothing any more that it could go on from."""
        yield Record("renewed", {"learner": peer.name, "incarnation": peer.incarnation, "reason": reason})
        peer.holds, peer.c_steps, peer.renewing = [-1] * len(self.table), [0] * len(self.table), True
        yield from self._recover(peer, now)

    def _without_donor(self, name: str, now: float) -> Iterable[Effect]:
        """Nothing will come from this one."""
        for peer in self._recoveries.waiting_for(name):
            yield from self._recover(peer, now)

    def _pass_on(self, donor: LearnerSession, donation: Donation, tensors: Tensors, now: float) -> Iterable[Effect]:
        """Hand on what a donor holds; of a merge that was made meanwhile the receiver was told like everybody."""
        peer = self._recoveries.receiver(donor, donation)
        if peer is None or peer.connection is None:
            return
        if why := objection(donation, tensors, self.states):
            yield Record("refused", {"learner": donor.name, "incarnation": donor.incarnation, "reason": why})
            yield from self._recover(peer, now)
            return
        self._recoveries.forget(peer.name)
        peer.holds = list(map(max, peer.holds, donation.versions))
        yield Send(donation, tensors, to=peer.connection)

    # -- what is kept, and told ----------------------------------------------------------------------------------

    def _commit(self, fragment: int) -> Commit:
        state = self.states[fragment]
        return Commit(fragment_file(fragment), state.tensors(), self._meta(state))

    def _meta(self, state: FragmentState) -> dict[str, Any]:
        return state.meta() | {"counters": self.counters.meta()}

    def _tell(self, peer: LearnerSession, index: int, closed: float = 0.0) -> Iterable[Effect]:
        """A fragment's value; to who holds the version before it what has changed, where that takes fewer bytes.
        `closed`: when the round of which it is the result was closed."""
        if peer.connection is None:
            return
        state = self.states[index]
        changed = bool(state.update) and peer.holds[index] == state.version - 1
        incarnation, merged = state.merged.get(peer.name, (-1, 0))
        peer.holds[index] = state.version
        yield Send(Broadcast(fragment=index, version=state.version, digest=state.digest,
                             base=state.version - 1 if changed else -1,
                             merged=merged if incarnation == peer.incarnation else 0, closed=closed),
                   state.update if changed else state.value, to=peer.connection)

    def _checkpoint(self) -> Iterable[Effect]:
        """Have everybody save what they are now."""
        there = {peer.name: peer.connection for peer in self.peers.values() if peer.connection is not None}
        number, told = self._checkpoints.begin(self.counters.step, [SYNCER, *there])
        yield from told
        files = [Content(state.tensors() | state.older(), self._meta(state)) for state in self.states]
        yield Save(number, *syncers(files), keep=self._checkpoints.whole)
        for connection in there.values():
            yield Send(CheckpointRequest(number=number), to=connection)

    def _clock(self, now: float) -> Clock:
        return Clock(step=self.counters.step, tokens=self.processed, steady=self.steady, sent=now)

    def _snapshots(self) -> Iterable[Effect]:
        while self._marks and self.processed >= self._marks[0][1]:
            yield self._snapshot(self._marks.pop(0)[0])

    def _snapshot(self, number: int) -> Snapshot:
        value = {name: array for state in self.states for name, array in state.value.items()}
        return Snapshot(value, {"number": number, "processed": self.processed, "merged": round(self.merged),
                                "step": self.counters.step})
