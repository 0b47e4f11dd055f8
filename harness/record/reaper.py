"""Heals what a harness left behind: `python -m diloco_chaos.harness.record.reaper UNDO_LOG` waits for its harness to
die, and undoes.

A process of its own, in a session of its own, so that neither Ctrl-C nor a kill -9 of the harness reaches it. `heal` is
what `diloco-chaos clean` and the next start do, too. Nothing is touched that does not carry the run's token.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from diloco_chaos.harness.base.processes import end_all, with_token

if TYPE_CHECKING:  # imported when there is something to do: a reaper waits in a few megabytes
    from diloco_chaos.harness.record.undos import Undo

_TRIES, _AGAIN_S = 20, 3.0


@dataclass(frozen=True)
class HealedRun:
    """The outcome for something that a dead harness left."""

    words: str
    undone: bool = True

    def __str__(self) -> str:
        return self.words if self.undone else f"NOT UNDONE: {self.words}"


def heal(path: Path) -> list[HealedRun]:
    """Undo what an undo log holds, end every process that carries its token, and remove it.

    Returns:
        What was done; where something could not be undone, the undo log stays.

    Raises:
        UndoLogError: it is not an undo log.
    """
    from diloco_chaos.harness.record.undo_log import read
    owed = read(path)
    if owed is None:
        path.unlink(missing_ok=True)
        return []
    token = owed.opened.token
    did: list[HealedRun] = []
    _undo_all([undo for undo in owed.undos if not undo.last], token, did)
    ours = with_token(token)
    left = end_all(ours, token)
    if ours:
        pids = ", ".join(str(process.pid) for process in ours)
        did.append(HealedRun(f"{len(ours) - len(left)} processes ended: {pids}"))
    did += [HealedRun(f"process {process.pid} does not end", undone=False) for process in left]
    _undo_all([undo for undo in owed.undos if undo.last], token, did)
    if all(healed.undone for healed in did):
        path.unlink(missing_ok=True)
    return did


def _undo_all(undos: Sequence[Undo], token: str, did: list[HealedRun]) -> None:
    for undo in undos:
        try:
            if undo.heal(token):
                did.append(HealedRun(f"{undo.cause}: {undo.describe()}" if undo.cause else undo.describe()))
        except OSError as error:
            did.append(HealedRun(f"{undo.describe()}: {error}", undone=False))
        except Exception as error:  # another package's code, which must keep nothing else from being undone
            did.append(HealedRun(f"{undo.describe()}: {type(error).__name__}: {error}", undone=False))


def main() -> int:
    """Wait until the undo log's harness is gone; heal. A harness that ends in peace ends its reaper, too."""
    import fcntl
    path = Path(sys.argv[1])
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    fcntl.flock(file, fcntl.LOCK_EX)  # waits as long as the harness lives, whatever becomes of it
    for _ in range(_TRIES):
        if not path.exists() or all(healed.undone for healed in heal(path)):
            break
        time.sleep(_AGAIN_S)  # an engine that is just being restarted, say
    return 0


if __name__ == "__main__":
    sys.exit(main())
