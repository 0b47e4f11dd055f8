"""How many bytes a message takes on the wire, without writing it each time."""

from __future__ import annotations

from harness.tensors import Tensors
from harness.wire.frames import encode
from harness.wire.messages import Message


class Sizes:
    """Remembers one size per type of message, fragment and kind of payload: what differs between two of them is a few
    digits."""

    def __init__(self) -> None:
        self._known: dict[tuple[type, int, str], int] = {}

    def of(self, message: Message, tensors: Tensors) -> int:
        """Bytes of the frame."""
        key = (type(message), getattr(message, "fragment", -1), next(iter(tensors), ""))
        size = self._known.get(key)
        if size is None:
            size = self._known[key] = len(encode(message, tensors))
        return size
