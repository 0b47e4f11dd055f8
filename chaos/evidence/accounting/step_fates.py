"""What became of each step of one process in one fragment, in a byte a step: a long run has millions of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from diloco_chaos.harness.base.tensors import np

if TYPE_CHECKING:  # see harness/base/tensors.py
    from numpy.typing import NDArray

_MOST, _OTHER = 200, "for one of many other reasons"
"""Fates that are told apart. A run has about ten; a forged one may have any number of reasons."""


class Fates(Mapping[int, str]):
    """Step -> fate, in the order of the steps. A step's place is where it stands among them."""

    def __init__(self, steps: Sequence[int] | NDArray[np.int64]) -> None:
        """`steps`: in order, each once. None of them has a fate yet."""
        self.steps = np.asarray(steps)
        self.codes: NDArray[np.uint8] = np.zeros(len(steps), np.uint8)
        """Of each step; 0 while it has no fate."""
        self._names = [""]

    def places(self, first: int, last: int) -> range:
        """Return the places of the steps in [first, last]."""
        return range(int(np.searchsorted(self.steps, first, "left")), int(np.searchsorted(self.steps, last, "right")))

    def step(self, place: int) -> int:
        """Return the step at this place."""
        return int(self.steps[place])

    def at(self, place: int) -> str:
        """The fate of the step that is there; empty while it has none."""
        return self._names[int(self.codes[place])]

    def give(self, place: int, fate: str) -> None:
        """Its fate, if it has none yet."""
        if not self.codes[place]:
            self.codes[place] = self.code(fate)

    def give_all(self, places: range | NDArray[np.int64], fate: str) -> None:
        """The same for several places."""
        chosen = np.asarray(places, np.int64)
        self.codes[chosen[self.codes[chosen] == 0]] = self.code(fate)

    def without(self, places: range) -> list[int]:
        """Return those of these places whose steps have no fate yet."""
        open_ = np.flatnonzero(self.codes[places.start:places.stop] == 0) + places.start
        missing: list[int] = open_.tolist()
        return missing

    def change(self, place: int, fate: str) -> None:
        """Give a step another fate than it had."""
        self.codes[place] = self.code(fate)

    def tokens(self, before: NDArray[np.int64]) -> dict[str, int]:
        """Fate -> tokens of the steps that have it. `before`: tokens before each step, and at last."""
        sums = np.bincount(self.codes, weights=np.diff(before), minlength=len(self._names))
        counts = np.bincount(self.codes, minlength=len(self._names))
        return {name: round(total) for name, total, count in zip(self._names, sums.tolist(), counts.tolist(),
                                                                 strict=False) if count}

    def have(self, *fates: str) -> NDArray[np.bool_]:
        """Return for each step whether its fate is one of these."""
        return np.isin(self.codes, [code for code, name in enumerate(self._names) if name in fates])

    def code(self, fate: str) -> int:
        """The number of a fate."""
        if fate not in self._names:
            fate = fate if len(self._names) < _MOST else _OTHER
            self._names += [] if fate in self._names else [fate]
        return self._names.index(fate)

    def __getitem__(self, step: int) -> str:
        for place in self.places(step, step):
            if self.codes[place]:
                return self.at(place)
        raise KeyError(step)

    def __iter__(self) -> Iterator[int]:
        return iter(self.steps[self.codes != 0].tolist())

    def __len__(self) -> int:
        return int(np.count_nonzero(self.codes))
