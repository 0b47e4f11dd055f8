"""How many bytes a message takes on the wire, without writing it each time."""

from __future__ import annotations

from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.trainers.wire.frames import encode
from diloco_chaos.harness.trainers.wire.messages import Message


class Sizes:
    """Remembers one size per type of message, fragment and kind of payload: what differs between two of them is a few
    digits."""

    def __init__(self, payload: float = 1.0) -> None:
        """`payload`: bytes on the wire for each byte of a tensor."""
        self._payload = payload
        self._known: dict[tuple[type, int, str], int] = {}

    def of(self, message: Message, tensors: Tensors) -> int:
        """Bytes of the frame."""
        key = (type(message), getattr(message, "fragment", -1), next(iter(tensors), ""))
        size = self._known.get(key)
        if size is None:
            more = (self._payload - 1) * sum(tensor.nbytes for tensor in tensors.values())
            size = self._known[key] = len(encode(message, tensors)) + round(more)
        return size
