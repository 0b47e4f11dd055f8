"""What a trainer calls to say how far it is: `from chaos import progress; progress.round(7, loss=0.3)`.

Outside a run of `diloco-chaos` it does nothing. It never raises, and waits for nobody: a line is appended to a file in
the run's folder. It needs nothing but Python. A scenario reads it with `progress: [{node: replica, written: true}]`.
"""

from __future__ import annotations

import json
import os
import time

from harness.core.programs import PROGRESS_FILE

_APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def round(number: int, *, loss: float | None = None, samples: int | None = None, members: int | None = None) -> None:
    """A round is finished.

    Args:
        number: of the round, as this trainer counts.
        loss: in training, if it is known.
        samples: how many this worker took in the round.
        members: how many workers took part in it.
    """
    path = os.environ.get(PROGRESS_FILE)
    if not path:
        return
    said = {"round": number, "loss": loss, "samples": samples, "members": members, "time": time.time()}
    try:
        line = json.dumps({key: _plain(value) for key, value in said.items() if value is not None}) + "\n"
        file = os.open(path, _APPENDING, 0o644)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)
    except Exception:  # noqa: S110 - whatever it is, training is more important
        pass


def _plain(value: object) -> float:
    """A number of Python's: tensors and numpy's numbers are made one."""
    return value if isinstance(value, int | float) else float(value)  # type: ignore[arg-type]
