"""The scenario library: every `*.yaml` beside this file, and beside the modules that other packages name, by name."""

from __future__ import annotations

from pathlib import Path

from diloco_chaos.harness.base.registries import Provided, ProviderError, Registry

GROUP = "diloco_chaos.scenarios"
"""Of entry points; each names a module or package in whose folder scenarios are."""


def _provided(one: Provided) -> list[tuple[str, Path]]:
    place = getattr(one.content, "__file__", None)
    paths = sorted(Path(place).parent.glob("*.yaml")) if place else []
    if not paths:
        raise ProviderError(f"{one.name} of {one.provider} provides no scenario: an entry point of {GROUP} names a "
                            f"module with `*.yaml` files beside it")
    return [(path.stem, path) for path in paths]


_LIBRARY = Registry(GROUP, "scenario", _provided)


def find() -> dict[str, Path]:
    """Name -> file of every scenario in the library, in the order of names.

    Raises:
        ProviderError: two packages have a scenario of the same name, or one has none.
    """
    return dict(sorted(_LIBRARY.items()))
