"""Named float32 arrays: what fragments, outer gradients and snapshots are made of."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    class _LateNumpy:
        """numpy, imported when something of it is needed: commands that read no arrays start without it."""

        def __getattr__(self, name: str) -> Any:
            import numpy
            vars(self)[name] = attribute = getattr(numpy, name)
            return attribute

    np = _LateNumpy()

__all__ = ["Array", "Numbers", "Tensors", "add", "add_prefix", "all_finite", "copy", "digest", "np", "same_shapes",
           "shapes", "strip_prefix", "subtract"]

Array: TypeAlias = "npt.NDArray[np.float32]"
Tensors: TypeAlias = dict[str, "Array"]
Numbers: TypeAlias = "npt.NDArray[np.float64]"


def digest(tensors: Tensors) -> str:
    """128-bit BLAKE2b over names, shapes and bytes in the order of names: equal digests, equal content."""
    hasher = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        array = tensors[name]
        array = array if array.flags.c_contiguous else array.copy(order="C")
        hasher.update(_head(name, array.shape, array.dtype))
        hasher.update(array.data)
    return hasher.hexdigest()


@lru_cache(maxsize=4096)
def _head(name: str, shape: tuple[int, ...], dtype: np.dtype[np.float32]) -> bytes:
    return f"{name}{shape}{dtype}".encode()


def copy(tensors: Tensors) -> Tensors:
    """An independent copy."""
    return {name: array.copy() for name, array in tensors.items()}


def shapes(tensors: Tensors) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor, by its name."""
    return {name: array.shape for name, array in tensors.items()}


def add_prefix(prefix: str, tensors: Tensors) -> Tensors:
    """The same under longer names."""
    return {prefix + name: array for name, array in tensors.items()}


def strip_prefix(prefix: str, tensors: Tensors) -> Tensors:
    """The inverse of `add_prefix`, of those whose names begin so."""
    return {name.removeprefix(prefix): array for name, array in tensors.items() if name.startswith(prefix)}


def subtract(left: Tensors, right: Tensors) -> Tensors:
    """left - right, tensor by tensor."""
    return {name: left[name] - right[name] for name in left}


def add(left: Tensors, right: Tensors) -> Tensors:
    """left + right, tensor by tensor."""
    return {name: left[name] + right[name] for name in left}


def all_finite(tensors: Tensors) -> bool:
    """True where no value is NaN or infinite."""
    return all(bool(np.isfinite(array).all()) for array in tensors.values())


def same_shapes(left: Tensors, right: Tensors) -> bool:
    """True where both have the same names, shapes and dtypes."""
    return left.keys() == right.keys() and all(
        left[name].shape == right[name].shape and left[name].dtype == right[name].dtype for name in left)
