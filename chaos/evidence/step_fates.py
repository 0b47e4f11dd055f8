"""What became of each step of one process in one fragment, in a byte a step: a long run has millions of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

_MOST, _OTHER = 200, "for one of many other reasons"
"""Fates that are told apart. A run has about ten; one that somebody has made up may have any number of reasons."""


class Fates(Mapping[int, str]):
    """Step -> fate, in the order of the steps. A step's place is where it stands among them."""

    def __init__(self, steps: Sequence[int]) -> None:
        """`steps`: in order, each once. None of them has a fate yet."""
        self.steps = steps
        self._codes = bytearray(len(steps))
        self._names = [""]

    def places(self, first: int, last: int) -> range:
        """Where the steps in [first, last] are."""
        return range(bisect_left(self.steps, first), bisect_right(self.steps, last))

    def step(self, place: int) -> int:
        """Which one is there."""
        return self.steps[place]

    def at(self, place: int) -> str:
        """The fate of the step that is there; empty while it has none."""
        return self._names[self._codes[place]]

    def give(self, place: int, fate: str) -> None:
        """Its fate, if it has none yet."""
        if not self._codes[place]:
            self._codes[place] = self._code(fate)

    def give_all(self, places: range, fate: str) -> None:
        """The same for places that follow each other."""
        code = self._code(fate)
        if any(self._codes[places.start:places.stop]):
            for place in self.without(places):
                self._codes[place] = code
        else:
            self._codes[places.start:places.stop] = bytes((code,)) * len(places)

    def without(self, places: range) -> list[int]:
        """Those of them that have none yet."""
        codes = self._codes[places.start:places.stop]
        return [place for place, code in zip(places, codes, strict=True) if not code] if 0 in codes else []

    def change(self, place: int, fate: str) -> None:
        """Another fate than it had."""
        self._codes[place] = self._code(fate)

    def runs(self) -> Iterator[tuple[int, int, str]]:
        """Steps of the same fate that follow each other: the first place, the one behind the last, the fate."""
        begin = 0
        for code, run in groupby(self._codes):
            end = begin + len(list(run))
            yield begin, end, self._names[code]
            begin = end

    def _code(self, fate: str) -> int:
        if fate not in self._names:
            fate = fate if len(self._names) < _MOST else _OTHER
            self._names += [] if fate in self._names else [fate]
        return self._names.index(fate)

    def __getitem__(self, step: int) -> str:
        for place in self.places(step, step):
            if self._codes[place]:
                return self.at(place)
        raise KeyError(step)

    def __iter__(self) -> Iterator[int]:
        return (step for step, code in zip(self.steps, self._codes, strict=True) if code)

    def __len__(self) -> int:
        return len(self._codes) - self._codes.count(0)
