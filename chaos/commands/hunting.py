"""The part of `explore` that is for trainers of commands."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer
from rich.console import Console

from diloco_chaos.chaos.commands.common import Failure, print_json, search_bar, workers_of
from diloco_chaos.chaos.commands.places import backend_of
from diloco_chaos.faults import FAULTS
from diloco_chaos.harness.base.errors import nearest
from diloco_chaos.harness.places.registry import place_named

if TYPE_CHECKING:
    from diloco_chaos.chaos.exploration.commands.hunt import HuntState
    from diloco_chaos.chaos.exploration.explore import Search
    from diloco_chaos.chaos.runner.backends import Backend

_MOST = 1_000_000


def hunt(search: Search, corpus_dir: Path | None, jobs: int, runs: int | None, most_s: float, *, until_found: bool,
         as_json: bool) -> NoReturn:
    """Search in a trainer of commands, and end the command.

    Raises:
        Failure: this can't be searched, or not there.
        Exit: with the exit code of what was found.
    """
    from diloco_chaos.chaos.exploration.commands.attempt import COMMANDS
    from diloco_chaos.chaos.exploration.commands.hunt import Hunt, HuntError
    from diloco_chaos.chaos.exploration.commands.report import document, show
    from diloco_chaos.chaos.exploration.corpus import ExplorationError
    from diloco_chaos.chaos.exploration.generate import plan_of
    from diloco_chaos.chaos.runner.run import INTERRUPTED
    from diloco_chaos.harness.base.workers import WorkersError
    if not place_named(search.on).here:
        raise Failure(f"--on {search.on}: the search is guided by logs and files of the nodes, which are on other "
                      f"machines there: --on local, or --on compose", 2)
    place = backend_of(search.on, {})
    _must_be_possible(search, place, jobs, runs or most_s)
    place.refuse(plan_of(search.base(-1), [], 0, place.abilities))
    folder = corpus_dir or Path("explored") / f"{search.scenario.name}-on-{search.on}"
    search = replace(search, runs=str(folder / "runs"))
    console, began = Console(stderr=as_json), time.monotonic()
    pool = workers_of(COMMANDS, jobs, "local", "")
    progress = search_bar(console)
    task = progress.add_task("", total=most_s or runs, words="the run without any fault")

    def tell(state: HuntState) -> None:
        words = (f"{state.runs} run, {state.decided} decided, {len(state.lessons.seen)} kinds of lines, exits and "
                 f"phases seen, {len(state.found)} found")
        done = len(state.tried) - state.taken_over
        progress.update(task, completed=time.monotonic() - began if most_s else done, words=words)

    code = 0
    try:
        search_on = Hunt(search, folder, pool, at_once=jobs, tell=tell,
                         over=lambda: 0 < most_s <= time.monotonic() - began)
        try:
            with progress:
                search_on.run(runs or _MOST, lambda state: until_found and len(state.found) > 0)
        except KeyboardInterrupt:
            code = INTERRUPTED
    except (ExplorationError, HuntError, WorkersError) as error:
        raise Failure(str(error), 2) from error
    finally:
        pool.close()
    state = search_on.state
    print_json(document(state)) if as_json else show(state, console, place.option)
    if code:
        raise Failure(f"interrupted; the same command goes on where it was (see {folder})", code)
    raise typer.Exit(state.exit_code)


def _must_be_possible(search: Search, place: Backend, jobs: int, limit: float) -> None:
    """Refuse what can't be searched.

    Raises:
        Failure: it can't.
    """
    if place.virtual:
        raise Failure(f"--on {search.on}: commands are processes, which take real time: --on local, or --on compose", 2)
    if not limit:
        raise Failure("each schedule is a run in real time: say for how long to search, as in --for 10m, or how many "
                      "schedules to try, as in --runs 50", 2)
    if jobs > 1 and place.place.in_images:
        raise Failure(f"--jobs {jobs}: on {search.on} one run goes on at a time: leave it out", 2)
    fixed = [name for name, program in search.scenario.trainer.programs().items() if program.port]
    if spares := search.scenario.cluster.later(0):
        raise Failure(f"{spares[0]} is a spare, which only a fault of the scenario's own starts: search in a scenario "
                      f"without spares", 2)
    if jobs > 1 and fixed:
        raise Failure(f"--jobs {jobs}: {fixed[0]} has the same `port` in every run: leave it out, and any free one is "
                      f"taken, or search with --jobs 1", 2)
    for kind in search.kinds or ():
        if kind not in FAULTS:
            raise Failure(f"--faults: {kind!r} is no fault{nearest(kind, list(FAULTS))}", 2)
        if FAULTS[kind].drawn is None:
            raise Failure(f"--faults: {kind!r} can't be drawn", 2)
