"""Fewer bits for what travels: bfloat16, or integers of 8 or 4 bits with one scale for every block of 64 values.

arXiv 2604.21428 finds int4 outer gradients nearly lossless. A block never reaches over two tensors; its scale is its
largest absolute value over the largest integer, as the nearest bfloat16: rounded up it would make all a little longer.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from diloco_chaos.harness.base import tensors as arrays
from diloco_chaos.harness.base.tensors import Array, Tensors, np
from diloco_chaos.harness.trainer.algorithm.fragments import Shape

if TYPE_CHECKING:  # see harness/base/tensors.py
    from numpy.typing import NDArray

Precision = Literal["float32", "bfloat16", "int8", "int4"]
BLOCK = 64
"""Values that share a scale."""
_CODES, _SCALES = "codes", "scales"
_LARGEST = {"int8": 127, "int4": 7}


class CompressError(Exception):
    """Bytes that are not the compressed form of what is expected."""


def bits_per_value(precision: Precision) -> float:
    """Bits of a value on the wire, its share of the scale included."""
    whole = {"float32": 32, "bfloat16": 16, "int8": 8, "int4": 4}[precision]
    return whole + 16 / BLOCK if precision in _LARGEST else whole


class Sent(NamedTuple):
    """The result of coding tensors that are to be sent."""

    payload: Tensors
    """What travels."""
    read: Tensors
    """What whoever receives it makes of it."""
    error: Tensors
    """What rounding has cost, to be added to what is sent next; empty without error feedback."""


@dataclass(frozen=True)
class Codec:
    """One way to compress; the same values and the same key give the same bytes everywhere."""

    precision: Precision = "float32"
    stochastic: bool = False
    """Round integers up or down by chance, so that the error is zero on average; else to the nearest."""
    feedback: bool = False
    """Add what rounding has cost to what is sent next."""

    @property
    def lossy(self) -> bool:
        """Return whether what arrives may differ from what was sent."""
        return self.precision != "float32"

    def send(self, tensors: Tensors, error: Tensors, key: str) -> Sent:
        """Pack these tensors and what rounding has cost before, if anything (`error`); `key` as of `pack`."""
        if not self.lossy:
            return Sent(tensors, tensors, {})
        wanted = arrays.add(tensors, error) if error else tensors
        payload = self.pack(wanted, key)
        read = self.unpack(payload, arrays.shapes(wanted))
        return Sent(payload, read, arrays.subtract(wanted, read) if self.feedback else {})

    def pack(self, tensors: Tensors, key: str) -> Tensors:
        """Return the arrays that go over the wire in place of these tensors. `key` seeds what is left to chance.

        The arrays of the result are `codes` (uint16 bfloat16, int8, or uint8 with two values each) and `scales` (uint16
        bfloat16, one per block), over all tensors in the order of their names. What is not finite stays so.
        """
        if not self.lossy:
            return tensors
        if self.precision == "bfloat16":
            return _payload({_CODES: _to_bfloat16(np.concatenate([tensors[name].ravel() for name in sorted(tensors)]))})
        blocks = np.concatenate([_in_blocks(tensors[name]) for name in sorted(tensors)])
        largest = _LARGEST[self.precision]
        scales = _to_bfloat16(np.abs(blocks).max(axis=1) / np.float32(largest))
        codes = self._rounded(blocks, _from_bfloat16(scales), largest, key)
        if self.precision == "int4":
            low, high = codes[:, ::2] & 0xF, codes[:, 1::2] & 0xF
            return _payload({_CODES: (low | high << 4).astype(np.uint8), _SCALES: scales})
        return _payload({_CODES: codes, _SCALES: scales})

    def unpack(self, payload: Tensors, shapes: Mapping[str, Shape]) -> Tensors:
        """The inverse of `pack`, up to what was rounded.

        Raises:
            CompressError: this can't be what `pack` makes of tensors with these names and shapes.
        """
        if not self.lossy:
            return payload
        sizes = {name: math.prod(shapes[name]) for name in sorted(shapes)}
        if self.precision == "bfloat16":
            codes = _part(payload, _CODES, np.dtype(np.uint16), (sum(sizes.values()),))
            return dict(_tensors(_from_bfloat16(codes), sizes, shapes, 1))
        blocks = sum(-(-size // BLOCK) for size in sizes.values())
        scales = _from_bfloat16(_part(payload, _SCALES, np.dtype(np.uint16), (blocks,)))
        if self.precision == "int4":
            packed = _part(payload, _CODES, np.dtype(np.uint8), (blocks, BLOCK // 2))
            codes = np.stack([packed & 0xF, packed >> 4], axis=2).reshape(blocks, BLOCK).astype(np.int8)
            codes = np.where(codes > _LARGEST["int4"], codes - 16, codes)
        else:
            codes = _part(payload, _CODES, np.dtype(np.int8), (blocks, BLOCK))
        with np.errstate(invalid="ignore"):  # 0 times infinity: it was not finite
            values = codes.astype(np.float32) * scales[:, None]
        return dict(_tensors(values.ravel(), sizes, shapes, BLOCK))

    def _rounded(self, blocks: Array, scales: Array, largest: int, key: str) -> NDArray[np.int8]:
        with np.errstate(divide="ignore", invalid="ignore"):
            exact = np.nan_to_num(blocks / scales[:, None], nan=0.0, posinf=0.0, neginf=0.0)
        if self.stochastic:
            seed = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=16).digest())
            exact = np.floor(exact + np.random.default_rng(seed).random(exact.shape, np.float32))
        codes: NDArray[np.int8] = np.clip(np.rint(exact), -largest, largest).astype(np.int8)
        return codes


def _in_blocks(array: Array) -> Array:
    """(blocks, 64), the last one filled with zeros."""
    flat = array.ravel()
    blocks = np.zeros(-(-flat.size // BLOCK) * BLOCK, flat.dtype)
    blocks[:flat.size] = flat
    return blocks.reshape(-1, BLOCK)


def _tensors(values: Array, sizes: Mapping[str, int], shapes: Mapping[str, Shape],
             block: int) -> Iterator[tuple[str, Array]]:
    begin = 0
    for name, size in sizes.items():
        yield name, values[begin:begin + size].reshape(shapes[name])
        begin += -(-size // block) * block


def _to_bfloat16(values: Array) -> NDArray[np.uint16]:
    """The upper half of each float32, rounded to the nearest, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    more = np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    rounded = np.where(np.isfinite(values), bits + more, bits | np.isnan(values).astype(np.uint32) << np.uint32(16))
    return (rounded >> np.uint32(16)).astype(np.uint16)


def _from_bfloat16(halves: NDArray[np.uint16]) -> Array:
    return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _payload(arrays: dict[str, NDArray[Any]]) -> Tensors:
    """Return the same arrays, typed for the wire, which carries arrays of any kind."""
    return cast(Tensors, arrays)


def _part(payload: Tensors, name: str, dtype: np.dtype[Any], shape: Shape) -> NDArray[Any]:
    array = payload.get(name)
    if array is None or array.dtype != dtype or array.shape != shape:
        actual = "nothing" if array is None else f"{array.dtype}{list(array.shape)}"
        raise CompressError(f"{name} should be {dtype}{list(shape)} and is {actual}")
    return array
