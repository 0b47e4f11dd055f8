"""What crossed the syncer's sockets: bytes by direction and by purpose, from its tape."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from chaos.history import History
from chaos.scenario import SYNCER


@dataclass(frozen=True)
class Crossed:
    """Whole frames of all incarnations of the syncer, as far as they told: type of message -> bytes."""

    received: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """Both ways."""
        return self.received.total() + self.sent.total()

    @property
    def purposes(self) -> list[str]:
        """Types of messages, the one with the most bytes first."""
        return [name for name, _ in (self.received + self.sent).most_common()]


def crossed(history: History) -> Crossed:
    """Of one run. A syncer tells its totals at every snapshot and at the end."""
    last = {event.incarnation: event for event in history.tape.of("traffic", node=SYNCER)}
    found = Crossed()
    for event in last.values():
        found.received.update(event["received"])
        found.sent.update(event["sent"])
    return found
