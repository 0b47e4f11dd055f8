"""Frames: a fixed prefix, a msgpack header (one message), a safetensors payload. Never pickle.

    magic 4 | header length 4 | payload length 4 | CRC-32 of header and payload 4 | header | payload    (big endian)
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

from msgspec import Struct
from msgspec.msgpack import Encoder, decode
from safetensors import SafetensorError
from safetensors.numpy import load as from_bytes
from safetensors.numpy import save as to_bytes

from diloco_chaos.harness.base.errors import first
from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.trainers.wire.messages import Message, Vocabulary

MAGIC = b"DLC1"
PREFIX = struct.Struct(">4sIII")
MAX_HEADER = 64 << 10
MAX_PAYLOAD = 64 << 20
_LONGEST_REASON = 200
_ENCODER = Encoder()


class FrameError(Exception):
    """Bytes that are not a frame, or a frame that breaks a limit; the connection can't be trusted any more."""


def encode(message: Message, tensors: Tensors | None = None) -> bytes:
    """One frame.

    Raises:
        FrameError: the payload is larger than any peer would take.
    """
    header = _ENCODER.encode(message)
    payload = to_bytes(tensors) if tensors else b""
    if len(payload) > MAX_PAYLOAD:
        raise FrameError(f"a payload of {len(payload)} bytes is over the limit of {MAX_PAYLOAD}")
    checksum = zlib.crc32(payload, zlib.crc32(header))
    return PREFIX.pack(MAGIC, len(header), len(payload), checksum) + header + payload


class Decoder:
    """Turns a stream of bytes into messages, whatever the pieces in which they come."""

    def __init__(self, understood: Vocabulary, arrived: Counter[str] | None = None) -> None:
        """`understood`: the messages there are; `arrived`: type of message -> bytes of whole frames, added to as they
        come."""
        self._buffer, self._understood = bytearray(), understood
        self._arrived = Counter[str]() if arrived is None else arrived

    def feed(self, data: bytes) -> Iterator[tuple[Message, Tensors]]:
        """Take bytes, yield the messages that they complete.

        Raises:
            FrameError: wrong magic, a length over the limit, a wrong checksum, or content that is not a message.
        """
        self._buffer += data
        while (size := self._frame_size()) and len(self._buffer) >= size:
            frame = memoryview(self._buffer[:size])
            del self._buffer[:size]
            message, tensors = _open(frame, self._understood)
            self._arrived[message.type] += size
            yield message, tensors

    def first(self, data: bytes) -> Message | None:
        """Take bytes; the message at their front as soon as its header is there, None before. Who may send no payload
        is told by it before there is one: nothing is held but a header, and what came with it.

        Raises:
            FrameError: as `feed`, but for the checksum, which is the whole frame's.
        """
        self._buffer += data
        if not self._frame_size():
            return None
        end = PREFIX.size + int(PREFIX.unpack_from(self._buffer)[1])
        return _message(self._buffer[PREFIX.size:end], self._understood) if len(self._buffer) >= end else None

    @property
    def pending(self) -> tuple[int, int]:
        """(bytes that arrived, bytes expected) of the frame that is under way; expected is 0 before its prefix."""
        try:
            return len(self._buffer), self._frame_size()
        except FrameError:
            return len(self._buffer), 0

    def _frame_size(self) -> int:
        """Size of the frame at the front of the buffer, 0 while its prefix is incomplete."""
        if not MAGIC.startswith(bytes(self._buffer[:4])):
            raise FrameError(f"not a frame: it begins with {bytes(self._buffer[:4])!r}")
        if len(self._buffer) < PREFIX.size:
            return 0
        _, header, payload, _ = PREFIX.unpack_from(self._buffer)
        if header > MAX_HEADER or payload > MAX_PAYLOAD:
            raise FrameError(f"oversized frame: header {header} bytes, payload {payload} bytes")
        return PREFIX.size + int(header) + int(payload)


def _open(frame: memoryview, understood: Vocabulary) -> tuple[Message, Tensors]:
    _, length, _, checksum = PREFIX.unpack_from(frame)
    body = frame[PREFIX.size:]
    if zlib.crc32(body) != checksum:
        raise FrameError("garbled frame: the checksum does not match")
    try:
        tensors: Tensors = from_bytes(bytes(body[length:])) if len(body) > length else {}
    except (ValueError, SafetensorError, KeyError, TypeError) as error:  # a KeyError: numbers that numpy does not have
        raise FrameError(f"not a message: {first(error)[:_LONGEST_REASON]}") from error
    return _message(body[:length], understood), tensors


def _message(header: bytearray | memoryview, understood: Vocabulary) -> Message:
    try:
        message: Message = understood.decode(header)
        return message
    except (ValueError, RecursionError) as error:
        raise FrameError(f"not a message{_of_type(header)}: {first(error)}"[:_LONGEST_REASON]) from error


class _Typed(Struct):
    type: str


def _of_type(header: bytearray | memoryview) -> str:
    with suppress(ValueError, RecursionError):
        return f" of type {decode(header, type=_Typed).type!r}"
    return ""
