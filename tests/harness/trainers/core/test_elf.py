"""Which programs are linked statically."""

import struct
import sys

import pytest

from diloco_chaos.harness.trainers.core.elf import is_static

LOAD, INTERP = 1, 3


def program(*kinds, bits=64, order="<"):
    """A program's file with these headers."""
    size = 56 if bits == 64 else 32
    head = b"\x7fELF" + bytes([bits // 32, 1 if order == "<" else 2])
    start = 64
    offset = (struct.pack(order + "Q", start).rjust(40, b"\0")[6:] if bits == 64 else
              struct.pack(order + "I", start).rjust(32, b"\0")[6:])
    sizes_at = 54 if bits == 64 else 42
    whole = (head + offset).ljust(sizes_at, b"\0") + struct.pack(order + "HH", size, len(kinds))
    return whole.ljust(start, b"\0") + b"".join(struct.pack(order + "I", kind).ljust(size, b"\0") for kind in kinds)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("order", ["<", ">"])
def test_a_program_without_an_interpreter_is_static(tmp_path, bits, order):
    (tmp_path / "static").write_bytes(program(LOAD, LOAD, bits=bits, order=order))
    (tmp_path / "dynamic").write_bytes(program(LOAD, INTERP, bits=bits, order=order))
    assert is_static(tmp_path / "static")
    assert not is_static(tmp_path / "dynamic")


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01" + b"\0" * 60, bytes(99)])
def test_what_is_no_program_is_none_that_is_static(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    assert not is_static(tmp_path / "file")
    assert not is_static(tmp_path / "nowhere")


def test_this_interpreter_says_which_it_is():
    assert isinstance(is_static(sys.executable), bool)
