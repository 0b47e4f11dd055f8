"""What a fault may ask of a recorded run, to find out whether it took effect."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from diloco_chaos.harness.record.tape.events import Exit, Merge
from diloco_chaos.harness.record.tape.reading import Tape

NEAR_S = 2.5
"""An exit within this time of a fault is its work; SIGTERM becomes SIGKILL after two seconds."""
SILENT = 0.9
"""Share of its duration in which a fault that silences its target must have done so."""


class Effect(NamedTuple):
    """The effect that a fault had."""

    ok: bool
    """Whether that is what was asked for: the harness did its part."""
    observed: str
    """In words, for the report: `exit status SIGKILL`."""
    reacted: bool = True
    """Whether the trainer did about it what it must: noticed, refused, repaired. What the harness did not do proves
    nothing; what the trainer did not do is a failure."""


class Injection(Protocol):
    """A fault in time, in seconds since the run began."""

    @property
    def id(self) -> str:
        """The fault's own: `f2`."""
        ...

    @property
    def began(self) -> float:
        """Return when the fault came, in seconds by the run's clock."""
        ...

    @property
    def ended(self) -> float | None:
        """Return when it was undone; for one that ends its target: when that was started again. None: it lasted."""
        ...

    @property
    def observed(self) -> Mapping[str, Any]:
        """Return all that `inject`, `observe` and `observe_undone` returned."""
        ...


class Evidence(Protocol):
    """A recorded run."""

    tape: Tape

    @property
    def coordinator(self) -> str | None:
        """The name of the node that merges; None: there is none."""
        ...

    @property
    def recorder(self) -> str:
        """The name under which merges, the steady state and the end of training are on the tape."""
        ...

    @property
    def learners(self) -> Sequence[str]:
        """The learners' names."""
        ...

    @property
    def end(self) -> float:
        """Up to where the run is judged, seconds since it began."""
        ...

    @property
    def merges(self) -> Sequence[Merge]:
        """Merges up to there."""
        ...

    def until(self, span: Any) -> float:
        """Return when an injection was over, or the end of what is judged."""
        ...

    def step_time(self, learner: str) -> float:
        """Nominal seconds of a learner's inner step; 0 without pace."""
        ...

    def pace(self, learner: str, start: float, end: float) -> float:
        """A learner's inner steps between two times as a share of the nominal ones."""
        ...


def exits(run: Evidence, targets: Sequence[str], on: Injection, grace: float = 0.0) -> dict[str, Exit]:
    """Return the exits that a fault brought about, by target; `grace`: the seconds that it left them to end."""
    exited: dict[str, Exit] = {}
    for event in run.tape.of(Exit, node="harness"):
        mine = event.target in targets and event.killed
        if mine and on.began - 0.1 <= event.t <= max(on.began + grace, on.ended or on.began) + NEAR_S:
            exited.setdefault(event.target, event)
    return exited


def statuses(run: Evidence, targets: Sequence[str], on: Injection, expected: Sequence[int]) -> Effect:
    """Return whether every target ended with one of these exit statuses."""
    exited = exits(run, targets, on)
    missing = [target for target in targets if target not in exited]
    if missing:
        return Effect(False, f"{', '.join(missing)} did not end")
    words = ", ".join(status_words(event.status) for event in exited.values())
    return Effect(all(event.status in expected for event in exited.values()), f"exit status {words}")


def status_words(status: int | None) -> str:
    """An exit status as people read it."""
    if status is None:
        return "not recorded"
    return signal.Signals(-status).name if status < 0 else str(status)


def between_contributions(run: Evidence, learner: str, start: float, end: float) -> float:
    """The longest time without a contribution that has a part in this span."""
    times = [merge.t for merge in run.merges if any(part.learner == learner for part in merge.contributions)]
    gaps = [later - earlier for earlier, later in pairwise([0.0, *times, run.end]) if earlier < end and later > start]
    return max(gaps, default=0.0)
