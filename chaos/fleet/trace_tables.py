"""A trace beside what was fitted to it, and the spares that it asks for, for people and for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from diloco_chaos.chaos.fleet.tables import table_of
from diloco_chaos.harness.base.units import show_long
from diloco_chaos.harness.failures.away import Spares, spares
from diloco_chaos.harness.failures.drawing import repairs
from diloco_chaos.harness.failures.fitting import Fitted, distance
from diloco_chaos.harness.failures.lengths import Lengths
from diloco_chaos.harness.failures.likeness import Likeness, likeness
from diloco_chaos.harness.failures.process import FailureProcess
from diloco_chaos.harness.failures.source import HOW, Source
from diloco_chaos.harness.failures.trace import Trace

_ROWS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("failures", "failures of a node in a year", "{:.2f}".format),
    ("gap_variation", "time to the next: deviation / mean", "{:.2f}".format),
    ("weekly", "failures a week: variance / mean", "{:.1f}".format),
    ("worst_tenth", "share of the worst tenth of nodes", "{:.0%}".format),
    ("never", "nodes that never fail", "{:.0%}".format),
    ("soon", "fails again within a week", "{:.0%}".format),
    ("repair_median", "repair: median", show_long),
    ("repair_mean", "repair: mean", show_long),
    ("repair_90", "repair: nine of ten within", show_long),
    ("away", "away at once: mean", "{:.1f}".format),
    ("away_99", "away at once: 99% of the time up to", "{:.0f}".format),
    ("away_most", "away at once: at most", "{:.0f}".format),
    ("away_many", "time with more than 4% away", "{:.1%}".format))
_BETWEEN = (0.05, 0.95)
_EXPONENTIAL = "exponential"


class Spread(NamedTuple):
    """One number over many replications."""

    mean: float
    low: float
    """Nine of ten replications lie between this"""
    high: float
    """and this."""


class Compared(NamedTuple):
    """The numbers of a trace, and those of failures drawn as long."""

    trace: Likeness
    fitted: dict[str, Spread]
    exponential: dict[str, Spread]


def compared(trace: Trace, found: Fitted, replications: int, seed: int) -> Compared:
    """Return what a trace, its fit, and exponential failures of the same means are like."""
    return Compared(likeness(trace.replayed(trace.nodes, trace.length_s)),
                    _spread(trace, _source(found, found.process), replications, seed),
                    _spread(trace, _source(found, None), replications, seed))


def _source(found: Fitted, process: FailureProcess | None) -> Source:
    return Source(Lengths(found.in_service_s), Lengths(found.away_s), process)


def _spread(trace: Trace, source: Source, replications: int, seed: int) -> dict[str, Spread]:
    drawn = np.array([likeness(source.course(trace.nodes, trace.length_s, seed + number))
                      for number in range(replications)])
    low, high = np.nanquantile(drawn, _BETWEEN, axis=0)
    return {name: Spread(*map(float, each))
            for name, *each in zip(Likeness._fields, np.nanmean(drawn, axis=0), low, high, strict=True)}


def show(trace: Trace, found: Fitted, numbers: Compared, console: Console) -> None:
    """Print the fitted process, and then the trace's numbers beside those of what was fitted."""
    console.print(f"{len(trace.starts)} outages of {trace.nodes} nodes in {show_long(trace.length_s)}", style="bold")
    for line in _process_lines(found):
        console.print(line, highlight=False)
    table = table_of("", "trace", "fitted", "90% of", "expon.", left="")
    for name, words, shown in _ROWS:
        ours = numbers.fitted[name]
        table.add_row(words, shown(getattr(numbers.trace, name)), shown(ours.mean),
                      f"{shown(ours.low)} to {shown(ours.high)}", shown(numbers.exponential[name].mean))
    console.print(table)
    for line in _repair_lines(trace, found):
        console.print(line, highlight=False)


def _process_lines(found: Fitted) -> Iterator[str]:
    process = found.process
    yield (f"a node is in service for {show_long(found.in_service_s)} on average, and then away for "
           f"{show_long(found.away_s)}")
    yield (f"lemons: rates of nodes have a gamma distribution of shape {process.lemons:.2f}" if process.lemons else
           "lemons: none; all nodes are alike")
    relapse = show_long(process.relapse_s(found.in_service_s))
    yield (f"relapse: {process.relapse:.0%} of repairs don't hold; such a node fails after {relapse} on average "
           f"(Weibull, shape {process.relapse_shape:.2f})")
    yield f"burst: {process.burst:.0%} of the failures come {process.burst_size:.1f} at a time"
    yield (f"waves: every {show_long(process.wave_s(found.in_service_s))} all rates change by a factor (gamma, shape "
           f"{process.waves:.2f})" if process.waves else "waves: none; there are no bad times and good ones")
    yield (f"repair: lognormal, sigma {process.repair_sigma:.2f}" if process.repair_sigma else
           f"repair: Weibull, shape {process.repair_shape:.2f}")


def _repair_lines(trace: Trace, found: Fitted) -> Iterator[str]:
    """Say how far the repairs are from a fitted distribution, and from an exponential one."""
    yield "Largest difference of shares (Kolmogorov), and how probable so much would be:"
    for what, lasts, lengths in (("repairs, fitted", trace.repairs, repairs(found.process, found.away_s)),
                                 ("repairs, exponential", trace.repairs, Lengths(found.away_s)),
                                 ("times between failures, exponential", np.diff(trace.starts),
                                  Lengths(float(np.diff(trace.starts).mean())))):
        most, probable = distance(lasts, lengths)
        yield f"  {what:<36} {most:.2f}  {_probability(probable)}"


def _probability(value: float) -> str:
    return f"{value:.2f}" if value >= 0.005 else f"{value:.0e}" if value > 1e-15 else "< 1e-15"


def document(trace: Trace, found: Fitted, numbers: Compared) -> dict[str, Any]:
    """The same for programs; times are in seconds."""
    return {"nodes": trace.nodes, "outages": len(trace.starts), "length_s": trace.length_s,
            "in_service_s": found.in_service_s, "away_s": found.away_s,
            "process": found.process.model_dump(mode="json"), "trace": numbers.trace._asdict(),
            **{name: {each: spread._asdict() for each, spread in getattr(numbers, name).items()}
               for name in ("fitted", "exponential")}}


def spares_of(file: Path, nodes: int | None, trace: Trace, found: Fitted, job: int, share: float, replications: int,
              seed: int) -> dict[str, Spares]:
    """Return how many spares a job of so many nodes needs, by each way to draw failures."""
    means = Lengths(found.in_service_s), Lengths(found.away_s)
    sources: dict[str, Source] = {how: Source(*means, found.process, str(file), nodes, how) for how in reversed(HOW)}
    sources[_EXPONENTIAL] = Source(*means)
    return {name: spares(source, job, share, trace.length_s, replications, seed) for name, source in sources.items()}


_WORDS = {"replay": "the trace, from any moment on", "weeks": "its weeks, drawn", "fitted": "the fitted process",
          _EXPONENTIAL: "exponential, same means"}


def show_spares(trace: Trace, wanted: dict[str, Spares], job: int, share: float, replications: int, console: Console
                ) -> None:
    """Print how many spares each way to draw failures asks for."""
    table = table_of("failures", "spares", "95% of", left="failures")
    for name, each in wanted.items():
        table.add_row(_WORDS[name], str(each.needed), f"{each.low} to {each.high}")
    console.print(f"Spares with which a job has its {job:,} nodes {100 * share:.4g}% of the time", style="bold")
    console.print(table)
    console.print(f"{replications} replications of {show_long(trace.length_s)}; 95 of 100 of them, each alone, would "
                  f"ask for so many", highlight=False)
