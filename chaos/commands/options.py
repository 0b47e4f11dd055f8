"""Options of a command as settings: which were given, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_origin

import typer

from diloco_chaos.chaos.commands.common import Failure

if TYPE_CHECKING:
    from pydantic import BaseModel

Read = TypeVar("Read", bound="BaseModel")
JobsOption = Annotated[int, typer.Option("--jobs", min=0, help="Processes; 0: one for each processor.")]
AddressOption = Annotated[str, typer.Option("--address", help="Address of a Ray cluster.")]


def setting(default: str, words: str, panel: str | None = None) -> Any:
    """An option that is a setting of a model: `default` is what the model has where it is not given, as people write
    it, so that nothing must be imported for `--help`."""
    return typer.Option(show_default=default, help=words, rich_help_panel=panel)


def options_of(context: typer.Context, model: type[BaseModel]) -> dict[str, Any]:
    """The options that are settings of this model, as far as somebody gave them."""
    return {name: value for name, value in context.params.items()
            if name in model.model_fields and value not in ("", None)}


def asked_of(context: typer.Context, model: type[Read]) -> Read:
    """Return all of the model's settings; of a tuple several are given, with commas.

    Raises:
        Failure: they are none.
    """
    given = options_of(context, model)
    for name in given:
        if get_origin(model.model_fields[name].annotation) is tuple:
            given[name] = parts(str(given[name]))
            if not given[name]:
                raise Failure(f"{written(name)}: name at least one", 2)
    return read(model, given)


def parts(text: str) -> list[str]:
    """Return the parts of a list with commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def written(name: str) -> str:
    """Return a setting's name as it is written as an option."""
    return f"--{name.replace('_', '-')}"


def drawable(file: Path | None) -> None:
    """Raises where `--plot` names nothing that can be drawn; told before anything is computed."""
    if file is not None and file.suffix not in (".svg", ".png"):
        raise Failure(f"--plot {file}: name a file that ends in .svg or .png", 2)
    if file is not None and not file.parent.is_dir():
        raise Failure(f"--plot {file}: there is no folder {file.parent}: make it, or name another file", 2)


def draw(svg: str, file: Path) -> None:
    """Write what `--plot` asks for."""
    if file.suffix == ".png":
        from diloco_chaos.chaos.report.forms.plot import rasterized
        file.write_bytes(rasterized(svg, "--plot"))
    else:
        file.write_text(svg)


def read(model: type[Read], given: dict[str, Any]) -> Read:
    """Options as settings.

    Raises:
        Failure: they are none; each that is wrong has a line.
    """
    from pydantic import ValidationError
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise Failure("\n".join(dict.fromkeys(
            " ".join([*(f"{written(str(part))}:" for part in problem["loc"][:1]),
                      problem["msg"].removeprefix("Value error, ")]) for problem in error.errors())), 2) from error
