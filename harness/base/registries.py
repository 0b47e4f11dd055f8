"""Registries of what packages provide, ours like others': found by entry points, imported when it is first used.

An entry point is a line of a package's metadata that gives a name to a module or to something in one
(https://packaging.python.org/en/latest/specifications/entry-points/). docs/extending.md lists the groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, distributions
from typing import Any, NamedTuple, TypeVar

from diloco_chaos.harness.base.errors import UserError, nearest

T = TypeVar("T")
OURS = "diloco-chaos"
"""The distribution that these sources belong to."""


class ProviderError(UserError):
    """What a package provides can't be used; the message says whose it is and why."""


@dataclass(frozen=True)
class Provider:
    """A distribution; its text is `acme-faults 1.2`."""

    name: str
    version: str = ""
    """Empty: unknown."""

    @property
    def ours(self) -> bool:
        """Whether these sources belong to it."""
        return self.name == OURS

    def __str__(self) -> str:
        return f"{self.name} {self.version}".rstrip()


class Provided(NamedTuple):
    """What one entry point stands for."""

    name: str
    content: Any
    provider: Provider


class Broken(NamedTuple):
    """An entry point that can't be imported."""

    name: str
    provider: Provider
    reason: str

    def __str__(self) -> str:
        return f"{self.name} of {self.provider} can't be loaded: {self.reason}"


class Offers(NamedTuple):
    """A group of entry points: ours first, the others by name."""

    provided: Sequence[Provided]
    broken: Sequence[Broken]


class Point(NamedTuple):
    """An entry point, and the distribution that names it."""

    name: str
    entry: EntryPoint
    distribution: str

    @property
    def provider(self) -> Provider:
        """The distribution with its version."""
        return Provider(self.distribution, self.entry.dist.version if self.entry.dist else "")


@lru_cache
def _installed() -> Mapping[str, Sequence[EntryPoint]]:
    """Every entry point of this environment, by group: reading one group's takes as long as reading all."""
    found: dict[str, list[EntryPoint]] = {}
    for distribution in distributions():
        for point in distribution.entry_points:
            found.setdefault(point.group, []).append(point)
    return found


@lru_cache
def points(group: str) -> Sequence[Point]:
    """The entry points of a group, ours first, then by distribution; nothing is imported.

    Raises:
        ProviderError: our own package is installed from sources that did not have this group yet.
    """
    names: dict[int, str] = {}  # a distribution's name takes parsing its metadata
    found: dict[tuple[str, str], Point] = {}
    for entry in _installed().get(group, ()):  # the first of a name hides the others, as it is with imports
        key = id(entry.dist)
        distribution = names.get(key) or names.setdefault(key, entry.dist.name if entry.dist else "an unknown package")
        found.setdefault((distribution, entry.name), Point(entry.name, entry, distribution))
    if not any(distribution == OURS for distribution, _ in found):
        raise ProviderError(f"{OURS} is installed, but not these sources of it: nothing is registered under {group!r}; "
                            f"install it again (`make setup`, or `pip install --editable .`)")
    return sorted(found.values(), key=lambda point: (point.distribution != OURS, point.distribution))


def forget() -> None:
    """Look for packages anew: some were installed or removed."""
    for cache in (_installed, points, offers):
        cache.cache_clear()


@lru_cache
def offers(group: str) -> Offers:
    """Import what stands behind each entry point of a group. One that can't be imported is listed, and the others are
    used.

    Raises:
        ProviderError: as `points`; or one of our own can't be imported.
    """
    loaded = [_load(point) for point in points(group)]
    broken = [one for one in loaded if isinstance(one, Broken)]
    if ours := [one for one in broken if one.provider.ours]:
        raise ProviderError("; ".join(map(str, ours)))
    return Offers([one for one in loaded if isinstance(one, Provided)], broken)


def one_offer(group: str, what: str, name: str) -> Provided:
    """Import what stands behind the one entry point of this name, and nothing else of the group.

    Args:
        group: of entry points whose names are those of the things themselves.
        what: one thing of the group, in a word or two, for messages.
        name: the thing's.

    Raises:
        ProviderError: no package has it, two have, or it can't be imported.
    """
    named = [point for point in points(group) if point.name == name]
    if not named:
        known = list(dict.fromkeys(point.name for point in points(group)))
        raise ProviderError(f"unknown {what} {name!r}{nearest(name, known)}; there are {', '.join(known)}")
    if len(named) > 1:
        raise _twice(what, name, *(point.provider for point in named[:2]))
    loaded = _load(named[0])
    if isinstance(loaded, Broken):
        raise ProviderError(str(loaded))
    return loaded


def clashes(group: str, what: str) -> list[str]:
    """A sentence for each name that two packages have, in a group of entry points whose names are those of the things
    themselves; `what`: one thing of it. Nothing is imported."""
    named: dict[str, list[Point]] = {}
    for point in points(group):
        named.setdefault(point.name, []).append(point)
    return [str(_twice(what, name, *(point.provider for point in two[:2]))) for name, two in named.items()
            if len(two) > 1]


def _load(point: Point) -> Provided | Broken:
    try:
        return Provided(point.name, point.entry.load(), point.provider)
    except Exception as error:  # another package's code, which may raise anything
        return Broken(point.name, point.provider, f"{type(error).__name__}: {error}")


def _twice(what: str, name: str, one: Provider, other: Provider) -> ProviderError:
    return ProviderError(f"the {what} {name!r} comes from two packages, {one} and {other}: uninstall one of them")


class Registry(Mapping[str, T]):
    """Name -> what is provided under it, ours first. Providers are imported when the first name is asked for."""

    def __init__(self, group: str, what: str, contents: Callable[[Provided], Iterable[tuple[str, T]]], *,
                 one_each: bool = False) -> None:
        """`what` is in it, in one word; `contents`: all that an entry point of this group provides, by name.
        `one_each`: that is one thing, under the entry point's own name; asked for by name, it is all that is
        imported."""
        self._group, self._what, self._contents, self._one_each = group, what, contents, one_each
        self._of: Offers | None = None
        self._known: dict[str, tuple[T, Provider]] = {}

    def __getitem__(self, name: str) -> T:
        return self._one(name)[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found())

    def __len__(self) -> int:
        return len(self._found())

    def provider(self, name: str) -> str:
        """The package that it comes from, with its version."""
        return str(self._one(name)[1])

    def foreign(self) -> dict[str, T]:
        """What comes from other packages."""
        return {name: one for name, (one, provider) in self._found().items() if not provider.ours}

    def broken(self) -> list[str]:
        """Providers that can't be loaded, and why: what they would have provided is missed."""
        return [str(one) for one in offers(self._group).broken]

    def _one(self, name: str) -> tuple[T, Provider]:
        if self._one_each and name not in self._known:
            named = [point for point in points(self._group) if point.name == name]
            if len(named) == 1 and isinstance(provided := _load(named[0]), Provided):
                return dict(self._contents(provided))[name], provided.provider
        return self._found()[name]

    def _found(self) -> dict[str, tuple[T, Provider]]:
        there = offers(self._group)
        if there is not self._of:
            self._known, self._of = self._collected(there), there
        return self._known

    def _collected(self, there: Offers) -> dict[str, tuple[T, Provider]]:
        found: dict[str, tuple[T, Provider]] = {}
        for one in there.provided:
            for name, content in self._contents(one):
                if name in found and found[name][0] is not content:
                    raise _twice(self._what, name, found[name][1], one.provider)
                found[name] = content, one.provider
        return found
