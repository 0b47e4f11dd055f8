"""What whoever receives rounded tensors reads of them: bfloat16, or integers with one scale for every 64 values."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np

from diloco_chaos.harness.trainer.reference.problem import Array, Tensors

_BLOCK = 64
_LARGEST = {"int8": 127, "int4": 7}


@dataclass(frozen=True)
class Rounding:
    """The form in which tensors travel."""

    precision: str
    """`float32`, `bfloat16`, `int8` or `int4`."""
    stochastic: bool
    feedback: bool
    """What rounding has cost is added to what is sent next."""

    def sent(self, tensors: Tensors, cost: Tensors, key: str) -> tuple[Tensors, Tensors]:
        """Return what is read of tensors, and what rounding has cost by now. `cost`: what it had cost before; empty:
        nothing. `key`: what chance is drawn from."""
        if self.precision == "float32":
            return tensors, {}
        wanted = {name: array + cost[name] for name, array in tensors.items()} if cost else tensors
        if self.precision == "bfloat16":
            read = {name: _bfloat16(array) for name, array in wanted.items()}
        else:
            read = self._integers(wanted, key)
        return read, {name: wanted[name] - read[name] for name in wanted} if self.feedback else {}

    def _integers(self, tensors: Tensors, key: str) -> Tensors:
        names = sorted(tensors)
        counts = [math.ceil(tensors[name].size / _BLOCK) for name in names]
        blocks = np.zeros((sum(counts), _BLOCK), np.float32)
        start = 0
        for name, count in zip(names, counts, strict=True):
            blocks[start:start + count].reshape(-1)[:tensors[name].size] = tensors[name].reshape(-1)
            start += count
        most = _LARGEST[self.precision]
        scales = _bfloat16(np.abs(blocks).max(axis=1) / np.float32(most))[:, None]
        exact = np.divide(blocks, scales, out=np.zeros_like(blocks), where=scales != 0)
        if self.stochastic:
            seed = hashlib.blake2b(key.encode(), digest_size=16).digest()
            chance = np.random.default_rng(int.from_bytes(seed))
            exact = np.floor(exact + chance.random(exact.shape, np.float32))
        values = np.clip(np.rint(exact), -most, most).astype(np.int8).astype(np.float32) * scales
        read, start = {}, 0
        for name, count in zip(names, counts, strict=True):
            read[name] = values[start:start + count].reshape(-1)[:tensors[name].size].reshape(tensors[name].shape)
            start += count
        return read


def _bfloat16(array: Array) -> Array:
    """The nearest float32 whose lower half is zero; of two as near the even one."""
    bits = np.ascontiguousarray(array).view(np.uint32).astype(np.uint64)
    half = np.uint64(1 << 15) - np.uint64(1) + ((bits >> np.uint64(16)) & np.uint64(1))
    upper = ((bits + half) >> np.uint64(16)).astype(np.uint32) << np.uint32(16)
    return upper.view(np.float32)
