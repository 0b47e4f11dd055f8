"""A scenario in several training modes: which are meant, and one run of each side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from diloco_chaos.chaos.commands.common import Failure, print_json
from diloco_chaos.harness.base.errors import nearest

if TYPE_CHECKING:
    from diloco_chaos.chaos.runner.backends import Backend
    from diloco_chaos.chaos.scenario.plan import Plan


def in_modes(scenario: str, plan: Plan, modes: str | None) -> tuple[dict[str, Plan], list[str]]:
    """Return the plan in each of the modes that are asked for, all if none are, and why others are left out.

    Raises:
        Failure: there are no such modes, or the plan makes no sense in one that is asked for.
    """
    from diloco_chaos.chaos.report.compare import plans
    all_modes = plan.trainer.modes
    if not all_modes:
        raise Failure(f"{scenario}: trainer {plan.trainer.name} has no modes to compare; name another scenario, or "
                      f"say what is different with --with KEY=VALUE", 2)
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
    return by_mode, [f"left out: {why}" for why in senseless.values()]


def one_run_of_each(by_mode: dict[str, Plan], plan: Plan, runs: Path, console: Console, backend: Backend,
                    as_json: bool) -> None:
    """Run the plan once in each mode, and print what each made of the time, of the tokens and of the links.

    Raises:
        Exit: always, 3 where a run tells nothing.
    """
    from diloco_chaos.chaos.report.compare import compared, document, show
    rows, histories = compared(by_mode, runs, console, backend)
    print_json(document(plan, rows)) if as_json else show(plan, rows, histories, console)
    raise typer.Exit(3 if any(row.why for row in rows) else 0)
