"""What every trainer's messages have in common, and the few that all of them share.

The header of every frame is one message; tensors travel as its payload. Which messages there are is a trainer's own
matter: a `Vocabulary` of its, in which the four of this module are.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, TypeAlias

from msgspec import Meta, Struct
from msgspec.msgpack import Decoder

from diloco_chaos.harness.record.tape.events import snake

Count = Annotated[int, Meta(ge=0)]


class Message(Struct, tag_field="type", tag=snake, forbid_unknown_fields=True, frozen=True, gc=False):
    """Base of all messages. Validated where they come in (`Vocabulary`), strict about unknown fields; who makes one is
    trusted, and nobody changes one. A subclass is called by its name in snake case on the wire, or says its `tag`."""

    replaceable: ClassVar[bool] = False
    """The next one says all that this one says: on a congested connection it is dropped."""

    @property
    def type(self) -> str:
        """Return what the message is called on the wire."""
        return str(self.__struct_config__.tag)


class Introduction(Message, tag="hello", frozen=True, kw_only=True):
    """A node's first frame on every connection; a trainer may derive one that says more."""

    token: str
    """The run's."""
    node: str
    incarnation: Count


class Probe(Message, frozen=True, kw_only=True):
    """A harness' question through a link: answered at once with as many bytes as asked for; it may carry a payload."""

    token: str
    reply_bytes: Annotated[int, Meta(ge=0, le=1 << 22)] = 0


class Echo(Message, frozen=True):
    """The answer to a Probe; the payload has the size that was asked for."""


class Refused(Message, frozen=True, kw_only=True):
    """The connection is closed for this reason."""

    reason: str
    final: bool = False
    """There is no use in coming back: this incarnation is superseded."""


class Farewell(Message, frozen=True):
    """A peer has read that training is over, and goes."""


Vocabulary: TypeAlias = Decoder[Any]
"""Of a union of messages, told apart by their `type`: what a node understands."""


def vocabulary(messages: Any) -> Vocabulary:
    """Return the decoder of these messages (`Hello | Welcome`), and of those that all trainers share."""
    return Decoder(messages | Probe | Echo | Refused | Farewell, strict=False)


SHARED = vocabulary(Introduction)
"""What is understood without knowing the trainer."""
