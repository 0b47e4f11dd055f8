"""Learners must not come back over and over: each hello costs the syncer a whole model."""

from __future__ import annotations

from collections import Counter

from pydantic import BaseModel, ConfigDict, Field

from diloco_chaos import Finding, History, Unknown, at_most, check, events


class Reconnects(BaseModel):
    """What a scenario says: `checks: {reconnects: {at_most: 2}}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    at_most: int = Field(1, ge=0)
    """Hellos of one learner after the steady state."""


@check(Reconnects)
def reconnects(history: History, bound: Reconnects) -> Finding:
    """No learner connects again more often than it may."""
    if history.zero is None:
        raise Unknown("the cluster never was steady")
    again = Counter(event.learner for event in history.tape.of(events.Hello, node=history.recorder)
                    if event.t > history.zero)
    learner, most = again.most_common(1)[0] if again else ("nobody", 0)
    return Finding(most <= bound.at_most, f"{most} by {learner}", at_most(bound.at_most),
                   [f"{name} connected again {count} times" for name, count in again.most_common(3)])
