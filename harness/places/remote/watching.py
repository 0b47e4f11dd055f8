"""Threads that look at something all through a run, beside everything else."""

from __future__ import annotations

import threading
from abc import abstractmethod
from contextlib import suppress


class Watching(threading.Thread):
    """Looks again and again until it is closed, from `start` on."""

    def __init__(self, name: str, every: float, passing: type[Exception]) -> None:
        """`name`: the thread's, as lists of threads show it. `every`: seconds between two looks. `passing`: what ends a
        look and not the watch: what was known stands."""
        super().__init__(daemon=True, name=name)
        self.failure: BaseException | None = None
        """Why it ended; None: it goes on, or was closed."""
        self._every, self._passing, self._over = every, passing, threading.Event()

    @abstractmethod
    def look(self) -> None:
        """Look once."""

    def run(self) -> None:
        """Look again and again until `close`."""
        try:
            while not self._over.wait(self._every):
                with suppress(self._passing):
                    self.look()
        except BaseException as error:
            self.failure = error

    def close(self) -> None:
        """Look no more; a look that hangs is not waited for for long."""
        self._over.set()
        with suppress(RuntimeError):  # it was not started, or ends itself
            self.join(2 * self._every)
