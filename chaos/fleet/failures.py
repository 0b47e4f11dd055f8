"""The options that say how a fleet's slices fail: a process, or a trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from diloco_chaos.chaos.commands.common import Failure
from diloco_chaos.chaos.commands.options import written

if TYPE_CHECKING:
    from diloco_chaos.harness.failures.fitting import Fitted
    from diloco_chaos.harness.failures.process import FailureProcess
    from diloco_chaos.harness.failures.trace import Trace

_DISTRIBUTIONS = ("shape", "repair_shape", "repair_exponent")
_OWN = ("mtbf", "repair")


def with_failures(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options with what a process or a trace says in the place of the distributions.

    Raises:
        Failure: they contradict each other, or what they name can't be read.
    """
    process, trace = given.get("process"), given.get("trace")
    if process and trace:
        raise Failure("--process, --trace: slices fail by one of them: leave the other out", 2)
    if not trace:
        _refuse(given, ("trace_nodes", "how"), "it says how a trace is used: name one (--trace)")
    if process or trace:
        _refuse(given, _DISTRIBUTIONS, f"the {'process' if process else 'trace'} says it: leave out one of them")
    if process:
        return given | {"process": _process(str(process))}
    return given | _traced(given) if trace else given


def _refuse(given: dict[str, Any], names: Sequence[str], why: str) -> None:
    """Raises where one of these options is given."""
    if there := [name for name in names if name in given]:
        raise Failure("\n".join(f"{written(name)}: {why}" for name in there), 2)


def _process(text: str) -> FailureProcess:
    """Return the process that a mapping, or a file with one, describes."""
    from pydantic import ValidationError
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    from diloco_chaos.harness.base.errors import first, nearest
    from diloco_chaos.harness.failures.process import FailureProcess
    where = "--process"
    if not text.lstrip().startswith("{"):
        where = f"--process {text}"
        try:
            text = Path(text).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise Failure(f"{where}: {getattr(error, 'strerror', None) or 'it is no text'}; name a YAML file, or write "
                          f"a mapping, like '{{relapse: 30%}}'", 2) from error
    try:
        content = YAML(typ="safe").load(text)
    except YAMLError as error:
        raise Failure(f"{where}: this is no YAML: {getattr(error, 'problem', None) or first(error)}", 2) from error
    if not isinstance(content, dict):
        raise Failure(f"{where}: a mapping is wanted, like '{{relapse: 30%, burst: 20%}}'", 2)
    known = FailureProcess.model_fields
    problems = [f"{name}: there is no such setting{nearest(name, known)}; it has {', '.join(known)}"
                for name in content if name not in known]
    try:
        process = FailureProcess.model_validate({name: content[name] for name in content if name in known})
    except ValidationError as error:
        problems += [": ".join([*map(str, problem["loc"][:1]), problem["msg"].removeprefix("Value error, ")])
                     for problem in error.errors()]
    if problems:
        raise Failure("\n".join(f"{where}: {problem}" for problem in problems), 2)
    return process


def _traced(given: dict[str, Any]) -> dict[str, Any]:
    """Return what a trace says: its mean times, where no other ones are asked for, and the process that is like it."""
    from diloco_chaos.harness.base.units import count, long_seconds
    from diloco_chaos.harness.failures.fitting import means
    from diloco_chaos.harness.failures.source import HOW
    how = given.get("how", "fitted")
    if how not in HOW:
        raise Failure(f"--how {how}: one of {', '.join(HOW)}", 2)
    file = Path(given["trace"])
    trace = noted_trace(file, given.get("trace_nodes"))
    if how != "fitted":
        _refuse(given, _OWN, f"with --how {how} the trace says it: leave it out, or take --how fitted")
    in_service_s, away_s = means(trace)
    mtbf_s = in_service_s * _said(count, given, "slice_chips", 256)
    process = fitted_to(file, trace).process if how == "fitted" else None
    if process is not None and "mtbf" in given:
        process = process.at_pace(_said(long_seconds, given, "mtbf", mtbf_s) / mtbf_s)
    return {"mtbf": f"{mtbf_s!r}s", "repair": f"{away_s!r}s"} | given | {"trace": str(file), "process": process}


def _said(convert: Callable[[Any], Any], given: dict[str, Any], name: str, default: float) -> float:
    """Return what an option says; the default, too, where it is none: the fleet's own settings tell what is wrong."""
    try:
        return float(convert(given.get(name, default)))
    except ValueError:
        return default


def noted_trace(file: Path, nodes: int | None) -> Trace:
    """Return a trace; what was made of what it leaves open is said to stderr."""
    from diloco_chaos.harness.failures.source import trace_of
    trace = trace_of(file, nodes)
    for note in trace.notes:
        typer.echo(f"{file}: {note}", err=True)
    return trace


def fitted_to(file: Path, trace: Trace) -> Fitted:
    """Return what was fitted to a trace.

    Raises:
        Failure: nothing can be.
    """
    from diloco_chaos.harness.failures.fitting import fitted
    try:
        return fitted(trace)
    except ValueError as error:
        raise Failure(f"{file}: {error}", 2) from error
