"""What a core asks its driver to do. Cores do no I/O: they return these, and the driver carries them out in order. An
event of the tape is an effect, too: the driver records it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.record.tape.events import Event, Upload
from diloco_chaos.harness.trainers.wire.messages import Message

_NONE: Tensors = {}


class Send(NamedTuple):
    """Send a message; `to` is a connection of the syncer, None a learner's only one."""

    message: Message
    tensors: Tensors = _NONE
    to: int | None = None
    half: str = ""
    """A failpoint in the middle of this frame."""
    sent: Upload | None = None
    """Event to record once the frame is written; its `bytes` are the frame's."""


class Close(NamedTuple):
    """Close a connection and forget it."""

    to: int | None = None
    reason: str = ""
    final: bool = False
    """Whoever is there shall not come back: a newer incarnation has taken its place."""


class Timer(NamedTuple):
    """Call `on_timer(key)` at this time, in seconds on the driver's clock; one timer per key, the newest counts."""

    key: str
    at: float


class Working(NamedTuple):
    """The values from which something on the tape was computed: kept, as far as there is room, so that it can be
    computed again."""

    of: str
    """The event."""
    fields: dict[str, Any]
    """What it is known by among the node's events of this name."""
    parts: Mapping[str, Tensors]
    """Each by its role. Nobody changes these arrays."""


class Commit(NamedTuple):
    """Save to stable storage; the effects behind it happen only once that has succeeded."""

    name: str
    tensors: Tensors
    meta: dict[str, Any]


class Save(NamedTuple):
    """Write this node's part of a checkpoint beside everything else; call `on_saved(checkpoint)` once it is safe."""

    checkpoint: int
    tensors: Tensors
    meta: dict[str, Any]
    keep: int = 0
    """Older checkpoints than this may go; 0: none."""


class Snapshot(NamedTuple):
    """Write the whole model for the loss curve."""

    tensors: Tensors
    meta: dict[str, Any]


class AtFailpoint(NamedTuple):
    """A named point of the protocol at which the driver stops the process if it was told so."""

    point: str


class Compute(NamedTuple):
    """Run one inner step (or one gradient) away from the I/O, then call `on_computed`."""

    position: int
    """Batch of the learner's shard."""
    lr: float


class Stop(NamedTuple):
    """Training is over for this node."""

    reason: str


Effect = Send | Close | Timer | Event | Working | Commit | Save | Snapshot | AtFailpoint | Compute | Stop
