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
from pathlib import Path
from typing import TYPE_CHECKING

from diloco_chaos.harness.base.processes import end_all, with_token

if TYPE_CHECKING:  # imported when there is something to do: a reaper waits in a few megabytes
    from diloco_chaos.harness.record.undos import Undo

_TRIES, _AGAIN_S = 20, 3.0

NOT_UNDONE = "NOT UNDONE"
"""What a line begins with that tells of something left."""


def heal(path: Path) -> list[str]:
    """Undo what an undo log holds, end every process that carries its token, and remove it.

    Returns:
        What was done, in words; what could not be undone begins with `NOT_UNDONE`, and the undo log stays.

    Raises:
        UndoLogError: it is not an undo log.
    """
    from diloco_chaos.harness.record.undo_log import read
    owed = read(path)
    if owed is None:
        path.unlink(missing_ok=True)
        return []
    token = owed.opened.token
    did: list[str] = []
    _undo_all([undo for undo in owed.undos if not undo.last], token, did)
    ours = with_token(token)
    left = end_all(ours, token)
    if ours:
        did.append(f"{len(ours) - len(left)} processes ended: {', '.join(str(who.pid) for who in ours)}")
    did += [f"{NOT_UNDONE}: process {who.pid} does not end" for who in left]
    _undo_all([undo for undo in owed.undos if undo.last], token, did)
    if not any(line.startswith(NOT_UNDONE) for line in did):
        path.unlink(missing_ok=True)
    return did


def _undo_all(undos: Sequence[Undo], token: str, did: list[str]) -> None:
    for undo in undos:
        try:
            if undo.heal(token):
                did.append(f"{undo.cause}: {undo.describe()}" if undo.cause else undo.describe())
        except OSError as error:
            did.append(f"{NOT_UNDONE}: {undo.describe()}: {error}")
        except Exception as error:  # another package's code, which must keep nothing else from being undone
            did.append(f"{NOT_UNDONE}: {undo.describe()}: {type(error).__name__}: {error}")


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
        if not path.exists() or not any(line.startswith(NOT_UNDONE) for line in heal(path)):
            break
        time.sleep(_AGAIN_S)  # an engine that is just being restarted, say
    return 0


if __name__ == "__main__":
    sys.exit(main())
