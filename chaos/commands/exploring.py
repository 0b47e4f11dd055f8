"""The command that tries many schedules."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from diloco_chaos.chaos.commands.common import Failure, JsonOption, one_of, print_json, search_bar, workers_of
from diloco_chaos.chaos.commands.places import backend_of, on_option
from diloco_chaos.harness.base.units import seconds

if TYPE_CHECKING:
    from diloco_chaos.chaos.scenario.model import Scenario
    from diloco_chaos.faults.storm import Storm

_MOST_RUNS = 1_000_000
_RUNS = 1000
"""How many are tried where neither a number nor a time is given."""
_SIMULATED, _LOCAL = "simulated", "local"
_MOST_FAULTS, _MOST_OF_COMMANDS = 6, 3
"""Faults of a schedule, if nothing is said: under virtual time, and of commands, whose runs are short."""


def explore(
    scenario: Annotated[str, typer.Argument(help="A scenario's name or file: its cluster and checks are used.")],
    runs: Annotated[int | None, typer.Option(min=1, max=_MOST_RUNS, help="How many schedules to try; 1000 where no "
                                             "time is given.")] = None,
    within: Annotated[str, typer.Option("--for", metavar="TIME", help="Try schedules for so long, as in 60s.")] = "",
    until_found: Annotated[bool, typer.Option("--until-found", help="End as soon as something broke.")] = False,
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Worker processes.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    max_faults: Annotated[int | None, typer.Option(min=1, max=20, help="The most faults in one schedule: 6, and 3 of "
                                                   "a trainer of commands, if not given; with --storms all.")] = None,
    faults: Annotated[str, typer.Option(help="Kinds to choose from, as in kill,pause; all if not given.")] = "",
    storms: Annotated[bool, typer.Option("--storms", help="Draw each schedule from the scenario's own storms (their "
                                         "process, trace or mean time), not from all kinds and moments.")] = False,
    clusters: Annotated[str, typer.Option(help="own: the scenario's cluster; drawn: another one for each schedule, "
                                          "with the scenario's model, data, budget and pace.")] = "own",
    corpus_dir: Annotated[Path | None, typer.Option(help="Where results and failing schedules are kept, "
                                                    "explored/SCENARIO if not given; the next exploration goes "
                                                    "on there.")] = None,
    guided: Annotated[bool, typer.Option(help="Prefer schedules in which a fault meets a protocol state for the "
                                          "first time; of commands, those that build on what brought something new "
                                          "into a log.")] = True,
    workers: Annotated[str, typer.Option(help="Where schedules are tried: local, or ray (a Ray cluster).")] = "local",
    address: Annotated[str, typer.Option(help="Address of a Ray cluster; without it one is started on this "
                                         "machine.")] = "",
    torch: Annotated[bool, typer.Option(help="Train the scenario's own model (slow), not a quadratic.")] = False,
    on: Annotated[str, on_option(_SIMULATED)] = "",
    as_json: JsonOption = False,
) -> None:
    """Try random fault schedules under virtual time, and reduce each that breaks something to the fewest faults. Those
    of a trainer of commands are tried in real time, on local if nothing is said.

    Example: `diloco-chaos explore base --for 60s --jobs 2`, or of a trainer of commands
    `diloco-chaos explore mine.yaml --for 10m --jobs 2`
    """
    from diloco_chaos.chaos.exploration.corpus import ExplorationError
    from diloco_chaos.chaos.exploration.explore import SCHEDULES, Exploration, Search
    from diloco_chaos.chaos.exploration.explore import explore as search
    from diloco_chaos.chaos.exploration.generate import known
    from diloco_chaos.chaos.exploration.report import document, show
    from diloco_chaos.chaos.exploration.storms import kinds_of
    from diloco_chaos.chaos.scenario.loading import load
    from diloco_chaos.faults.composite import MOST_PARTS
    from diloco_chaos.harness.base.workers import WorkersError
    base = own = load(scenario)[0]
    stormy = _storms_of(own, faults, clusters) if storms else ()
    most_faults = max_faults or (MOST_PARTS if storms else
                                 _MOST_OF_COMMANDS if base.trainer.programs() else _MOST_FAULTS)
    chosen = kinds_of(stormy) or ([kind.strip() for kind in faults.split(",")] if faults else None)
    if base.trainer.programs():
        from diloco_chaos.chaos.commands.hunting import hunt
        one_of("--clusters", clusters, ["own"])
        one_of("--workers", workers, ["local"])
        if torch:
            raise Failure("--torch: commands train what they train: leave it out", 2)
        hunt(Search(own, seed, most_faults, chosen, guided, on=on or _LOCAL, storms=stormy), corpus_dir, jobs, runs,
             _time(within), until_found=until_found, as_json=as_json)
    on = on or _SIMULATED
    place = backend_of(on, {})
    if workers == "ray" and not place.virtual:
        raise Failure(f"--workers ray: runs on {on} take this machine: leave it out, or --on {on}", 2)
    if not torch:
        base = base.model_copy(update={"cluster": base.trainer.cheapest(), "faults": ()})
    one_of("--clusters", clusters, ["own", "drawn"])
    try:
        kinds = known(chosen, place.abilities, own)
    except ValueError as error:
        raise Failure(f"{'--storms' if storms else '--faults'}: {error}", 2) from error
    most_s, began = _time(within), time.monotonic()
    console = Console(stderr=as_json)
    pool = workers_of(SCHEDULES, jobs, workers, address)
    progress = search_bar(console)
    most = runs or (_MOST_RUNS if most_s else _RUNS)
    task = progress.add_task("", total=most_s or most, words="")
    folder = corpus_dir or Path("explored") / (base.name if place.virtual else f"{base.name}-on-{on}")
    try:
        with progress:
            def tell(state: Exploration) -> None:
                took = time.monotonic() - began
                hit = len(set(state.hit) & state.possible)
                words = (f"{state.done} run, {state.decided} decided, {hit}/{len(state.possible)} moments, "
                         f"{state.done / took:.1f}/s, {len(state.found)} found")
                progress.update(task, completed=took if most_s else state.done, words=words)

            def enough(state: Exploration) -> bool:
                return (until_found and bool(state.found)) or 0 < most_s <= time.monotonic() - began
            state = search(Search(base, seed, most_faults, kinds, guided, clusters == "drawn", on,
                                  str(folder / "runs"), stormy), folder, pool, runs=most,
                           stop=enough, tell=tell)
    except (ExplorationError, WorkersError) as error:
        raise Failure(str(error), 2) from error
    except KeyboardInterrupt as error:
        raise Failure(f"interrupted; the same command goes on where it was (see {folder})", 130) from error
    finally:
        pool.close()
    print_json(document(state)) if as_json else show(state, console)
    raise typer.Exit(state.exit_code)


def _storms_of(scenario: Scenario, faults: str, clusters: str) -> tuple[Storm, ...]:
    """Return the storms that schedules are drawn from.

    Raises:
        Failure: there are none, or another option contradicts them.
    """
    from diloco_chaos.chaos.exploration.storms import storms_of
    if not (storms := storms_of(scenario)):
        raise Failure(f"--storms: scenario {scenario.name} has no storm: give it one (`- storm: learners`, with a "
                      f"`process` or a `trace`), or leave --storms out", 2)
    if faults:
        raise Failure("--faults: with --storms the storms say what happens (`of`, `classes`): leave one of them out", 2)
    if clusters == "drawn":
        raise Failure("--clusters drawn: the storms are meant for the scenario's own nodes: leave one of them out", 2)
    return storms


def _time(given: str) -> float:
    """Seconds; 0 where nothing is given."""
    try:
        return seconds(given) if given else 0.0
    except ValueError as error:
        raise Failure(f"--for: {error}", 2) from error
