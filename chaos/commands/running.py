"""The commands that run something: `run` and `resume`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from diloco_chaos.chaos.commands.allowing import AllowOption, must_be_allowed
from diloco_chaos.chaos.commands.baselines import BaselineOption, SlowerByOption, beside_baseline, share_of
from diloco_chaos.chaos.commands.common import (
    Failure,
    JsonOption,
    RunArgument,
    VerboseOption,
    print_json,
    understood,
)
from diloco_chaos.chaos.commands.places import backend_of, on_option, takes_place_options
from diloco_chaos.chaos.commands.repeating import repeat_beside, repeat_runs
from diloco_chaos.chaos.scenario import plan as plans
from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.chaos.scenario.model import Scenario
from diloco_chaos.chaos.scenario.plan import Plan, freeze
from diloco_chaos.chaos.scenario.step_time import AUTO, PaceError, duration, paced
from diloco_chaos.chaos.scenario.warnings import warnings_of
from diloco_chaos.harness.base.device import DEVICES, Device, best
from diloco_chaos.harness.base.errors import nearest
from diloco_chaos.harness.base.units import names
from diloco_chaos.harness.places.place import MOST_LOAD
from diloco_chaos.harness.places.registry import DEFAULT
from diloco_chaos.harness.trainers.api.settings import TrainerSettings
from diloco_chaos.harness.trainers.storage.workings import AMOUNTS, Amount

if TYPE_CHECKING:
    from diloco_chaos.chaos.runner.run import Result


@takes_place_options
def run(
    scenario: Annotated[str, typer.Argument(help="A scenario's name or file.")] = "",
    plan: Annotated[Path | None, typer.Option(help="Instead of a scenario: repeat this frozen plan (plan.json of a "
                                               "run).")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Freezes the scenario's choices, and seeds the training "
                                             "(0 if not given).")] = None,
    repeat: Annotated[int | None, typer.Option(
        min=1, max=1000, show_default="1; with --baseline those that it has",
        help="Run with this many seeds in a row, and print the pass rate.")] = None,
    baseline: BaselineOption = None,
    slower_by: SlowerByOption = "",
    runs_dir: Annotated[Path, typer.Option(help="Where the run's folder is made.")] = Path("runs"),
    on: Annotated[str, on_option()] = DEFAULT,
    given: Any = None,
    corpus: Annotated[str, typer.Option(help="What to train on: a file, a folder, `stdlib` (Python's own sources) or "
                                        "`markov` (generated); by default the scenario says it.")] = "",
    deadline: Annotated[str, typer.Option(help="Give up after this time, as in 90s.")] = "",
    step_time: Annotated[str, typer.Option(help="Time of a learner's step, as in 150ms; raise it on a slower machine; "
                                            "auto: what this machine can hold.")] = "",
    device: Annotated[str, typer.Option(help="What learners compute on: cpu, cuda, or auto (cuda where there is "
                                        "one).")] = "",
    retries_inconclusive: Annotated[int, typer.Option(min=0, max=10, help="How many times to run it again while "
                                                      "it is inconclusive. A failed run is never repeated.")] = 0,
    evidence: Annotated[str, typer.Option(help="How much of what nodes compute with is kept, for it to be computed "
                                          "again: sampled (64 MB at the most), full, or off.")] = "sampled",
    allow_commands: AllowOption = False,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a scenario and judge it.

    Exit codes: 0 passed, 1 a check failed or --baseline was quicker, 3 inconclusive.

    Example: `diloco-chaos run flagship --seed 3`
    """
    from diloco_chaos.chaos.report.live import Terminal
    from diloco_chaos.chaos.report.saved import kept
    from diloco_chaos.chaos.runner.run import run_again_if_inconclusive, run_plan
    share = share_of(slower_by, baseline)
    several = baseline is not None or (repeat or 1) > 1
    if several and retries_inconclusive:
        why = ("every seed of --baseline runs once" if baseline
               else "the pass rate of --repeat leaves inconclusive runs out")
        raise Failure(f"--retries-inconclusive: {why}; give one of the two", 2)
    wanted = _frozen(scenario, plan, seed, repeat or 1, baseline)
    if plan is not None:
        must_be_allowed(wanted[0], str(plan), allow_commands)
    amount = _amount(evidence)
    backend = backend_of(on, given)

    def settled(each: Plan) -> Plan:
        return with_options(each, corpus, deadline, step_time, device, backend.most_load)
    before, frozen = None, tuple(map(settled, wanted)) if baseline is None else ()
    if baseline is not None:
        seeds = [each.seed for each in wanted] if repeat or seed is not None else []
        before, frozen = beside_baseline(scenario, baseline, backend.name, seeds, settled)
    console = Console(stderr=as_json)
    faults = [planned.fault for planned in frozen[0].faults]
    for warning in frozen[0].trainer.idle() + warnings_of(frozen[0].trainer, faults):
        console.print(f"warning: {warning}", style="yellow", markup=False)
    if step_time == AUTO:
        console.print(f"· pace of a learner: {frozen[0].cluster.step_time * 1e3:.0f} ms a step", markup=False)
    if before is not None:
        raise typer.Exit(repeat_beside(before, share, frozen, runs_dir, console, backend, as_json))
    if several:
        raise typer.Exit(repeat_runs(frozen, runs_dir, console, backend, as_json))
    with Terminal(console, virtual=bool(backend.virtual)) as terminal:
        result = run_again_if_inconclusive(lambda: kept(run_plan(frozen[0], runs_dir, terminal, backend, amount)),
                                           retries_inconclusive, terminal.say)
    _print_and_exit(result, console, verbose, as_json)


@takes_place_options
def resume(
    folder: RunArgument,
    from_checkpoint: Annotated[int, typer.Option(min=0, help="Number of the global checkpoint to resume from; 0: the "
                                                 "newest that is whole.")] = 0,
    runs_dir: Annotated[Path | None, typer.Option(help="Where the new folder is made; beside the old one if not "
                                                  "given.")] = None,
    allow_commands: AllowOption = False,
    given: Any = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Resume a run after everything was killed, from its last global checkpoint, and judge it.

    Work before the checkpoint is neither lost nor done twice. Work after it is lost, and listed.

    Example: `diloco-chaos resume runs/20260101-120000-flagship-1a2b`
    """
    from diloco_chaos.chaos.evidence.run_folder import RunFolder, changed
    from diloco_chaos.chaos.report.live import Terminal
    from diloco_chaos.chaos.report.saved import kept
    from diloco_chaos.chaos.runner.resume import origin_of, resume_summary
    from diloco_chaos.chaos.runner.resume import resume as go_on
    with understood(folder):
        run = RunFolder.open(folder)
        origin, refused = origin_of(run, from_checkpoint)
        notes, otherwise = resume_summary(origin), changed(run.manifest())
    must_be_allowed(origin.plan, str(folder), allow_commands)
    runs = runs_dir or run.path.parent
    RunFolder.prepare(runs)
    backend = backend_of(run.place or DEFAULT, given)
    console = Console(stderr=as_json)
    for why in [*refused, *otherwise]:
        console.print(f"warning: {why}", style="yellow", markup=False)
    for line in notes:
        console.print(f"· {line}", markup=False, highlight=False)
    with Terminal(console) as terminal:
        result = kept(go_on(run, origin, runs, terminal, backend))
    _print_and_exit(result, console, verbose, as_json)


def _print_and_exit(result: Result, console: Console, verbose: bool, as_json: bool) -> None:
    """Print a run's report, or its JSON, and end the command.

    Raises:
        Exit: always, with the run's exit code.
    """
    from diloco_chaos.chaos.report.terminal import show, show_interrupted
    from diloco_chaos.chaos.runner.run import INTERRUPTED, document, exit_code
    code = exit_code(result)
    if as_json:
        print_json(document(result))
    elif code == INTERRUPTED and not verbose:
        show_interrupted(result, console)
    else:
        show(result, console, verbose)
    raise typer.Exit(code)


def _frozen(scenario: str, plan: Path | None, seed: int | None, repeat: int, baseline: Path | None) -> list[Plan]:
    if plan is not None and baseline is not None:
        raise Failure("--baseline: a frozen plan is one run, which tells nothing of the noise; name the scenario, as "
                      "in `diloco-chaos run flagship --repeat 5 --baseline RUNS`", 2)
    if plan is not None and (seed is not None or repeat > 1):
        raise Failure(f"--{'seed' if seed is not None else 'repeat'}: a frozen plan has its seed; run the scenario "
                      f"itself with {'another one' if seed is not None else 'several'}", 2)
    if bool(scenario) == (plan is not None):
        raise Failure("name a scenario, as in `diloco-chaos run flagship`, or a plan, as in "
                      "`diloco-chaos run --plan runs/<id>/plan.json`", 2)
    if plan is not None:
        return [plans.load(plan)]
    loaded: Scenario = load(scenario)[0]
    return [freeze(loaded, number) for number in range(seed or 0, (seed or 0) + repeat)]


def _with(plan: Plan, key: str, value: str) -> TrainerSettings:
    if key not in type(plan.cluster).model_fields:
        raise Failure(f"--{key}: trainer {plan.trainer.name} has no such setting", 2)
    return plan.cluster.model_copy(update={key: value})


def with_options(plan: Plan, corpus: str = "", deadline: str = "", step_time: str = "", device: str = "",
                 most_load: float = MOST_LOAD) -> Plan:
    """The plan with what the command line overrides; its digest tells that it is another one."""
    cluster = plan.cluster
    if corpus:
        path = corpus if corpus in ("stdlib", "markov") else str(Path(corpus).expanduser().resolve())
        cluster = _with(plan, "corpus", path)
    if device:
        cluster = _with(plan.model_copy(update={"cluster": cluster}), "device", _device(device))
    plan = plan.model_copy(update={"cluster": cluster})
    try:
        limit = duration(deadline) if deadline else None
    except PaceError as error:
        raise Failure(f"--deadline: {error}", 2) from error
    try:
        plan = paced(plan, step_time, most_load) if step_time else plan
    except PaceError as error:
        raise Failure(f"--step-time: {error}", 2) from error
    return plan.model_copy(update={"deadline": limit}) if limit else plan


def _amount(choice: str) -> Amount:
    chosen = next((amount for amount in AMOUNTS if amount == choice), None)
    if chosen is None:
        raise Failure(f"--evidence {choice}: no such amount{nearest(choice, AMOUNTS)}; there are {names(AMOUNTS)}", 2)
    return chosen


def _device(choice: str) -> Device:
    if choice == AUTO:
        return best()
    chosen = next((device for device in DEVICES if device == choice), None)
    if chosen is None:
        raise Failure(f"--device {choice}: no such device{nearest(choice, (*DEVICES, AUTO))}; there are "
                      f"{', '.join(DEVICES)} and {AUTO}", 2)
    return chosen
