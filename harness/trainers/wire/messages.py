"""What every trainer's messages have in common, and the few that all of them share.

The header of every frame is one message; tensors travel as its payload. Which messages there are is a trainer's own
matter: a `Vocabulary` of its, in which the four of this module are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter

Count = Annotated[int, Field(ge=0)]


class Message:
    """Base of all messages. Validated where they come in (`Vocabulary`), strict about unknown fields; who makes one is
    trusted, and nobody changes one. A subclass is a dataclass with slots, whose `type` is a Literal with a default."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    type: str
    """What it is called on the wire."""
    replaceable: ClassVar[bool] = False
    """The next one says all that this one says: on a congested connection it is dropped."""
    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Any]]


@dataclass(kw_only=True, slots=True)
class Introduction(Message):
    """A node's first frame on every connection; a trainer may derive one that says more."""

    type: Literal["hello"] = "hello"
    token: str
    """The run's."""
    node: str
    incarnation: Count


@dataclass(kw_only=True, slots=True)
class Probe(Message):
    """A harness' question through a link: answered at once with as many bytes as asked for; it may carry a payload."""

    type: Literal["probe"] = "probe"
    token: str
    reply_bytes: Annotated[int, Field(ge=0, le=1 << 22)] = 0


@dataclass(kw_only=True, slots=True)
class Echo(Message):
    """The answer to a Probe; the payload has the size that was asked for."""

    type: Literal["echo"] = "echo"


@dataclass(kw_only=True, slots=True)
class Refused(Message):
    """The connection is closed for this reason."""

    type: Literal["refused"] = "refused"
    reason: str
    final: bool = False
    """There is no use in coming back: this incarnation is superseded."""


@dataclass(kw_only=True, slots=True)
class Farewell(Message):
    """A peer has read that training is over, and goes."""

    type: Literal["farewell"] = "farewell"


Vocabulary: TypeAlias = TypeAdapter[Any]
"""Of a union of messages, told apart by their `type`: what a node understands."""


def vocabulary(messages: Any) -> Vocabulary:
    """Of these messages (`Hello | Welcome`), and of those that all trainers share."""
    return TypeAdapter(Annotated[messages | Probe | Echo | Refused | Farewell, Field(discriminator="type")])


SHARED = vocabulary(Introduction)
"""What is understood without knowing the trainer."""
