"""The formulas of docs/protocol.md, in float32 and in the order that it gives: so results agree to the bit."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from diloco_chaos.harness.record.tape.recovered import Part
from diloco_chaos.harness.trainer.reference.problem import Array, Tensors

_VANISHED, _FAINT = 1e-12, 0.1


def digest(tensors: Tensors) -> str:
    """Return 128 bits of BLAKE2b over the tensors in the order of their names: name, shape, type, bytes."""
    hasher = hashlib.blake2b(digest_size=16)
    for name, array in sorted(tensors.items()):
        hasher.update(_head(name, array.shape))
        hasher.update(array.tobytes())
    return hasher.hexdigest()


def kept(value: Tensors, momentum: Tensors, cost: Tensors, counts: Sequence[object]) -> str:
    """The digest of all that the syncer keeps of a version: the tensors under three roofs, and its counts as JSON."""
    together = {f"{roof}/{name}": array for roof, tensors in (
        ("value", value), ("momentum", momentum), ("error", cost)) for name, array in tensors.items()}
    text = f"{digest(together)} {json.dumps(counts)}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass
class Counts:
    """The syncer's counts of a fragment."""

    tokens: int = 0
    """Merged so far."""
    last: dict[str, list[int]] = field(default_factory=dict)
    """Learner -> incarnation and last step of its newest contribution."""

    def merged(self, parts: Sequence[Part], tokens: float) -> None:
        """One more version is made of these, which have so many tokens."""
        self.tokens += int(tokens)
        for part in parts:
            self.last[part.learner] = [part.incarnation, part.last]

    def of(self, version: int) -> list[object]:
        """Return the counts as they are part of a version's digest."""
        return [version, self.tokens, *sorted([name, *last] for name, last in self.last.items())]


@lru_cache(maxsize=1024)
def _head(name: str, shape: tuple[int, ...]) -> bytes:
    return f"{name}{shape}float32".encode()


def fragments(sizes: Mapping[str, int], tables: Sequence[str], count: int) -> list[tuple[str, ...]]:
    """Return which tensors are exchanged together: the largest first, each into the fragment that is emptiest; tables
    have fragments of their own, as many as their share of the model, and one at least."""
    blocks = [name for name in sizes if name not in tables]
    if count == 1 or not blocks or not tables:
        return _packed(sizes, list(sizes), count)
    share = round(count * sum(sizes[name] for name in tables) / sum(sizes.values()))
    share = min(max(share, 1), count - 1, len(tables))
    return _packed(sizes, list(tables), share) + _packed(sizes, blocks, count - share)


def _packed(sizes: Mapping[str, int], names: list[str], count: int) -> list[tuple[str, ...]]:
    fragments: list[list[str]] = [[] for _ in range(count)]
    for name in sorted(names, key=lambda name: (-sizes[name], name)):
        min(fragments, key=lambda taken: sum(sizes[member] for member in taken)).append(name)
    return [tuple(sorted(taken)) for taken in fragments]


def merged(gradients: Sequence[Tensors], weights: Sequence[float], averaged: Collection[str]) -> Tensors:
    """Return the merge of one round's outer gradients, each with its token weight."""
    shares = np.array(weights) / np.sum(weights)
    return {name: (average if name in averaged else radial)([gradient[name] for gradient in gradients], shares)
            for name in gradients[0]}


def average(arrays: Sequence[Array], factors: Sequence[float]) -> Array:
    """Their sum, each with its factor, in their own precision."""
    total = arrays[0] * arrays[0].dtype.type(factors[0])
    for array, factor in zip(arrays[1:], factors[1:], strict=True):
        total = total + array * array.dtype.type(factor)
    return total


def radial(arrays: Sequence[Array], shares: Sequence[float]) -> Array:
    """The mean norm, in the direction of the mean direction; the average where there is none. Where directions all but
    cancel each other, float64 is used."""
    lengths = [_length(array) for array in arrays]
    mean = average(arrays, [share / length if length else 0.0 for share, length in zip(shares, lengths, strict=True)])
    length = _length(mean)
    if length < _FAINT:
        exact = average([array.astype(np.float64) for array in arrays],
                        [share / length if length else 0.0 for share, length in zip(shares, lengths, strict=True)])
        length, mean = _length(exact), exact.astype(np.float32)
    if length < _VANISHED:
        return average(arrays, shares)
    return mean * np.float32(float(np.dot(shares, lengths)) / length)


def mean_gradient(gradients: Sequence[Tensors], tokens: Sequence[int]) -> Tensors:
    """Return the gradient of a data-parallel step: the mean of the gradients in float32, or, where they are of
    different numbers of tokens, the mean by tokens in float64, rounded."""
    kind, factors = (np.float32, [1] * len(tokens)) if len(set(tokens)) == 1 else (np.float64, list(tokens))
    return {name: np.asarray(average([gradient[name].astype(kind) for gradient in gradients], factors)
                             / kind(sum(factors)), np.float32) for name in gradients[0]}


def _length(array: Array) -> float:
    return math.sqrt(float(np.square(array.reshape(-1), dtype=np.float64).sum()))


def nesterov(value: Tensors, momentum: Tensors, gradient: Tensors, rate: float, mu: float) -> tuple[Tensors, Tensors]:
    """The new value and momentum: b <- mu b + d, then x <- x - rate (d + mu b)."""
    mu32, rate32 = np.float32(mu), np.float32(rate)
    after = {name: momentum[name] * mu32 + gradient[name] for name in value}
    ahead = {name: gradient[name] + after[name] * mu32 for name in value}
    return {name: np.asarray(value[name] - ahead[name] * rate32, np.float32) for name in value}, after
