"""Lets a process run only a share of the time: by SIGSTOP and SIGCONT in turn, or by a quota that is drawn anew."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable
from typing import Protocol

PERIOD_S = 1.6
"""Long against a step, so that whole steps fit into its running share."""
_LEAST, _MOST = 0.02, 0.98


class Signalled(Protocol):
    """Processes that can be stopped and continued; `subprocess.Popen` for one."""

    @property
    def pid(self) -> int:
        """Return the pid of the process, or of the first of several."""
        ...

    def send_signal(self, sig: int) -> None:
        """Signal it; nothing happens where it is gone."""
        ...


def shares(share: float, spread: float, seed: int) -> Callable[[], tuple[float, float]]:
    """Each call gives the next period: seconds to stand still, then seconds to run. The share is drawn anew each time
    from share ± `spread`."""
    chance = random.Random(seed)

    def parts() -> tuple[float, float]:
        drawn = min(max(share + chance.uniform(-spread, spread), _LEAST), _MOST)
        return PERIOD_S * (1 - drawn), PERIOD_S * drawn
    return parts


class DutyCycle(threading.Thread):
    """Keeps its own time, so that the cycle stays exact while the harness is busy with something else.

    It begins with the part in which the process stands still. A process that ends meanwhile is left alone.
    """

    def __init__(self, process: Signalled, share: float, spread: float = 0.0, seed: int = 0) -> None:
        """`share` of each period the process runs, between 0 and 1 (both exclusive), drawn anew for each period from
        share ± `spread`."""
        super().__init__(daemon=True, name=f"duty-cycle-{process.pid}")
        self.paused = False
        self._process = process
        self._parts = shares(share, spread, seed)
        self._over = threading.Event()
        self.start()

    def run(self) -> None:
        """Stop and continue until it is over; leaves the process running."""
        while not self._over.is_set():
            still, running = self._parts()
            self._send(signal.SIGSTOP)
            self._over.wait(still)
            self._send(signal.SIGCONT)
            self._over.wait(running)

    def end(self) -> None:
        """End the cycle: the process has full speed again when this returns."""
        self._over.set()
        self.join()
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)  # does nothing once the process was waited for
        self.paused = number == signal.SIGSTOP


class QuotaCycle(threading.Thread):
    """Draws the share of a straggler anew from period to period, where it varies."""

    def __init__(self, set_share: Callable[[float], None], share: float, spread: float, seed: int) -> None:
        super().__init__(daemon=True, name="quota-cycle")
        self._set, self._share, self._spread = set_share, share, spread
        self._random = random.Random(seed)
        self._over = threading.Event()
        self._set(self._drawn())
        if spread:
            self.start()

    def run(self) -> None:
        """Draw the share anew, period after period, until it is over."""
        while not self._over.wait(PERIOD_S):
            self._set(self._drawn())

    def end(self) -> None:
        """End the cycle: no share is set any more once this returns."""
        self._over.set()
        if self._spread:
            self.join()

    def _drawn(self) -> float:
        return self._share + self._random.uniform(-self._spread, self._spread)
