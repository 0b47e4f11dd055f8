"""What a trainer calls to report its progress, and to name points of its own at which faults can hit it.

    from diloco_chaos import progress
    progress.round(7, loss=0.3)
    progress.hold("checkpoint.before_rename")

Outside a run of `diloco-chaos` both do nothing. They never raise, and never wait: a line is appended to a file in the
run's folder. Nothing but Python is needed. A scenario reads the file with `progress: [{node: replica, written: true}]`.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from diloco_chaos.harness.trainers.core.programs import FAILPOINTS, PROGRESS_FILE, STEADY

_APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def round(number: int, *, loss: float | None = None, samples: int | Sequence[int] | None = None,
          members: int | None = None, batch: int | Sequence[int] | None = None,
          digest: str | int | None = None, rank: str | int | None = None) -> None:
    """A round is finished.

    Args:
        number: of the round, as this trainer counts.
        loss: in training, if it is known.
        samples: how many this worker took in the round, or which: `range(64, 128)`, `[3, 17, 4]`.
        members: how many workers took part in it.
        batch: number of the batch that was trained on, or of several.
        digest: of the weights after it, `hashlib.sha256(...).hexdigest()`: what members of a round have in common.
        rank: of this process, where its node has several that train: each is a member of its own.
    """
    said = {"round": number, "loss": loss, "samples": samples, "members": members, "batch": batch, "digest": digest,
            "rank": rank, "time": time.time()}
    with suppress(Exception):  # whatever it is, training is more important
        _append(os.environ.get(PROGRESS_FILE, ""),
                json.dumps({key: _plain(value) for key, value in said.items() if value is not None}))


def hold(point: str) -> None:
    """Stand still here if a fault of the plan waits for it, until that fault has ended this process or lets it go on.

    Passes are counted from the steady state, over all processes that the node has had. Where nothing waits for this
    point it costs a look at the environment.

    Args:
        point: its name, as in `when: {node: replica-1, failpoint: checkpoint.before_rename, count: 3}`.
    """
    with suppress(Exception):
        wanted = dict(entry.rpartition(":")[::2] for entry in os.environ.get(FAILPOINTS, "").split(",") if entry)
        path = os.environ.get(PROGRESS_FILE, "")
        if point not in wanted or not os.path.exists(os.path.join(os.path.dirname(path), STEADY)):
            return
        node = path.rpartition(".")[0].rpartition(".")[0]  # NAME of NAME.INCARNATION.jsonl
        _append(f"{node}.passed", point)
        with open(f"{node}.passed", encoding="utf-8") as file:
            count = file.read().splitlines().count(point)
        if count > int(wanted[point]):
            return
        stops = count == int(wanted[point])
        _append(path, json.dumps({"failpoint": point, "count": count, "stops": stops}))
        if stops:
            os.kill(os.getpid(), signal.SIGSTOP)


def _append(path: str, line: str) -> None:
    """Append the line to a file of the run; outside of a run, do nothing."""
    if not path:
        return
    file = os.open(path, _APPENDING, 0o644)
    try:
        os.write(file, line.encode() + b"\n")
    finally:
        os.close(file)


def _plain(value: object) -> object:
    """Python's own numbers of what tensors, numpy's numbers and sequences hold; a range as text."""
    if isinstance(value, range) and value.step == 1 and value:
        return f"{value[0]}-{value[-1]}"
    if isinstance(value, int | float | str):
        return value
    if hasattr(value, "tolist"):
        return value.tolist()
    return [_plain(item) for item in value] if isinstance(value, Iterable) else float(value)  # type: ignore[arg-type]
