"""Which bytes of the corpus a learner's batch is made of, as docs/protocol.md has it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

_BLOCK = 1 << 15
_HELD_OUT = 16


class Batches:
    """The batches of all learners."""

    def __init__(self, file: Path, sizes: Sequence[int], context: int, seed: int) -> None:
        """`sizes`: sequences of each learner's batch, in the order of the learners; `context`: bytes of a sequence."""
        self._bytes = np.memmap(file, np.uint8, mode="r")
        self._sizes, self._context = sizes, context
        trained = [block for block in range(len(self._bytes) // _BLOCK) if block % _HELD_OUT != _HELD_OUT - 1]
        places = np.arange((_BLOCK - 1) // context) * context
        self._order = np.random.default_rng(seed).permutation(np.concatenate(
            [block * _BLOCK + places for block in trained]))

    def digest(self, learner: int, number: int) -> str:
        """Return 128 bits of BLAKE2b over the bytes of a batch: all inputs, then all targets."""
        size = self._sizes[learner]
        turns = [(number * size + row) * len(self._sizes) + learner for row in range(size)]
        starts = [int(self._order[turn % len(self._order)]) for turn in turns]
        hasher = hashlib.blake2b(digest_size=16)
        for ahead in (0, 1):
            for start in starts:
                hasher.update(self._bytes[start + ahead:start + ahead + self._context].tobytes())
        return hasher.hexdigest()
