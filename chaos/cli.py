"""The command line: `diloco-chaos run|list|show|validate|check|doctor`."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from chaos import plan as plans
from chaos import scenario as scenarios_
from chaos.folder import FolderError, RunFolder
from chaos.live import Terminal
from chaos.plan import Plan, freeze
from chaos.references import NoReferenceError
from chaos.scenario import ScenarioError
from harness.trainer.data import CorpusError
from harness.units import seconds
from scenarios import find

_HELP = """Breaks a Decoupled DiLoCo training run on purpose, and proves from recorded events whether it healed.

Exit codes: 0 all checks passed, 1 a check failed, 2 the scenario, the folder or the command is wrong, 3 inconclusive,
130 interrupted."""

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown",
                  pretty_exceptions_enable=False, help=_HELP)

JsonOption = Annotated[bool, typer.Option(
    "--json", help="One JSON object on standard output, the rest on standard error.")]


class Failure(Exception):  # noqa: N818 - an end of the program, not an error of it
    """Ends the command with a message and an exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@app.command()
def run(
    scenario: Annotated[str, typer.Argument(help="A scenario's name or file.")] = "",
    plan: Annotated[Path | None, typer.Option(help="Repeat this frozen plan (plan.json of a run).")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Freezes the scenario's choices, and seeds the training "
                                             "(0 if not given).")] = None,
    runs_dir: Annotated[Path, typer.Option(help="Where the run's folder is made.")] = Path("runs"),
    on: Annotated[str, typer.Option(help="local (processes); compose and simulated are not here yet.")] = "local",
    corpus: Annotated[str, typer.Option(help="Train on this file or folder, `stdlib`, or `markov`.")] = "",
    deadline: Annotated[str, typer.Option(help="Give up after this time, as in 90s.")] = "",
    toxiproxy_port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the links' API, to look on with "
                                                "toxiproxy-cli; 0: any.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Run a scenario and judge it.

    Example: `diloco-chaos run flagship --seed 3`
    """
    from chaos.report import show as show_report
    from chaos.run import document, exit_code, local_cluster, run_plan
    frozen = _with_options(_frozen(scenario, plan, seed), corpus, deadline)
    if on != "local":
        choices = {"compose", "simulated"}
        raise Failure(f"--on {on}: " + ("not in this version; use --on local" if on in choices else
                                        f"no such place{scenarios_.nearest(on, ['local', *choices])}"), 2)
    _must_be_free(toxiproxy_port)
    console = Console(stderr=as_json)
    for warning in scenarios_.warnings_of(frozen.cluster, [planned.fault for planned in frozen.faults]):
        console.print(f"warning: {warning}", style="yellow", markup=False)
    with Terminal(console) as terminal:
        result = run_plan(frozen, runs_dir, terminal, make_cluster=local_cluster(toxiproxy_port))
    if as_json:
        _print_json(document(result))
    else:
        show_report(result, console)
    raise typer.Exit(exit_code(result))


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the scenarios of the library.

    Example: `diloco-chaos list`
    """
    found = [scenarios_.load(str(path))[0] for path in find().values()]
    if as_json:
        _print_json({"scenarios": [{"name": one.name, "tier": one.tier, "description": one.description}
                                   for one in found]})
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("name", "tier", "what happens"):
        table.add_column(column)
    for one in found:
        table.add_row(one.name, one.tier, one.description)
    Console().print(table)


@app.command()
def show(scenario: Annotated[str, typer.Argument(help="A scenario's name or file.")],
         as_json: JsonOption = False) -> None:
    """Show a scenario: its text, its faults in words, its predicted availability.

    Example: `diloco-chaos show flagship`
    """
    loaded, path = scenarios_.load(scenario)
    frozen = freeze(loaded, 0)
    if as_json:
        _print_json({"file": str(path), "scenario": loaded.model_dump(mode="json", by_alias=True),
                     "predicted_availability": frozen.predicted_availability()})
        return
    console = Console()
    console.print(Syntax(path.read_text(), "yaml", background_color="default", word_wrap=True))
    for planned in frozen.faults:
        console.print(f"{planned.id}  {planned.fault.words()}, {planned.fault.trigger_words()}", markup=False)
    console.print(f"predicted availability {frozen.predicted_availability():.0%}", highlight=False)


@app.command()
def validate(scenarios: Annotated[list[str], typer.Argument(help="Names or files of scenarios.")],
             as_json: JsonOption = False) -> None:
    """Check scenarios without running them: every problem, with its place.

    Example: `diloco-chaos validate my-scenario.yaml`
    """
    problems: list[str] = []
    warnings: list[str] = []
    for name in scenarios:
        try:
            loaded, path = scenarios_.load(name)
            warnings += [f"{path}: {text}" for text in scenarios_.warnings_of(loaded.cluster, loaded.faults)]
        except ScenarioError as error:
            problems += str(error).splitlines()
    if as_json:
        _print_json({"valid": not problems, "problems": problems, "warnings": warnings})
    else:
        for line in problems:
            typer.echo(line, err=True)
        for line in warnings:
            typer.echo(f"warning: {line}")
        if not problems:
            typer.echo(f"{len(scenarios)} valid")
    raise typer.Exit(2 if problems else 0)


@app.command()
def check(folder: Annotated[Path, typer.Argument(help="The folder of a run, runs/<id>.")], as_json: JsonOption = False,
          ) -> None:
    """Judge a recorded run again: the same folder gives the same verdicts.

    Example: `diloco-chaos check runs/20260101-120000-flagship-1a2b`
    """
    from chaos.report import show as show_report
    from chaos.run import document, exit_code, judged
    try:
        result = judged(RunFolder.open(folder))
        story = document(result)
    except (KeyError, TypeError, ValueError) as error:
        raise Failure(f"{folder}: its tape can't be understood: {type(error).__name__} {error}", 2) from error
    if as_json:
        _print_json(story)
    else:
        show_report(result, Console())
    raise typer.Exit(exit_code(result))


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """Tell what this machine can do, and what is missing.

    Example: `diloco-chaos doctor`
    """
    from chaos.doctor import examine
    lines = examine()
    missing = any(line.state == "missing" for line in lines)
    if as_json:
        _print_json({"ready": not missing, "found": [line._asdict() for line in lines]})
        raise typer.Exit(2 if missing else 0)
    marks = {"ok": "[green]✓[/]", "missing": "[red]✗[/]", "optional": "[yellow]-[/]"}
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for line in lines:
        table.add_row(marks[line.state], line.name, "\n".join(filter(None, [line.found, line.advice])))
    Console().print(table)
    raise typer.Exit(2 if missing else 0)


def _frozen(scenario: str, plan: Path | None, seed: int | None) -> Plan:
    if plan is not None and seed is not None:
        raise Failure("--seed: a frozen plan has its seed; run the scenario itself with another one", 2)
    if bool(scenario) == (plan is not None):
        raise Failure("name a scenario, as in `diloco-chaos run flagship`, or a plan, as in "
                      "`diloco-chaos run --plan runs/<id>/plan.json`", 2)
    return plans.load(plan) if plan is not None else freeze(scenarios_.load(scenario)[0], seed or 0)


def _with_options(plan: Plan, corpus: str, deadline: str) -> Plan:
    """The plan with what the command line overrides; its digest tells that it is another one."""
    cluster = plan.cluster
    if corpus:
        path = corpus if corpus in ("stdlib", "markov") else str(Path(corpus).expanduser().resolve())
        cluster = cluster.model_copy(update={"corpus": path})
    if not deadline:
        return plan.model_copy(update={"cluster": cluster})
    try:
        limit = float(seconds(deadline))
        if limit <= 0:
            raise ValueError("it must be more than 0s")
    except ValueError as error:
        raise Failure(f"--deadline: {error}", 2) from error
    return plan.model_copy(update={"cluster": cluster, "deadline": limit})


def _must_be_free(port: int) -> None:
    """Tell before anything starts that a port is taken."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise Failure(f"--toxiproxy-port {port}: {os.strerror(error.errno or 0)}; choose another one, "
                      f"or leave it out for any", 2) from error


def _print_json(content: Any) -> None:
    sys.stdout.write(json.dumps(content, indent=2) + "\n")


def main() -> NoReturn:
    """The entry point: every expected error becomes a message and an exit code."""
    if sys.platform != "linux":
        sys.exit("diloco-chaos runs on Linux only: it needs process signals and /proc as they are there")
    try:
        code = app(standalone_mode=False) or 0  # without its standalone mode, typer returns what Exit carries
    except Failure as failure:
        code = _fail(str(failure), failure.code)
    except (ScenarioError, FolderError, CorpusError) as error:
        code = _fail(str(error), 2)
    except NoReferenceError as error:
        code = _fail(str(error), 3)
    except OSError as error:  # a full disk, most likely: the run's folder keeps what was written
        code = _fail(f"{error}; free some space or name another place with --runs-dir", 3)
    except (KeyboardInterrupt, typer.Abort):
        code = _fail("interrupted; no process of ours is left", 130)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        code = _fail(f"{error.format_message()}\nTry `diloco-chaos --help`.", 2)
    sys.exit(code)


def _fail(message: str, code: int) -> int:
    print(message, file=sys.stderr)
    return code


if __name__ == "__main__":
    main()

