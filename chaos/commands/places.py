"""The options that places take, on the commands that run something at one or look at one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diloco_chaos.chaos.commands.common import Failure
from diloco_chaos.chaos.commands.options import written
from diloco_chaos.harness.base import units
from diloco_chaos.harness.places import registry
from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.place import Option

if TYPE_CHECKING:
    from diloco_chaos.chaos.runner.backends import Backend

GIVEN = "given"
"""The argument of a command that stands for all options of places."""


def takes_place_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the options of all places; those that the user gave reach it as `given`, by name."""
    signature = inspect.signature(command, eval_str=True)
    options = {option.name: option for option in registry.options() if option.name not in signature.parameters}

    @wraps(command)
    def with_options(**arguments: Any) -> None:
        values = {name: arguments.pop(name) for name in options}
        command(**arguments, **{GIVEN: {name: value for name, value in values.items()
                                        if value != options[name].default}})
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        parameters += map(_parameter, options.values()) if parameter.name == GIVEN else [parameter]
    with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options


def on_option(default: str = registry.DEFAULT, shown: str = "") -> Any:
    """`--on`: which places there are, that of the default first. `shown`: the default, where it is not one place."""
    known = sorted(registry.places(), key=lambda place: place.name != default)
    return typer.Option(help=f"{units.names([f'{place.name} ({place.nodes})' for place in known], 'or')}.",
                        show_default=shown or True)


def backend_of(on: str, given: Mapping[str, Any]) -> Backend:
    """Return the backend to run on, as the options say.

    Raises:
        Failure: the place can't be used, or has not all of these options.
        ProviderError, OptionError: there is no such place, or an option has no value that it takes.
    """
    from diloco_chaos.chaos.runner.backends import named
    must_have(on, given)
    try:
        return named(on, given)
    except ClusterError as error:
        raise Failure(f"--on {on}: {error}", 2) from error


def must_have(on: str, given: Mapping[str, Any]) -> None:
    """Raises where a place has not all of these options.

    Raises:
        Failure: it has not; with the places that have.
        ProviderError: there is no such place.
    """
    place = registry.place_named(on)
    having = {option.name for option in place.options}
    for name in (name for name in given if name not in having):
        if name in place.no_options:
            raise Failure(f"{written(name)}: {place.no_options[name]}; leave it out", 2)
        others = [other.name for other in registry.places() if any(option.name == name for option in other.options)]
        raise Failure(f"{written(name)}: --on {on} has no such option; leave it out, or {registry.run_with(others)}", 2)


def _parameter(option: Option) -> inspect.Parameter:
    kind = Path | None if option.default is None else type(option.default)
    least, most = option.between or (None, None)
    metadata = typer.Option(written(option.name), metavar=option.metavar, help=option.help, min=least, max=most)
    return inspect.Parameter(option.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=option.default,
                             annotation=Annotated[kind, metadata])
