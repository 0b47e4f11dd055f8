"""What a place makes of one start of a node: a process, a container, one elsewhere, a simulated one.

Places differ in how it is signalled and how its end is noticed; what a kill, a restart or a pause means does not:
`diloco_chaos.harness.places.nodes.incarnation`.
"""

from __future__ import annotations

import resource
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any


class Process(ABC):
    """One start of a node, as its place makes it; what is done to it after its end has no effect."""

    @property
    @abstractmethod
    def pid(self) -> int:
        """Return its pid as this machine knows it; 0: it is none of this machine's. May wait for it to be there."""

    @abstractmethod
    def send(self, number: signal.Signals) -> None:
        """Signal it; nothing happens where it is gone."""

    @abstractmethod
    def ended(self) -> int | None:
        """Return its exit status, negative: the signal that ended it; None while it is there."""

    @abstractmethod
    def freeze(self) -> None:
        """Stop it where it is."""

    @abstractmethod
    def thaw(self) -> None:
        """Let it go on, also where it had stopped itself."""

    @abstractmethod
    def throttle(self, share: float, spread: float, seed: int) -> None:
        """Let it run only this share of the time, varied by up to `spread`; nothing holds it back yet."""

    @abstractmethod
    def unthrottle(self) -> None:
        """Let it run all the time again; harmless where it does, or is gone."""

    @property
    @abstractmethod
    def throttled(self) -> bool:
        """Return whether it is held back now."""

    @abstractmethod
    def stands_still(self) -> bool:
        """Return whether something keeps it from running."""

    @abstractmethod
    def reap(self, until: float) -> None:
        """The run is over: wait for its end until then (seconds, as `time.monotonic` counts them), and kill it."""

    # -- what most have in common --------------------------------------------------------------------------------------

    @property
    def known_pid(self) -> int | None:
        """Return its pid, without waiting for it; None: it has none (yet)."""
        return self.pid or None

    @property
    def held(self) -> bool:
        """Return whether what holds it back has stopped it for the moment."""
        return False

    @property
    def reachable(self) -> bool:
        """Return whether it can be asked to end."""
        return True

    def is_gone(self) -> bool:
        """Return whether it is not there any more, though its end may still have to be seen."""
        return self.ended() is not None

    def file_limits(self, limits: tuple[int, int] | None) -> tuple[int, int]:
        """RLIMIT_FSIZE, soft and hard, set where `limits` are given; as it was before.

        Raises:
            ProcessLookupError: it is gone.
        """
        if limits is None:
            return resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
        return resource.prlimit(self.pid, resource.RLIMIT_FSIZE, limits)

    def over(self, expected: bool) -> None:  # noqa: B027 - most leave nothing
        """Its end was seen: put away what is left of it. `expected`: a fault has brought it about."""

    def details(self) -> Mapping[str, Any]:
        """Return what else is known of its end, for the tape."""
        return {}

    def whereabouts(self) -> Mapping[str, Any]:
        """Return where it was started, for the tape."""
        return {}
