"""What packages provide, ours like anybody's: found by its entry points, and imported when it is first asked for.

An entry point is a line of a package's metadata that gives a name to a module or to something in one
(https://packaging.python.org/en/latest/specifications/entry-points/). docs/extending.md lists the groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
OURS = "diloco-chaos"
"""The distribution that these sources belong to."""


class ProviderError(Exception):
    """What a package provides can't be used; the message says whose it is and why."""


class Provided(NamedTuple):
    """What one entry point stands for."""

    name: str
    content: Any
    provider: str
    """The distribution with its version: `acme-faults 1.2`."""


class Broken(NamedTuple):
    """An entry point that can't be imported."""

    name: str
    provider: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} of {self.provider} can't be loaded: {self.reason}"


class Offers(NamedTuple):
    """A group of entry points: ours first, the others by name."""

    provided: Sequence[Provided]
    broken: Sequence[Broken]


@lru_cache
def offers(group: str) -> Offers:
    """Import what stands behind each entry point of a group; what can't be imported is listed, and hinders nobody.

    Raises:
        ProviderError: our own package is installed from sources that did not have this group yet.
    """
    found: dict[tuple[str, str], EntryPoint] = {}
    for point in entry_points(group=group):  # the first of a name that is on the path hides the others, as for imports
        found.setdefault((_distribution(point), point.name), point)
    provided, broken = [], []
    for (distribution, name), point in sorted(found.items(), key=lambda item: (item[0][0] != OURS, item[0])):
        provider = f"{distribution} {point.dist.version}" if point.dist else distribution
        try:
            provided.append(Provided(name, point.load(), provider))
        except Exception as error:  # another package's code: whatever it raises is told where it is missed
            broken.append(Broken(name, provider, f"{type(error).__name__}: {error}"))
    if not any(one.provider.split()[0] == OURS for one in provided):
        raise ProviderError("; ".join(map(str, broken)) or (
            f"{OURS} is installed, but not these sources of it: nothing is registered under {group!r}; "
            f"install it again (`make setup`, or `pip install --editable .`)"))
    return Offers(provided, broken)


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "an unknown package"


class Registry(Mapping[str, T]):
    """Name -> what is provided under it, ours first. Providers are imported when the first name is asked for."""

    def __init__(self, group: str, what: str, contents: Callable[[Provided], Iterable[tuple[str, T]]]) -> None:
        """`what` is in it, in one word; `contents`: all that an entry point of this group provides, by name."""
        self._group, self._what, self._contents = group, what, contents
        self._of: Offers | None = None
        self._known: dict[str, tuple[T, str]] = {}

    def __getitem__(self, name: str) -> T:
        return self._found()[name][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found())

    def __len__(self) -> int:
        return len(self._found())

    def provider(self, name: str) -> str:
        """The package that it comes from, with its version."""
        return self._found()[name][1]

    def foreign(self) -> dict[str, T]:
        """What comes from other packages."""
        return {name: one for name, (one, provider) in self._found().items() if provider.split()[0] != OURS}

    def broken(self) -> list[str]:
        """Providers that can't be loaded, and why: what they would have provided is missed."""
        return [str(one) for one in offers(self._group).broken]

    def _found(self) -> dict[str, tuple[T, str]]:
        there = offers(self._group)
        if there is not self._of:
            self._known, self._of = self._collected(there), there
        return self._known

    def _collected(self, there: Offers) -> dict[str, tuple[T, str]]:
        found: dict[str, tuple[T, str]] = {}
        for one in there.provided:
            for name, content in self._contents(one):
                if name in found and found[name][0] is not content:
                    raise ProviderError(f"the {self._what} {name!r} comes from two packages, {found[name][1]} and "
                                        f"{one.provider}: uninstall one of them")
                found[name] = content, one.provider
        return found
