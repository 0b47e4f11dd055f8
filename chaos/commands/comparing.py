"""The command that holds modes against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from chaos.commands.common import Failure, JsonOption, app, print_json
from chaos.commands.running import place_of, with_options
from chaos.plan import freeze
from chaos.problems import nearest
from chaos.scenario import load
from harness.trainer.config import MODES


@app.command()
def compare(
    scenario: Annotated[str, typer.Argument(help="A scenario's name or file.")],
    modes: Annotated[str, typer.Option(help="Which, with commas between them.")] = ",".join(MODES),
    seed: Annotated[int, typer.Option(min=0, help="Freezes the scenario's choices, and seeds the training.")] = 0,
    runs_dir: Annotated[Path, typer.Option(help="Where the runs' folders are made.")] = Path("runs"),
    on: Annotated[str, typer.Option(help="simulated (virtual time), local (processes) or compose "
                                    "(containers).")] = "simulated",
    step_time: Annotated[str, typer.Option(help="Pace of a learner, as in 150ms, for a slower machine; "
                                           "auto: as this one needs.")] = "",
    device: Annotated[str, typer.Option(help="What learners compute on, as of `run`.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Run the same frozen plan in several modes, and print what each made of it.

    Example: `diloco-chaos compare storm --modes decoupled,streaming`
    """
    from chaos.compare import CompareError, compared, document, show
    chosen = list(dict.fromkeys(name for mode in modes.split(",") if (name := mode.strip())))
    if not chosen:
        raise Failure(f"--modes {modes!r} names none; there are {', '.join(MODES)}", 2)
    for mode in chosen:
        if mode not in MODES:
            raise Failure(f"--modes {modes}: no mode {mode!r}{nearest(mode, MODES)}; there are {', '.join(MODES)}", 2)
    plan = with_options(freeze(load(scenario)[0], seed), step_time=step_time, device=device)
    console = Console(stderr=as_json)
    try:
        found, histories = compared(plan, chosen, runs_dir, console, place_of(on, 0, "embedded"))
    except CompareError as error:
        raise Failure(f"--modes {modes}: {error}; leave it out", 2) from error
    print_json(document(plan, found)) if as_json else show(plan, found, histories, console)
    raise typer.Exit(3 if any(one.why for one in found) else 0)
