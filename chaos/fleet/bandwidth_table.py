"""What training asks of the links between sites, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console

from diloco_chaos.chaos.fleet.tables import table_of
from diloco_chaos.harness.base.units import show_seconds
from diloco_chaos.harness.fleet.bandwidth import Exchange, Needed, Published, at_the_syncer, data_parallel, decoupled

_FIRST = "Gbit/s of a site"
_UNHURRIED = 0.9995


def show(exchange: Exchange, link: float | None, console: Console) -> None:
    """A row for each way to train. `link`: Gbit/s that a site has, each way; None: that is not the question."""
    table = table_of(_FIRST, "up", "down", *(["in time"] if link else []), left=_FIRST, gap=2)
    for words, needed in _rows(exchange):
        table.add_row(words, _number(needed.up), _number(needed.down),
                      *([_share(_in_time(needed, link))] if link else []))
    console.print(table)
    console.print(f"{exchange.parameters:,} parameters, a step in {show_seconds(exchange.step_time)}, {exchange.sites} "
                  f"sites; decoupled: H = {exchange.sync_every}, P = {exchange.fragments}, tau = {exchange.overlap:g}, "
                  f"outer gradients {exchange.gradients}, broadcasts {exchange.broadcasts}", highlight=False)
    if link:
        console.print(f"in time: what a link of {link:g} Gbit/s each way has room for. Data parallelism trains for "
                      f"as much of the time; decoupled learners go on, and are merged so much more rarely",
                      highlight=False)


def show_published(published: Sequence[Published], console: Console) -> None:
    """Print each published pair beside ours, and what must be assumed for it."""
    table = table_of("sites", "", "published", "ours", left="", gap=2)
    for pair in published:
        for words, number, ours in _pair(pair):
            table.add_row(str(pair.assumed.sites), words, _number(number), _number(ours))
    console.print("Gbit/s of a site, published (Decoupled DiLoCo, arXiv 2604.21428) and ours", style="bold")
    console.print(table)
    for pair in published:
        assumed = pair.assumed
        console.print(f"{assumed.sites} sites: assumed are {assumed.parameters / 1e9:g} billion parameters, a step in "
                      f"{assumed.step_time:g} s, bfloat16 gradients in a ring; H = {assumed.sync_every}, outer "
                      f"gradients and broadcasts {assumed.gradients}", highlight=False)


def _pair(pair: Published) -> Iterator[tuple[str, float, float]]:
    yield "data parallel, bfloat16", pair.data_parallel, data_parallel(pair.assumed, "bfloat16").up
    yield "decoupled", pair.decoupled, decoupled(pair.assumed).up


def _rows(exchange: Exchange) -> Iterator[tuple[str, Needed]]:
    yield "data parallel, float32", data_parallel(exchange, "float32")
    yield "data parallel, bfloat16", data_parallel(exchange, "bfloat16")
    yield "decoupled", decoupled(exchange)
    yield "decoupled, the syncer's site", at_the_syncer(exchange)


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def _in_time(needed: Needed, link: float) -> float:
    """Share of what is to be exchanged that gets through a link in time."""
    return min(1.0, link / max(needed))


def _share(value: float) -> str:
    return f"{value:.1%}" if value < _UNHURRIED else "100%"


def document(exchange: Exchange, link: float | None) -> dict[str, Any]:
    """Return the same as JSON: what each way to train needs, in Gbit/s of a site."""
    needed = {words: {"up_gbit_per_s": demand.up, "down_gbit_per_s": demand.down} | (
        {"in_time": _in_time(demand, link)} if link else {}) for words, demand in _rows(exchange)}
    return {"exchange": exchange.model_dump(mode="json"), "link_gbit_per_s": link, "needed": needed}


def published_document(published: Sequence[Published]) -> dict[str, Any]:
    """The published pairs for programs."""
    return {"pairs": [{"assumed": pair.assumed.model_dump(mode="json"), "needed": [
        {"what": words, "published_gbit_per_s": number, "gbit_per_s": ours} for words, number, ours in _pair(pair)]}
        for pair in published]}
