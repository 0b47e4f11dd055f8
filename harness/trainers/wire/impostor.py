"""What a trainer brings so that a fault can speak to its coordinator in a worker's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from diloco_chaos.harness.base.tensors import Tensors
    from diloco_chaos.harness.trainers.wire.messages import Message, Vocabulary

Content = Literal["nan", "inf", "shape"]
"""Of an outer gradient."""
About = Literal["step", "tokens", "position", "version"]
"""What a report lies about."""


class Impostor(Protocol):
    """Takes a learner's place at the syncer. A state machine without I/O."""

    sent: int
    """Messages that the syncer has taken. Others may have been lost, because the real learner took its place again."""

    @property
    def messages(self) -> Vocabulary:
        """Return the messages that it understands."""
        ...

    def hello(self) -> Message:
        """Return the message that it sends first on every connection."""
        ...

    def on_message(self, message: Message, tensors: Tensors) -> list[tuple[Message, Tensors]]:
        """A frame came; what it says to that."""
        ...

    def pause(self) -> float:
        """Seconds until it comes back."""
        ...
