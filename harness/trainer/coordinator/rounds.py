"""One round: asking for a fragment, collecting answers, and knowing when to merge. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.trainer.coordinator.moving_average import MovingAverage
from diloco_chaos.harness.trainer.coordinator.plausible import LearnerOrigin
from diloco_chaos.harness.trainer.coordinator.transit import Transit


@dataclass(frozen=True)
class FragmentContribution:
    """A complete answer: learner steps `first_step`..`last_step` as an outer gradient against `base_version`."""

    learner: str
    incarnation: int
    base_version: int
    first_step: int
    last_step: int
    steps: int
    tokens: int
    digest: str
    arrived: float
    tensors: Tensors


@dataclass
class Round:
    """An exchange of one fragment."""

    number: int
    fragment: int
    opened: float
    asked: dict[str, int] = field(default_factory=dict)
    """Learner -> incarnation, of those that were asked and are still there."""
    answers: dict[str, FragmentContribution] = field(default_factory=dict)
    declined: set[str] = field(default_factory=set)
    """Asked, but had nothing to give that could be merged."""
    quorum_at: float | None = None
    grace: float = 0.0
    step_time: float = 0.0
    sync_time: float = 0.0

    @property
    def outstanding(self) -> set[str]:
        """Learners that may still answer."""
        return set(self.asked) - set(self.answers)

    def take(self, contribution: FragmentContribution) -> None:
        """Add a complete answer."""
        self.answers[contribution.learner] = contribution

    def reached(self, now: float, gamma: float, tau: float, step_time: float, sync_time: float) -> None:
        """The K-th answer is there: open the grace window."""
        self.quorum_at, self.step_time, self.sync_time = now, step_time, sync_time
        self.grace = grace_window(gamma, tau, step_time, now - self.opened, sync_time)

    def may_merge(self, now: float) -> tuple[bool, str]:
        """Return whether to merge now, and why."""
        if self.quorum_at is None:
            return False, "no quorum yet"
        if not self.outstanding:
            return True, "all answered"
        if now >= self.quorum_at + self.grace:
            return True, "grace window over"
        return False, "grace window open"


def grace_window(gamma: float, tau: float, step_time: float, quorum_time: float, sync_time: float) -> float:
    """Seconds to wait for more answers after the quorum: a share gamma of the slack that the overlap leaves.

    gamma * (tau * step_time - quorum_time - sync_time), clamped to [0, step_time].
    """
    return min(max(gamma * (tau * step_time - quorum_time - sync_time), 0.0), step_time)


@dataclass
class LearnerSession:
    """A learner as the syncer sees it."""

    name: str
    incarnation: int
    connection: int | None
    step: int
    """Its own count."""
    place: int
    """Where it stands on the global clock, see `diloco_chaos.harness.trainer.coordinator.global_clock`."""
    c_steps: list[int]
    heard: float
    holds: list[int]
    """Version of each fragment that it was last sent, or came with."""
    origin: LearnerOrigin
    """Where it was when it came."""
    renewing: bool = False
    """It had to drop all that it had, and is sent everything."""
    step_time: MovingAverage = field(default_factory=MovingAverage)
    transit: Transit = field(default_factory=Transit)

    @property
    def live(self) -> bool:
        """Connected now."""
        return self.connection is not None

    def report(self, step: int, fragments: list[tuple[int, int, int]], took: float) -> int:
        """Take in a report; `took`: seconds of its last step, 0 where that is not known. Returns how many steps it has
        made since the one before."""
        if took > 0:
            self.step_time.add(took)
        more, self.step = max(0, step - self.step), max(step, self.step)
        self.c_steps = [steps for _, steps, _ in fragments]
        return more


def typical_step_time(peers: list[LearnerSession], nominal: float) -> float:
    """Step time of the median live learner, the nominal one while nobody has told one."""
    samples = [peer.step_time.value for peer in peers if peer.live and peer.step_time.value is not None]
    return median(samples) if samples else nominal


def typical_sync_time(peers: Iterable[LearnerSession]) -> float:
    """Return the sync time of the median live learner, as a receiver, in seconds; 0 before any has received
    something."""
    known = [peer.transit.sync_time for peer in peers if peer.live and peer.transit.sync_time is not None]
    return median(known) if known else 0.0
