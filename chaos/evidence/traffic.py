"""What crossed the syncer's sockets: bytes by direction and by purpose, from its tape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.harness.base.tensors import Numbers
from diloco_chaos.harness.record.tape.events import Initial, Resumed, Traffic

_HARNESS = ("probe", "echo")
"""Messages that are not training's, but the harness' questions through the links."""


@dataclass(frozen=True)
class Crossed:
    """Whole frames of all incarnations of the syncer, as far as they told: type of message -> bytes."""

    received: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    """Trained on meanwhile. A syncer that was killed did not tell of its last moments: neither their bytes nor their
    tokens count."""

    @property
    def a_token(self) -> float:
        """Bytes for every token that was trained on."""
        return self.total / self.tokens if self.tokens else 0.0

    @property
    def total(self) -> int:
        """Both ways, without what the harness itself asks through the links."""
        return sum(count for of in (self.received, self.sent) for name, count in of.items() if name not in _HARNESS)

    @property
    def purposes(self) -> list[str]:
        """Types of messages, the one with the most bytes first."""
        return [name for name, _ in (self.received + self.sent).most_common()]


def _within(t: Numbers, windows: Iterable[tuple[float, float]]) -> NDArray[np.bool_]:
    """Return for each of these moments whether it is in one of the windows."""
    inside = np.zeros(len(t), bool)
    for start, end in windows:
        inside |= (start <= t) & (t <= end)
    return inside


def crossed(history: History) -> Crossed:
    """Return what crossed the links in one run. A syncer records its totals at the steady state, with each point of the
    curve, and at the end."""
    last = {event.inc: event for event in history.tape.of(Traffic, node=history.recorder)}
    received, sent = Counter[str](), Counter[str]()
    for event in last.values():
        received.update(event.received)
        sent.update(event.sent)
    begun = {event.inc: event.t for event in history.tape.of(Initial, Resumed, node=history.recorder)}
    spans = [(begun.get(number, 0.0), event.t) for number, event in last.items()]
    tokens = sum(sum(steps.where(_within(steps.t, spans)).plain("tokens")) for steps in history.steps.values())
    return Crossed(received, sent, tokens)
