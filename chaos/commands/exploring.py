"""The command that tries many schedules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from chaos.commands.common import Failure, JsonOption, app, print_json
from chaos.scenario.problems import nearest


@app.command()
def explore(
    scenario: Annotated[str, typer.Argument(help="A scenario's name or file: its cluster and checks are used.")],
    runs: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many schedules to try.")] = 1000,
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Worker processes.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    max_faults: Annotated[int, typer.Option(min=1, max=20, help="The most faults in one schedule.")] = 6,
    faults: Annotated[str, typer.Option(help="Kinds to choose from, as in kill,pause; all if not given.")] = "",
    corpus_dir: Annotated[Path, typer.Option(help="Where results and failing schedules are kept; an "
                                             "interrupted exploration continues there.")] = Path("explored"),
    guided: Annotated[bool, typer.Option(help="Prefer schedules in which a fault meets a protocol state for the "
                                          "first time.")] = True,
    workers: Annotated[str, typer.Option(help="Where schedules are tried: local, or ray (a Ray cluster).")] = "local",
    address: Annotated[str, typer.Option(help="Address of a Ray cluster; without it one is started on this "
                                         "machine.")] = "",
    torch: Annotated[bool, typer.Option(help="Train the scenario's own model (slow), not a quadratic.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Try random fault schedules under virtual time, and reduce each that breaks something to the fewest faults.

    Example: `diloco-chaos explore base --runs 2000 --jobs 2`
    """
    from chaos.exploration.explore import Exploration, ExplorationError
    from chaos.exploration.explore import explore as search
    from chaos.exploration.generate import known
    from chaos.exploration.report import document, show
    from chaos.exploration.workers import InProcessWorkers, Processes, Ray, WorkersError
    from chaos.scenario.loading import load
    base = load(scenario)[0]
    if not torch:
        base = base.model_copy(update={"cluster": base.under_test.cheapest(base.cluster), "faults": ()})
    if workers not in ("local", "ray"):
        raise Failure(f"--workers {workers}: local or ray{nearest(workers, ['local', 'ray'])}", 2)
    if address and workers != "ray":
        raise Failure("--address: of a Ray cluster; say --workers ray, too", 2)
    try:
        kinds = known([kind.strip() for kind in faults.split(",")] if faults else None)
    except ValueError as error:
        raise Failure(f"--faults: {error}", 2) from error
    console = Console(stderr=as_json)
    try:
        at = Ray(address, jobs) if workers == "ray" else Processes(jobs) if jobs > 1 else InProcessWorkers()
    except WorkersError as error:
        raise Failure(f"--workers ray: {error}", 2) from error
    columns = (TextColumn("exploring"), BarColumn(bar_width=None), MofNCompleteColumn(),
               TextColumn("{task.fields[words]}"), TimeRemainingColumn())
    progress = Progress(*columns, console=console, transient=True)
    task = progress.add_task("", total=runs, words="")
    try:
        with progress:
            def tell(state: Exploration) -> None:
                hit = len(set(state.hit) & state.possible)
                words = f"{hit} of {len(state.possible)} fault x state pairs, {len(state.found)} found"
                progress.update(task, completed=state.done, words=words)
            state = search(base, corpus_dir, at, runs=runs, seed=seed, max_faults=max_faults, kinds=kinds,
                           guided=guided, tell=tell)
    except (ExplorationError, WorkersError) as error:
        raise Failure(str(error), 2) from error
    except KeyboardInterrupt as error:
        raise Failure(f"interrupted after {progress.tasks[task].completed:.0f} schedules; the same command goes on "
                      f"where it was (see {corpus_dir})", 130) from error
    finally:
        if not isinstance(at, InProcessWorkers):
            at.close()
    print_json(document(state)) if as_json else show(state, console)
    raise typer.Exit(state.exit_code)
