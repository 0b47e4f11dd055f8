"""Every place by its name, from whichever package provides it, and which of them can do what another one can't."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from diloco_chaos.harness.base import units
from diloco_chaos.harness.base.registries import Provided, ProviderError, offers, one_offer
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.places.place import Option, Part, Place
from diloco_chaos.harness.trainers.core.programs import Program

GROUP = "diloco_chaos.backends"
"""Of entry points; each names a subclass of `diloco_chaos.Place` whose `name` is the entry point's."""
DEFAULT = "local"
"""Where runs are performed if no place is named."""
VIRTUAL = "simulated"
"""Where commands that mean virtual time run."""


def place_named(name: str) -> type[Place]:
    """One place, and no other is imported.

    Raises:
        ProviderError: there is none of this name, there are two, or it can't be loaded.
    """
    return _place(one_offer(GROUP, "backend", name))


def places() -> Sequence[type[Place]]:
    """Return every place that can be used: ours first, each by its name. The doctor reports those that can't.

    Raises:
        ProviderError: one of our own can't be loaded.
    """
    by_name: dict[str, tuple[bool, type[Place]]] = {}
    for provided, place in _usable():
        by_name.setdefault(place.name, (not provided.provider.ours, place))
    return [place for _, place in sorted(by_name.values(), key=lambda entry: (entry[0], entry[1].name))]


def unusable() -> list[str]:
    """Return a sentence for each thing that is registered as a place and is none."""
    problems = []
    for provided in offers(GROUP).provided:
        try:
            _place(provided)
        except ProviderError as error:
            problems.append(str(error))
    return problems


def options() -> Sequence[Option]:
    """Return the options that places take, each once."""
    by_name: dict[str, Option] = {}
    for place in places():
        for option in place.options:
            by_name.setdefault(option.name, option)
    return list(by_name.values())


def refusal(place: Place, missing: Collection[Ability]) -> str:
    """Return why a place can't do what a fault needs, and what to do about it: its own sentence, or that of a place
    that can; then which places can."""
    wanted = sorted(missing)
    able = [other for other in places() if other.name != place.name and other.can | other.may >= set(missing)]
    said = [place.cannot[ability] for ability in wanted if ability in place.cannot]
    said += [other.alone[ability] for ability in wanted for other in able if ability in other.alone]
    why = next(iter(said), place.unable)
    return why if place.may & set(missing) else _or_elsewhere(why, able)


def refused_parts(place: Place, program: Program) -> list[str]:
    """Return what of a command a place can't have, a sentence each: why, and which places take it."""
    has: dict[Part, bool] = {"peers: caught": bool(program.meets), "image": bool(program.image or program.service),
                             "service": program.service is not None, "files": bool(program.files),
                             "left_behind: keep": program.keeps_leftovers, "spare": program.spare}
    return [f"{part}: {_or_elsewhere(why, [other for other in places() if part in other.takes])}"
            for part, why in place.refuses.items() if has[part]]


def _or_elsewhere(why: str, able: Sequence[type[Place]]) -> str:
    if not able:
        return why
    return f"{why}{', or' if ': ' in why else ':'} {run_with([place.name for place in able])}"


def run_with(names: Sequence[str]) -> str:
    """Return what to type for a run to take place there."""
    if list(names) == [DEFAULT]:
        return f"leave --on out, which is --on {DEFAULT}"
    return f"run it with --on {units.names(names, 'or')}"


def _usable() -> Iterator[tuple[Provided, type[Place]]]:
    for provided in offers(GROUP).provided:
        try:
            yield provided, _place(provided)
        except ProviderError:
            continue  # it is told of where it is asked for, and by the doctor


def _place(provided: Provided) -> type[Place]:
    content = provided.content
    if not (isinstance(content, type) and issubclass(content, Place)) or getattr(content, "name", "") != provided.name:
        raise ProviderError(f"{provided.name} of {provided.provider} is no backend: an entry point of {GROUP} names a "
                            f"subclass of diloco_chaos.Place whose name is {provided.name!r}")
    if not all(isinstance(option, Option) for option in content.options):
        raise ProviderError(f"{provided.name} of {provided.provider} is no backend: its options are Options of "
                            f"diloco_chaos.harness.places.place")
    if lacking := [what for what in ("nodes", "can", "unable") if not hasattr(content, what)]:
        raise ProviderError(f"{provided.name} of {provided.provider} is no backend: a place says its "
                            f"{units.names(lacking)}")
    return content
