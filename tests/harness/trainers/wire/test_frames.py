"""Frames: whatever the pieces in which bytes come, the messages are the same; what is no frame is refused."""

import math
import zlib
from typing import get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack
from msgspec.structs import fields

from diloco_chaos.harness.trainer.protocol import messages as trainers
from diloco_chaos.harness.trainer.protocol.messages import (
    MESSAGES,
    Broadcast,
    Clock,
    Hello,
    OuterGradient,
    Report,
    Request,
)
from diloco_chaos.harness.trainers.wire import messages as shared
from diloco_chaos.harness.trainers.wire.frames import MAGIC, PREFIX, Decoder, FrameError, encode
from diloco_chaos.harness.trainers.wire.messages import Message

COUNTS = st.integers(0, 2**40)
SOME = st.one_of(
    st.builds(Clock, step=COUNTS, tokens=COUNTS, steady=st.booleans()),
    st.builds(Request, round=COUNTS, fragment=COUNTS),
    st.builds(Broadcast, fragment=COUNTS, version=COUNTS, digest=st.text(max_size=40)),
    st.builds(Report, step=COUNTS, tokens=COUNTS, position=COUNTS,
              fragments=st.lists(st.tuples(st.integers(-1, 9), COUNTS, COUNTS), max_size=9)),
    st.builds(OuterGradient, round=COUNTS, fragment=COUNTS, base_version=COUNTS, first_step=COUNTS, last_step=COUNTS,
              steps=COUNTS, tokens=COUNTS, digest=st.text(max_size=40)))
TENSORS = st.dictionaries(st.text("ab.", min_size=1, max_size=5),
                          st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=20), max_size=3)


def arrays(lists):
    return {name: np.array(values, np.float32) for name, values in lists.items()}


@given(st.lists(st.tuples(SOME, TENSORS), max_size=5), st.lists(st.integers(1, 200), min_size=1, max_size=30))
def test_any_split_of_the_stream_gives_the_same_messages(items, sizes):
    stream = b"".join(encode(message, arrays(tensors)) for message, tensors in items)
    decoder, got, at, turn = Decoder(MESSAGES), [], 0, 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        got += list(decoder.feed(stream[at:at + size]))
        at, turn = at + size, turn + 1
    assert [message for message, _ in got] == [message for message, _ in items]
    for (_, tensors), (_, expected) in zip(got, items, strict=True):
        assert tensors.keys() == expected.keys()
        assert all(np.array_equal(tensors[name], np.array(values, np.float32)) for name, values in expected.items())
    assert decoder.pending == (0, 0)


CLOCK = {"type": "clock", "step": 1, "tokens": 1, "steady": False}
SAMPLES = {int: 3, str: "x", bool: True, float: 0.5, list[int]: [1, 2], list[str]: ["y"],
           list[tuple[int, int, int]]: [(1, 2, 3)], tuple[float, float] | None: (0.5, 0.25),
           list[tuple[float, float]]: [(0.5, 0.25)]}


def kinds():
    """Every message that this trainer's nodes understand."""
    found = (vars(trainers) | vars(shared)).values()
    return [kind for kind in found if isinstance(kind, type) and issubclass(kind, Message)
            and kind not in (Message, shared.Introduction)]


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_of_message_comes_out_as_it_went_in(kind):
    hints = get_type_hints(kind)
    message = kind(**{field.name: SAMPLES[hints[field.name]] for field in fields(kind)})
    ((got, _),) = Decoder(MESSAGES).feed(encode(message))
    assert got == message


def test_half_a_frame_is_pending_with_its_size():
    frame = encode(Clock(step=1, tokens=2, steady=False), {"x": np.zeros(100, np.float32)})
    decoder = Decoder(MESSAGES)
    assert list(decoder.feed(frame[:len(frame) // 2])) == []
    assert decoder.pending == (len(frame) // 2, len(frame))


@given(st.binary(min_size=4, max_size=300))
def test_bytes_that_are_no_frame_are_refused(data):
    decoder = Decoder(MESSAGES)
    if data.startswith(MAGIC):
        return
    with pytest.raises(FrameError, match="not a frame"):
        list(decoder.feed(data))


@given(st.data())
def test_one_changed_byte_never_passes_as_a_message(data):
    frame = bytearray(encode(Hello(token="t", node="learner-1", incarnation=0, step=0, tokens=0, position=0,
                                   versions=[], steps=[]), {"x": np.arange(9, dtype=np.float32)}))
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at] ^= data.draw(st.integers(1, 255))
    decoder = Decoder(MESSAGES)
    try:
        got = list(decoder.feed(bytes(frame)))
    except FrameError:
        return
    assert got == []  # a longer length: it waits for bytes that never come


def test_a_length_over_the_limit_is_refused_before_anything_is_read():
    with pytest.raises(FrameError, match="oversized"):
        list(Decoder(MESSAGES).feed(PREFIX.pack(MAGIC, 10, 1 << 31, 0)))


@pytest.mark.parametrize("header", [
    b"", msgpack.encode([1, 2]), msgpack.encode({"type": "no such"}), msgpack.encode({"type": "clock", "step": -1}),
    msgpack.encode({"type": "clock", "step": 1, "tokens": 1, "steady": False, "more": 1}), b"\xc1",
    b"\x81\xa1x" + b"\x91" * 60_000, b"\x82\xa4type\xa6finish\xa1\xff\1",
    b"\x82\xa4type\xa8donation\xa8versions\xdd\xff\xff\xff\xff"])
def test_a_header_that_is_no_message_is_refused(header):
    with pytest.raises(FrameError, match="not a message"):
        list(Decoder(MESSAGES).feed(frame(header)))


def frame(header):
    """Any header under a prefix that is right."""
    return PREFIX.pack(MAGIC, len(header), 0, zlib.crc32(header)) + header


@pytest.mark.parametrize(("wrong", "why"), [
    ({"step": -1}, "clock.*`int` >= 0.*step"), ({"step": 1.5}, "clock.*step"), ({"step": "many"}, "clock.*step"),
    ({"sent": math.nan}, "clock.*sent"), ({"sent": math.inf}, "clock.*sent"), ({"sent": -1.0}, "clock.*sent"),
    ({"more": 1}, "clock.*more"), ({"type": "no such"}, "no such")])
def test_a_refusal_names_the_message_and_what_is_wrong_with_it(wrong, why):
    with pytest.raises(FrameError, match=why):
        list(Decoder(MESSAGES).feed(frame(msgpack.encode(CLOCK | wrong))))


def test_a_whole_number_is_a_count_whatever_it_is_written_as():
    ((message, _),) = Decoder(MESSAGES).feed(frame(msgpack.encode(CLOCK | {"step": 1.0, "tokens": "1"})))
    assert message == Clock(step=1, tokens=1, steady=False)


def test_a_payload_that_is_no_tensors_is_refused():
    header = msgpack.encode(CLOCK)
    body = header + b"garbage!"
    with pytest.raises(FrameError, match="not a message"):
        list(Decoder(MESSAGES).feed(PREFIX.pack(MAGIC, len(header), 8, zlib.crc32(body)) + body))
