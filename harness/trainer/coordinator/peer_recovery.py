"""Who brings a new process up to date: a healthy peer that has seen the same vector clock (arXiv 2604.21428, recovery),
or the syncer itself. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from diloco_chaos.harness.base.tensors import Tensors, digest
from diloco_chaos.harness.record.tape import events
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.coordinator.fragment_state import FragmentState
from diloco_chaos.harness.trainer.coordinator.rounds import LearnerSession
from diloco_chaos.harness.trainer.protocol.messages import Donate, Donation
from diloco_chaos.harness.trainers.core.effects import Effect, Send, Timer

TIMER = "recovery from "
"""Before the donor's name, in the key of the timer after which it is not waited for any more."""


@dataclass(frozen=True)
class _Waiting:
    donor: str
    tried: frozenset[str]
    """Everybody who was asked so far, the donor among them."""


class Recoveries:
    """New processes that wait for what a donor holds. A donor that dies, stands still for `heartbeat_timeout` or sends
    what is not true is passed over for the next one; in the end there is the syncer."""

    def __init__(self, config: TrainerConfig, peers: Mapping[str, LearnerSession]) -> None:
        """`peers`: everybody who is known, as they are at any time."""
        self._config, self._peers = config, peers
        self._waiting: dict[str, _Waiting] = {}

    def __contains__(self, learner: str) -> bool:
        """Return whether this learner waits for a donor."""
        return learner in self._waiting

    def begin(self, peer: LearnerSession, versions: Sequence[int], now: float) -> Iterable[Effect]:
        """Ask a donor for what this peer needs, one that was not asked for it before. No donor is asked where none is
        left, or where the syncer shall do it: then the peer does not wait."""
        before = self._waiting.pop(peer.name, None)
        tried = before.tried if before else frozenset()
        able = [] if self._config.recovery == "syncer" else [
            candidate for candidate in self._peers.values()
            if candidate.live and candidate.name not in (peer.name, *tried)
            and candidate.holds == list(versions)]  # a learner that still recovers holds less, and is no donor
        donor = min(able, key=lambda candidate: candidate.name, default=None)
        if before or donor:
            yield events.Recovering(learner=peer.name, incarnation=peer.incarnation,
                                    from_=donor.name if donor else "syncer", versions=list(versions))
        if donor is not None:
            self._waiting[peer.name] = _Waiting(donor.name, tried | {donor.name})
            yield Send(Donate(learner=peer.name), to=donor.connection)
            yield Timer(TIMER + donor.name, now + self._config.heartbeat_timeout)

    def forget(self, learner: str) -> None:
        """It is gone, or has what it waited for."""
        self._waiting.pop(learner, None)

    def waiting_for(self, donor: str) -> list[LearnerSession]:
        """Return the learners that wait for this donor."""
        return [self._peers[name] for name, waiting in self._waiting.items() if waiting.donor == donor]

    def receiver(self, donor: LearnerSession, donation: Donation) -> LearnerSession | None:
        """Return the learner that a donation is for; None where none waits for it any more. It is as good for a newer
        process."""
        waiting = self._waiting.get(donation.learner)
        return self._peers.get(donation.learner) if waiting and waiting.donor == donor.name else None


def objection(donation: Donation, tensors: Tensors, states: Sequence[FragmentState]) -> str:
    """Return why a donation can't be passed on; empty where it can: every fragment has the digest that the donor
    claims, and at the committed version that is the committed digest."""
    if not len(donation.versions) == len(donation.digests) == len(states):
        return "donation of another model"
    for version, claimed, state in zip(donation.versions, donation.digests, states, strict=True):
        if version > state.version:
            return "impossible version"
        computed = digest({name: tensors[name] for name in state.value if name in tensors})
        if computed != claimed or (version == state.version and claimed != state.digest):
            return "wrong digest"
    return ""
