"""A duty cycle: lets a process run only a share of the time, by SIGSTOP and SIGCONT in turn."""

from __future__ import annotations

import random
import signal
import subprocess
import threading

PERIOD_S = 1.6
"""Long against a step, so that whole steps fit into its running share."""
_LEAST, _MOST = 0.02, 0.98


class DutyCycle(threading.Thread):
    """Keeps its own time, so that the cycle stays exact while the harness is busy with something else.

    It begins with the part in which the process stands still. A process that ends meanwhile is left alone.
    """

    def __init__(self, process: subprocess.Popen[bytes], share: float, spread: float = 0.0, seed: int = 0) -> None:
        """`share` of each period the process runs, between 0 and 1 (both exclusive), drawn anew for each period from
        share ± `spread`."""
        super().__init__(daemon=True, name=f"duty-cycle-{process.pid}")
        self.paused = False
        self._process, self._share, self._spread = process, share, spread
        self._random = random.Random(seed)
        self._over = threading.Event()
        self.start()

    def run(self) -> None:
        """Stop and continue until it is over; leaves the process running."""
        while not self._over.is_set():
            share = min(max(self._share + self._random.uniform(-self._spread, self._spread), _LEAST), _MOST)
            self._send(signal.SIGSTOP)
            self._over.wait(PERIOD_S * (1 - share))
            self._send(signal.SIGCONT)
            self._over.wait(PERIOD_S * share)

    def end(self) -> None:
        """Full speed again, when this returns."""
        self._over.set()
        self.join()
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)  # does nothing once the process was waited for
        self.paused = number == signal.SIGSTOP
