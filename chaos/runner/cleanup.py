"""Who cleans up: every start heals what dead harnesses left, opens an undo log, and has a reaper watch over it."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from diloco_chaos.harness.places.registry import places
from diloco_chaos.harness.record.reaper import HealedRun, heal
from diloco_chaos.harness.record.undo_log import UndoLog, UndoLogError, in_charge, undo_logs_folder

_MOST_DEATHS, _PER_S = 5, 10.0
_HEAL_S = 5.0
_LOOK_S = 0.02


def clean(folder: Path | None = None) -> list[HealedRun]:
    """Heal what every undo log without a living owner holds; what became of it."""
    did: list[HealedRun] = []
    for path in sorted((folder or undo_logs_folder()).glob("*.jsonl")):
        try:
            with in_charge(path) as ours:
                did += heal(path) if ours else []  # else its harness or its reaper is alive
        except (UndoLogError, OSError) as error:
            did.append(HealedRun(str(error), undone=False))
    return did + _orphans()


def settled(harness: int) -> None:
    """Wait until nothing is owed for a harness that died, by its pid; its reaper needs a moment, and until then its
    nodes may still write. At most a few seconds: what is left then, `clean` undoes."""
    until = time.monotonic() + _HEAL_S
    while any(undo_logs_folder().glob(f"*-{harness}-*.jsonl")) and time.monotonic() < until:
        time.sleep(_LOOK_S)


def _orphans() -> list[HealedRun]:
    """Remove what an undo log that is gone, too, would have listed, and return what was removed."""
    did: list[HealedRun] = []
    for place in places():
        try:
            did += map(HealedRun, place.orphans_removed())
        except OSError as error:
            did.append(HealedRun(str(error), undone=False))
        except Exception as error:  # another package's code, which must keep nothing else from being undone
            did.append(HealedRun(f"on {place.name}: {type(error).__name__}: {error}", undone=False))
    return did


@contextmanager
def cleanup_guard() -> Iterator[UndoLog]:
    """An undo log with a reaper that watches over it; at the end nothing of either is left.

    Raises:
        UndoLogError: the undo log can't be written.
    """
    token = secrets.token_hex(16)
    undo_log = UndoLog(undo_logs_folder() / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{token[:8]}.jsonl", token)
    watch = _Watch(undo_log.path)
    try:
        yield undo_log
    finally:
        watch.over()
        undo_log.close()  # from here on the reaper does what is left to do, even where this process is interrupted
        watch.join(_HEAL_S)


class _Watch(threading.Thread):
    """Keeps a reaper alive: harness and reaper watch each other."""

    def __init__(self, undo_log: Path) -> None:
        super().__init__(daemon=True, name="reaper-watch")
        self._undo_log = undo_log
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._deaths: list[float] = []
        self._reaper = self._start_reaper()
        self.start()

    def run(self) -> None:
        """Start another one whenever it dies; give up where it can't live."""
        while True:
            self._reaper.wait()
            with self._lock:
                if self._over.is_set():
                    return
                self._deaths = [t for t in self._deaths if t > time.monotonic() - _PER_S] + [time.monotonic()]
                if len(self._deaths) > _MOST_DEATHS:
                    print("the reaper can't be kept alive; if this process is killed now, run `diloco-chaos clean`",
                          file=sys.stderr)
                    return
                self._reaper = self._start_reaper()

    def over(self) -> None:
        """The harness ends in peace: so does its reaper, once it has the undo log's lock and nothing is owed."""
        with self._lock:
            self._over.set()

    def _start_reaper(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", "diloco_chaos.harness.record.reaper", str(self._undo_log)],
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                start_new_session=True)
