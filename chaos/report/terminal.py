"""The final report: timeline, faults, and last of all why a check failed, the verdict, and what to type next. Figures
of every check, the loss, tokens and the wire are there on demand. Readable at 80 columns, in a log, without colour."""

from __future__ import annotations

from math import isfinite

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from diloco_chaos.chaos.checks import Judgement
from diloco_chaos.chaos.checks.base import Verdict
from diloco_chaos.chaos.checks.injection import measure
from diloco_chaos.chaos.evidence.history import Span
from diloco_chaos.chaos.evidence.interference import Interference, interference
from diloco_chaos.chaos.evidence.phases import recoveries
from diloco_chaos.chaos.evidence.recovery.costs import costs
from diloco_chaos.chaos.evidence.run_folder import STACKS
from diloco_chaos.chaos.program import PROGRAM, called
from diloco_chaos.chaos.report import charts
from diloco_chaos.chaos.report.costs import SHOWN, cells, cost_told, in_words, not_told
from diloco_chaos.chaos.report.forms.page import PAGE
from diloco_chaos.chaos.report.model import WORDS, change, warnings_of
from diloco_chaos.chaos.report.story import MARKS, VERDICTS, because, story
from diloco_chaos.chaos.runner.resume_point import checkpoints_of
from diloco_chaos.chaos.runner.run import Result, exit_code
from diloco_chaos.harness.base.units import show_seconds
from diloco_chaos.harness.record.tape.events import Continued
from diloco_chaos.harness.trainers.storage.global_checkpoint import CHECKPOINTS

_STYLES = {"passed": "green", "failed": "bold red", "unknown": "yellow"}
_WIDEST = 140
_STALL = "no_global_stall"
_CUT_SHORT = ("interrupted", "broken")
"""Ends of a run that it may go on after."""
_VIRTUAL = "simulated"
_VERIFIED = "faults_verified"
_MOST_WINDOWS, _MOST_LANES, _MOST_NAMED, _MOST_WARNINGS = 4, 24, 4, 10
_MOST_FRAMES = 6
"""Lines of a node's stacks in a short report."""
_LITTLE = 0.001
"""Share of all bytes below which a purpose has no line of its own."""


def show(result: Result, console: Console, verbose: bool = False) -> None:
    """Print the report; `verbose`: with the figures of every check, the loss, tokens, the wire, and the logs' ends."""
    width = min(console.width, _WIDEST)
    figures = [*_recoveries(result), _verdicts(result.judgement.checks), *_loss(result, width), _tokens(result),
               *_wire(result)] if verbose else []
    for section in (_head(result), *_timeline(result, width), *_faults(result), *_cost(result, verbose),
                    *_warnings(result), *figures, *_switched_off(result), *_out_of_reach(result.judgement, verbose),
                    *_stacks(result, verbose), *_story(result, verbose), *_passed(result, verbose)):
        # Rich joins texts before it prints them, and forgets what they say of themselves.
        one_line = isinstance(section, Text) and section.no_wrap
        console.print(section, width=width, no_wrap=one_line, overflow="ellipsis" if one_line else None)
    console.print(_foot(result), soft_wrap=True)  # commands are there to be copied: no line ends in them


def show_interrupted(result: Result, console: Console) -> None:
    """Print a few lines about a run that was stopped with Ctrl-C: where its folder is, and how you resume it."""
    plan = result.history.plan
    parts = [plan.scenario, result.outcome.message, f"seed {plan.seed}", show_seconds(result.took)]
    line = Text(WORDS[exit_code(result)], "bold yellow").append(f"  {' · '.join(parts)}\n")
    console.print(line.append_text(_commands(result, brief=True)), soft_wrap=True, end="")


def _head(result: Result) -> RenderableType:
    plan = result.history.plan
    text = Text.assemble((f"\n{plan.scenario}", "bold"),
                         f"  {plan.trainer.algorithm or plan.trainer.name}, seed {plan.seed}, plan {plan.digest[:12]}")
    if plan.description:
        text.append(f"\n{plan.description}")
    for event in result.history.tape.of(Continued, node="harness"):
        text.append(f"\nResumed at {event.t - result.history.origin:.2f} s, from global checkpoint "
                    f"{event.checkpoint} of {event.run}.")
    for gap in result.judgement.gaps:
        text.append(f"\nThe event log is incomplete, and judged up to there: {gap}", "yellow")
    return text


def _verdicts(checks: list[Verdict]) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, expand=True, padding=(0, 1), show_edge=False)
    table.add_column("check", no_wrap=True)
    table.add_column("measured", ratio=3)
    table.add_column("bound", ratio=2)
    table.add_column("verdict", no_wrap=True)
    for verdict in checks:
        table.add_row(verdict.name, verdict.measured, verdict.bound,
                      Text(f"{MARKS[verdict.verdict]} {VERDICTS[verdict.verdict]}", _STYLES[verdict.verdict]))
    return Padding(table, (1, 0, 0, 0))


def _switched_off(result: Result) -> list[RenderableType]:
    off = result.history.plan.checks.switched_off
    return [Text(f"\nSwitched off by the scenario: {', '.join(off)}", "yellow")] if off else []


def _out_of_reach(judgement: Judgement, verbose: bool) -> list[RenderableType]:
    if not judgement.out_of_reach:
        return []
    if not verbose:
        count = sum(map(len, judgement.out_of_reach.values()))
        return [Text(f"\n{count} checks of trainers that tell more are left out (--verbose)", "dim")]
    lines = [f"{', '.join(checks)} ({bringing})" for bringing, checks in judgement.out_of_reach.items()]
    return [_title("Out of reach", "what these need this trainer does not tell; docs/extending.md says how one does"),
            Text("; ".join(lines), "dim")]


def _timeline(result: Result, width: int) -> list[RenderableType]:
    view = result.history.lanes
    if not len(result.history.tape):
        return []
    end = result.history.end
    zero = result.history.zero if result.history.zero is not None else 0.0
    interferences = interference(result.history)
    busy = [charts.windows("machine", [(span.start, span.end) for span in interferences], 0.0, end,
                           width)] if interferences else []
    still = [window for verdict in result.judgement.checks if verdict.name == _STALL for window in verdict.windows]
    stalls = [charts.windows("stalls", still, 0.0, end, width)] if still else []
    return [_title("Timeline", "seconds since the steady state"),
            charts.lanes(view, 0.0, end, width, most=_MOST_LANES), *stalls, *busy,
            charts.scale(0.0, end, zero, width), charts.legend(view), *_machine(interferences, zero)]


def _machine(interferences: list[Interference], zero: float) -> list[RenderableType]:
    """List the times in which other work had this machine, the longest first."""
    if not interferences:
        return []
    lines = [f"{span.start - zero:.1f} s to {span.end - zero:.1f} s: {span.why}; {span.numbers()}"
             for span in sorted(interferences, key=lambda span: span.start - span.end)[:_MOST_WINDOWS]]
    if len(interferences) > _MOST_WINDOWS:
        lines.append(f"and {len(interferences) - _MOST_WINDOWS} shorter times")
    return [_title("Interference", "what else went on on this machine"), Text("\n".join(lines))]


def _faults(result: Result) -> list[RenderableType]:
    if not result.history.spans:
        return []
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for span in result.history.spans:
        observed = measure(result.history, span)
        look = "yellow" if not observed.ok else "" if observed.reacted else "bold red"
        table.add_row(Text(span.planned.id, "bold red"), _when(span, result.history.origin), observed.requested,
                      Text(f"observed: {observed.observed}", look))
    return [_title("Faults", "requested and observed"), table]


def _cost(result: Result, verbose: bool) -> list[RenderableType]:
    """Say what faults cost together; `verbose`: each of them, too, and why what is not told is not."""
    told, zero = result.history.once(costs), result.history.origin
    if not told.faults:
        return []
    whole = cost_told(told.run, zero)
    if not verbose:
        return [_title("Cost", "of all faults that took a node out (--verbose: of each)"), Text(in_words(whole))]
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("", *(shown.name for shown in SHOWN.values())):
        table.add_column(Text(name, "dim"), justify="right" if name else "left")
    own = {name: cost_told(cost, zero) for name, cost in told.faults.items()}
    for name, cost in [*own.items(), ("all", whole)]:
        table.add_row(Text(name, "bold red" if name in own else "bold"), *cells(cost))
    lacking = [f"{name}: {line}" for name, cost in own.items() for line in not_told(cost)]
    return [_title("Cost", "of each fault until the pace is as before; all: of the whole run"), table,
            *([Text("\n".join(lacking), "dim")] if lacking else [])]


def _recoveries(result: Result) -> list[RenderableType]:
    """List the phases of each recovery, in the order in which they ended."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="bold red")
    table.add_column(no_wrap=True)
    table.add_column()
    for recovery in result.history.once(recoveries):
        phases = [f"{phase.name} {show_seconds(seconds)}" for phase, _, seconds in recovery.passed]
        phases += [f"{phase.name}: {phase.missing}" for phase in recovery.phases if phase.t is None]
        target = f"{recovery.target}, now {recovery.successor}" if recovery.successor else recovery.target
        table.add_row(recovery.span.id, target, "; ".join(phases))
    note = "each phase since the one before it; the first since the injection"
    return [_title("Recovery", note), table] if table.row_count else []


def _warnings(result: Result) -> list[RenderableType]:
    """List what decides nothing, and people should know."""
    told = warnings_of(result.history.tape)
    lines = told[:_MOST_WARNINGS] + ([f"and {len(told) - _MOST_WARNINGS} more"] if len(told) > _MOST_WARNINGS else [])
    return [_title("Warnings", "what the log says of the setup"), Text("\n".join(lines), "yellow")] if told else []


def _when(span: Span, zero: float) -> str:
    """Return from when to when a fault was on, in short, in seconds."""
    if span.injected is None:
        return "never"
    return f"{span.began - zero:.2f}" + ("" if span.ended is None else f"-{span.ended - zero:.2f}") + " s"


def _loss(result: Result, width: int) -> list[RenderableType]:
    if not result.history.curve:
        return []
    name = result.history.plan.trainer.baseline_name
    looks = {"synchronous": ("synchronous", "x", "magenta"),
             "fault-free": (name if name == "baseline" else f"{name} baseline", "o", "cyan")}
    sources = [(("this run", "●", "bold green"), result.history.curve)]
    sources += [(look, result.history.references[kind].curve) for kind, look in looks.items()
                if kind in result.history.references]
    counting = result.history.plan.trainer.counting
    title, (unit, scale) = counting.loss, counting.axis
    curves = [charts.Curve(*look, [(point.processed / scale, point.loss) for point in points if isfinite(point.loss)])
              for look, points in sources]
    if not all(curve.points for curve in curves):
        return [_title(title, "no number any more: a curve has diverged")]
    return [_title(title, f"{result.history.plan.trainer.loss_unit}, by {counting.loss_by}"),
            charts.chart(curves, width - 1, 13, unit)]


def _tokens(result: Result) -> RenderableType:
    accounting = result.history.accounting
    if not accounting.processed:
        return Text()
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_row("processed", f"{accounting.processed:,}", "")
    for fate, count in accounting.by_fate.most_common():
        name = fate if fate in ("merged", "outstanding") else f"discarded: {fate}"
        table.add_row(name, f"{count:,}", f"{count / accounting.processed:.1%}")
    grid = Table.grid()
    grid.add_row(_title("Tokens", "after the warm start; mean over fragments, weighted by size"))
    grid.add_row(table)
    return grid


def _wire(result: Result) -> list[RenderableType]:
    traffic = result.traffic
    if not traffic.tokens:
        return []
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column()
    for direction in ("from learners", "to learners"):
        table.add_column(Text(direction, "dim"), justify="right")
    much = [purpose for purpose in traffic.purposes
            if traffic.received[purpose] + traffic.sent[purpose] >= _LITTLE * traffic.total]
    rest = [sum(way[purpose] for purpose in way if purpose not in much) for way in (traffic.received, traffic.sent)]
    for name, ways in [*((purpose, [traffic.received[purpose], traffic.sent[purpose]]) for purpose in much),
                       ("all else", rest)]:
        table.add_row(name, *(f"{count / 1e6:,.2f} MB" if count else "" for count in ways))
    note = f"whole frames at the syncer's sockets; {traffic.a_token:,.1f} bytes a token"
    return [_title("Wire", note), table]


def _stacks(result: Result, verbose: bool) -> list[RenderableType]:
    """Show where processes stood that had not ended when the run did; not `verbose`: the first lines of each node."""
    kept = result.folder.stacks
    if not kept:
        return []
    shown = dict(list(kept.items())[:_MOST_NAMED] if not verbose else kept)
    lines = [line for node, told in shown.items()
             for line in (node, *(f"  {line}" for line in (told if verbose else told[:_MOST_FRAMES])))]
    whole = verbose or (len(shown) == len(kept) and all(len(told) <= _MOST_FRAMES for told in kept.values()))
    more = [] if whole else [f"all of them: {result.folder.path / STACKS}, or --verbose"]
    return [_title("Stacks", "of what hung when the run ended, the innermost frame first"),
            Text("\n".join([*lines, *more]), "dim")]


def _story(result: Result, verbose: bool) -> list[RenderableType]:
    lines = story(result, verbose)
    looks = {mark: _STYLES[verdict] for verdict, mark in MARKS.items()}
    paragraphs = [Padding(Text(line.lstrip(), looks.get(line[:1], "")), (0, 0, 0, len(line) - len(line.lstrip())))
                  for line in lines]
    return [_title("What went wrong", "seconds since the steady state"), *paragraphs] if lines else []


def _passed(result: Result, verbose: bool) -> list[RenderableType]:
    """Return what passed, in a line."""
    passed = [verdict.name for verdict in result.judgement.checks if verdict.verdict == "passed"]
    if verbose or not passed:
        return []
    line = Text.assemble((f"{MARKS['passed']} {len(passed)} passed", _STYLES["passed"]),
                         (f"  {', '.join(passed)}", "dim"), no_wrap=True, overflow="ellipsis")
    return [Text(), line]


def _last(result: Result) -> Text:
    """Return the verdict in one line, above it what to change and why, where the run as a whole proves nothing."""
    plan, code, checks = result.history.plan, exit_code(result), result.judgement.checks
    text = Text()
    if to_change := change(result):
        text.append("to change  ", "bold yellow").append(f"{to_change}\n")
    if why := because(result):
        text.append(f"{why}\n", "yellow")
    parts = [plan.scenario]
    for word in ("failed", "unknown"):
        if named := [verdict.name for verdict in checks if verdict.verdict == word]:
            parts.append(f"{len(named)} of {len(checks)} checks {VERDICTS[word]}: {', '.join(named[:_MOST_NAMED])}"
                         + (", ..." if len(named) > _MOST_NAMED else ""))
    parts += [] if len(parts) > 1 or not checks else [f"{len(checks)} checks"]
    if result.history.spans and all(verdict.verdict != "unknown" for verdict in checks if verdict.name == _VERIFIED):
        seen = sum(measure(result.history, span).ok for span in result.history.spans)
        parts.append(f"{seen} of {len(result.history.spans)} faults verified")
    took = show_seconds(result.took) + (" of virtual time" if result.folder.place == _VIRTUAL else "")
    parts += [f"seed {plan.seed}", *filter(None, [result.folder.place]), took]
    return text.append(WORDS[code], {0: "bold green", 1: "bold red"}.get(code, "bold yellow")).append(
        f"  {' · '.join(parts)}")


def _foot(result: Result) -> RenderableType:
    return Text("\n").append_text(_last(result)).append("\n").append_text(_commands(result))


def _commands(result: Result, brief: bool = False) -> Text:
    """Return where the run is saved, and what to type next; `brief`: no more than three lines."""
    path, tape, name = result.folder.path, result.history.tape, called()
    goes_on = result.outcome.kind in _CUT_SHORT and checkpoints_of(tape) and (path / CHECKPOINTS).is_dir()
    text = Text("saved   ", "dim").append(f"{path}\n", "default")
    if not brief and (path / PAGE).is_file():
        text.append("page    ", "dim").append(f"{name} open {path}\n")
    text.append("all     ", "dim").append(f"{name} check {path} --verbose\n")
    if goes_on:
        text.append("go on   ", "dim").append(f"{name} resume {path}\n")
        if brief:
            return text
    return text.append("repeat  ", "dim").append(f"{result.folder.repeat.replace(PROGRAM, name, 1)}\n")


def _title(name: str, note: str) -> Text:
    return Text.assemble("\n", (name, "bold"), (f"  {note}" if note else "", "dim"))
