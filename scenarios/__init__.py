"""The scenario library: every `*.yaml` beside this file, and beside the modules that other packages name, by name."""

from __future__ import annotations

from pathlib import Path

from harness.providers import ProviderError, offers

GROUP = "diloco_chaos.scenarios"
"""Of entry points; each names a module or package in whose folder scenarios are."""


def find() -> dict[str, Path]:
    """Name -> file of every scenario in the library, in the order of names.

    Raises:
        ProviderError: two packages have a scenario of the same name, or one has none.
    """
    found: dict[str, tuple[Path, str]] = {}
    for one in offers(GROUP).provided:
        place = getattr(one.content, "__file__", None)
        paths = sorted(Path(place).parent.glob("*.yaml")) if place else []
        if not paths:
            raise ProviderError(f"{one.name} of {one.provider} provides no scenario: an entry point of {GROUP} names a "
                                f"module with `*.yaml` files beside it")
        for path in paths:
            if path.stem in found:
                raise ProviderError(f"the scenario {path.stem!r} comes from two packages, {found[path.stem][1]} and "
                                    f"{one.provider}: uninstall one of them")
            found[path.stem] = path, one.provider
    return {name: path for name, (path, _) in sorted(found.items())}
