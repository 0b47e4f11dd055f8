"""The command that holds modes against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from diloco_chaos.chaos.commands.common import Failure, JsonOption, print_json
from diloco_chaos.chaos.commands.places import backend_of, on_option
from diloco_chaos.chaos.commands.running import with_options
from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.chaos.scenario.warnings import warnings_of
from diloco_chaos.harness.base.errors import nearest
from diloco_chaos.harness.places.registry import VIRTUAL


def compare(
    scenario: Annotated[str, typer.Argument(help="A scenario's name or file.")],
    modes: Annotated[str | None, typer.Option(help="Modes, as in decoupled,streaming; by default every one that "
                                              "suits the plan.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Freezes the scenario's choices, and seeds the training.")] = 0,
    runs_dir: Annotated[Path, typer.Option(help="Where the runs' folders are made.")] = Path("runs"),
    on: Annotated[str, on_option(VIRTUAL)] = VIRTUAL,
    step_time: Annotated[str, typer.Option(help="Time of a learner's step, as in 150ms; raise it on a slower machine; "
                                           "auto: what this machine can hold.")] = "",
    device: Annotated[str, typer.Option(help="What learners compute on; same as for `run`.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Run the same frozen plan in several training modes, and print the results side by side.

    Example: `diloco-chaos compare deaths --modes decoupled,streaming`
    """
    from diloco_chaos.chaos.report.compare import compared, document, plans, show
    backend = backend_of(on, {})
    plan = with_options(freeze(load(scenario)[0], seed), step_time=step_time, device=device,
                        most_load=backend.most_load)
    all_modes = plan.trainer.modes
    if not all_modes:
        raise Failure(f"{scenario}: trainer {plan.trainer.name} has no modes to compare", 2)
    asked = ",".join(all_modes) if modes is None else modes
    chosen = list(dict.fromkeys(name for mode in asked.split(",") if (name := mode.strip())))
    if not chosen:
        raise Failure(f"--modes {modes!r} names none; there are {', '.join(all_modes)}", 2)
    for mode in chosen:
        if mode not in all_modes:
            raise Failure(f"--modes {modes}: no mode {mode!r}{nearest(mode, all_modes)}; "
                          f"there are {', '.join(all_modes)}", 2)
    by_mode, senseless = plans(plan, chosen)
    if modes is not None and senseless:
        possible = plans(plan, all_modes)[0]
        raise Failure("\n".join([*(f"--modes {modes}: {why}" for why in senseless.values()),
                                 f"there {'is' if len(possible) == 1 else 'are'} for it: "
                                 f"--modes {','.join(possible)}"]), 2)
    console = Console(stderr=as_json)
    for line in [*(f"left out: {why}" for why in senseless.values()),
                 *dict.fromkeys(f"warning: {text}" for each in by_mode.values()
                                for text in warnings_of(each.trainer, [planned.fault for planned in each.faults]))]:
        console.print(line, style="yellow", markup=False)
    rows, histories = compared(by_mode, runs_dir, console, backend)
    print_json(document(plan, rows)) if as_json else show(plan, rows, histories, console)
    raise typer.Exit(3 if any(row.why for row in rows) else 0)
