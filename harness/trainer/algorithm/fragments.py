"""Splitting the model into P fragments of about the same size (arXiv 2604.21428, the fragments' bin-packing)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Fragment:
    """Some tensors of the model, exchanged and merged together."""

    index: int
    names: tuple[str, ...]
    size: int
    """Parameters."""


def plan_fragments(shapes: Mapping[str, Shape], count: int, embeddings: Collection[str] = ()) -> list[Fragment]:
    """Pack tensors greedily, largest first, into `count` fragments; embeddings get fragments of their own.

    Deterministic: ties go by name and by the lower fragment.

    Raises:
        ValueError: there are fewer tensors than fragments, or the largest fragment would exceed twice the mean.
    """
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    total = sum(sizes.values())
    apart = {name: size for name, size in sizes.items() if name in embeddings}
    rest = {name: size for name, size in sizes.items() if name not in embeddings}
    if count == 1 or not apart or not rest:
        bins = _pack(sizes, count)
    else:
        share = min(max(1, round(count * sum(apart.values()) / total)), count - 1, len(apart))
        bins = _pack(apart, share) + _pack(rest, count - share)
    fragments = [Fragment(index, tuple(sorted(names)), sum(sizes[name] for name in names))
                 for index, names in enumerate(bins)]
    largest = max(fragment.size for fragment in fragments)
    if largest * count > 2 * total:
        raise ValueError(f"{count} fragments of this model are uneven: the largest has {largest} parameters, the mean "
                         f"is {total // count}; use fewer fragments or a deeper model")
    return fragments


def _pack(sizes: Mapping[str, int], count: int) -> list[list[str]]:
    if len(sizes) < count:
        raise ValueError(f"{len(sizes)} tensors can't be split into {count} fragments: use fewer fragments")
    bins: list[list[str]] = [[] for _ in range(count)]
    filled = [0] * count
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        lightest = min(range(count), key=lambda index: (filled[index], index))
        bins[lightest].append(name)
        filled[lightest] += sizes[name]
    return bins


def offsets(count: int, sync_every: int) -> list[int]:
    """Return after how many of the H steps each fragment is due: spread evenly."""
    return [index * sync_every // count for index in range(count)]
