"""What crossed the syncer's sockets: bytes by direction and by purpose, from its tape."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.scenario.model import SYNCER
from diloco_chaos.harness.record.tape.packed import times, values

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


def crossed(history: History) -> Crossed:
    """Of one run. A syncer tells its totals at the steady state, with each point of the curve, and at the end."""
    last = {event.incarnation: event for event in history.tape.of("traffic", node=SYNCER)}
    received, sent = Counter[str](), Counter[str]()
    for event in last.values():
        received.update(event["received"])
        sent.update(event["sent"])
    begun = {event.incarnation: event.t for event in history.tape.of("initial", "resumed", node=SYNCER)}
    told = [(begun.get(number, 0.0), event.t) for number, event in last.items()]
    tokens = sum(count for steps in history.steps.values()
                 for t, count in zip(times(steps), values(steps, "tokens"), strict=True)
                 if any(start <= t <= end for start, end in told))
    return Crossed(received, sent, tokens)
