"""One round: asking for a fragment, collecting answers, and knowing when to merge. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from harness.trainer.tensors import Tensors


@dataclass(frozen=True)
class Contribution:
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
    answers: dict[str, Contribution] = field(default_factory=dict)
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

    def take(self, contribution: Contribution) -> None:
        """Add a complete answer."""
        self.answers[contribution.learner] = contribution

    def reached(self, now: float, gamma: float, tau: float, step_time: float, sync_time: float) -> None:
        """The K-th answer is there: open the grace window."""
        self.quorum_at, self.step_time, self.sync_time = now, step_time, sync_time
        self.grace = grace_window(gamma, tau, step_time, now - self.opened, sync_time)

    def may_merge(self, now: float) -> tuple[bool, str]:
        """Whether to merge now, and why."""
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


_OUTLIER = 4.0


class MovingAverage:
    """Exponential moving average; None before the first sample.

    A sample counts as four times the average at most: one that was taken while the process stood still would otherwise
    close the grace window for seconds afterwards.
    """

    def __init__(self, weight: float = 0.1) -> None:
        self._weight = weight
        self.value: float | None = None

    def add(self, sample: float) -> None:
        """Take one more sample."""
        if self.value is None:
            self.value = sample
        else:
            self.value += self._weight * (min(sample, _OUTLIER * self.value) - self.value)


@dataclass
class Peer:
    """A learner as the syncer sees it."""

    name: str
    incarnation: int
    connection: int | None
    step: int
    c_steps: list[int]
    heard: float
    holds: list[int]
    """Version of each fragment that it was last sent, or came with."""
    step_time: MovingAverage = field(default_factory=MovingAverage)

    @property
    def live(self) -> bool:
        """Connected now."""
        return self.connection is not None

    def report(self, step: int, fragments: list[tuple[int, int, int]], took: float) -> None:
        """Take in a report; `took`: seconds of its last step, 0 where that is not known."""
        if took > 0:
            self.step_time.add(took)
        self.step = max(step, self.step)
        self.c_steps = [steps for _, steps, _ in fragments]


def global_step(peers: list[Peer], quorum: int, previous: int) -> int:
    """t: the K-th largest step count among live learners; it never goes back."""
    steps = sorted([peer.step for peer in peers if peer.connection is not None], reverse=True)
    return max(previous, steps[quorum - 1]) if len(steps) >= quorum else previous


def typical_step_time(peers: list[Peer], nominal: float) -> float:
    """Step time of the median live learner, the nominal one while nobody has told one."""
    samples = [peer.step_time.value for peer in peers if peer.live and peer.step_time.value is not None]
    return median(samples) if samples else nominal
