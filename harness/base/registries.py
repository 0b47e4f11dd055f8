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
        """Return whether these sources belong to the provider."""
        return self.name == OURS

    def __str__(self) -> str:
        return f"{self.name} {self.version}".rstrip()


class Provided(NamedTuple):
    """The content that one entry point stands for."""

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


class NamedEntryPoint(NamedTuple):
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
    """Return every entry point of this environment, by group: reading one group takes as long as reading all."""
    by_group: dict[str, list[EntryPoint]] = {}
    for distribution in distributions():
        for point in distribution.entry_points:
            by_group.setdefault(point.group, []).append(point)
    return by_group


@lru_cache
def points(group: str) -> Sequence[NamedEntryPoint]:
    """Return the entry points of a group, ours first, then by distribution; nothing is imported.

    Raises:
        ProviderError: our own package is installed from sources that did not have this group yet.
    """
    names: dict[int, str] = {}  # a distribution's name takes parsing its metadata
    first_points: dict[tuple[str, str], NamedEntryPoint] = {}
    for entry in _installed().get(group, ()):  # the first of a name hides the others, as it is with imports
        key = id(entry.dist)
        distribution = names.get(key) or names.setdefault(key, entry.dist.name if entry.dist else "an unknown package")
        first_points.setdefault((distribution, entry.name), NamedEntryPoint(entry.name, entry, distribution))
    if not any(distribution == OURS for distribution, _ in first_points):
        raise ProviderError(f"{OURS} is installed, but not these sources of it: nothing is registered under {group!r}; "
                            f"install it again (`make setup`, or `pip install --editable .`)")
    return sorted(first_points.values(), key=lambda point: (point.distribution != OURS, point.distribution))


def forget() -> None:
    """Look for packages anew: some were installed or removed."""
    for cache in (_installed, points, offers):
        cache.cache_clear()


@lru_cache
def offers(group: str) -> Offers:
    """Import each entry point of a group. Return what they provide, and those that can't be imported as broken.

    Raises:
        ProviderError: as `points`; or one of our own can't be imported.
    """
    loaded = [_load(point) for point in points(group)]
    broken = [entry for entry in loaded if isinstance(entry, Broken)]
    if ours := [entry for entry in broken if entry.provider.ours]:
        raise ProviderError("; ".join(map(str, ours)))
    return Offers([entry for entry in loaded if isinstance(entry, Provided)], broken)


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
    named: dict[str, list[NamedEntryPoint]] = {}
    for point in points(group):
        named.setdefault(point.name, []).append(point)
    return [str(_twice(what, name, *(point.provider for point in two[:2]))) for name, two in named.items()
            if len(two) > 1]


def _load(point: NamedEntryPoint) -> Provided | Broken:
    try:
        return Provided(point.name, point.entry.load(), point.provider)
    except Exception as error:  # another package's code, which may raise anything
        return Broken(point.name, point.provider, f"{type(error).__name__}: {error}")


def _twice(what: str, name: str, provider: Provider, other: Provider) -> ProviderError:
    return ProviderError(f"the {what} {name!r} comes from two packages, {provider} and {other}: uninstall one of them")


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
        self._listed: Sequence[NamedEntryPoint] = ()
        self._alone: dict[str, tuple[T, Provider]] = {}

    def __getitem__(self, name: str) -> T:
        return self._one(name)[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries())

    def __len__(self) -> int:
        return len(self._entries())

    def provider(self, name: str) -> str:
        """The package that it comes from, with its version."""
        return str(self._one(name)[1])

    def foreign(self) -> dict[str, T]:
        """Return what other packages provide, by name."""
        return {name: content for name, (content, provider) in self._entries().items() if not provider.ours}

    def broken(self) -> list[str]:
        """Return a sentence for each provider that can't be loaded: what it provides is missing."""
        return [str(entry) for entry in offers(self._group).broken]

    def _one(self, name: str) -> tuple[T, Provider]:
        if not self._one_each:
            return self._entries()[name]
        if (listed := points(self._group)) is not self._listed:
            self._listed, self._alone = listed, {}
        if name not in self._alone:
            try:
                provided = one_offer(self._group, self._what, name)
            except ProviderError:  # unknown, provided twice, or broken: all of them together say what is wrong
                return self._entries()[name]
            self._alone[name] = dict(self._contents(provided))[name], provided.provider
        return self._alone[name]

    def _entries(self) -> dict[str, tuple[T, Provider]]:
        current = offers(self._group)
        if current is not self._of:
            self._known, self._of = self._collected(current), current
        return self._known

    def _collected(self, current: Offers) -> dict[str, tuple[T, Provider]]:
        collected: dict[str, tuple[T, Provider]] = {}
        for provided in current.provided:
            for name, content in self._contents(provided):
                if name in collected and collected[name][0] is not content:
                    raise _twice(self._what, name, collected[name][1], provided.provider)
                collected[name] = content, provided.provider
        return collected
