"""What sweeps under virtual time measured, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console

from diloco_chaos.chaos.fleet.sweeps import failed_share, grace, wan
from diloco_chaos.chaos.fleet.sweeps.wan import KEEPS
from diloco_chaos.chaos.fleet.sweeps.ways import FRAGMENTS, OVERLAP, SYNC_EVERY, words
from diloco_chaos.chaos.fleet.tables import count_words, table_of
from diloco_chaos.chaos.report.forms.plot import PlottedLine, PlottedShare, plot_svg
from diloco_chaos.harness.base.units import show_seconds

_NOTHING = 0.0005
_USED = (f"gradients of single steps as bfloat16; DiLoCo, streaming and decoupled: H = P = {SYNC_EVERY}, "
         f"tau = {OVERLAP} (DiLoCo: 0), int4 both ways")
_QUADRATIC = f"a quadratic in {FRAGMENTS} tensors, under virtual time"


def show_wan(asked: wan.Wan, rows: Sequence[wan.WanRow], console: Console) -> None:
    """Print where each mode breaks, and then every cell."""
    console.print(f"Lowest rate (Gbit/s) from which on {KEEPS:.0%} of the pace is kept", style="bold")
    table = table_of("link", *map(words, asked.mode), left="link", gap=2)
    for link, link_rows in _by_way(rows):
        least = [wan.least_rate(link_rows, way) for way in asked.mode]
        none = f"> {max(asked.rate):g}"
        table.add_row(_place(*link), *(none if rate is None else f"{rate:g}" for rate in least))
    console.print(table)
    console.print("Merged tokens per second, as a share of the same mode's without any network", style="bold")
    table = table_of("link", "Gbit/s", *map(words, asked.mode), left="link", gap=0)
    for row in rows:
        table.add_row(_place(*row.place[:3]), f"{row.place.rate:g}", *(share(row.kept[way]) for way in asked.mode))
    console.print(table)
    console.print(f"link: parameters of the model; each learner's own, or shared by all; round trip. {asked.sites} "
                  f"learners, a step in {show_seconds(asked.step_time)}; {_USED}; gradients of data parallelism go "
                  f"through the syncer, as what is merged does; {_QUADRATIC}, whose tensors take as many bytes as the "
                  f"model's", highlight=False)


def _place(parameters: int, link: str, rtt: float) -> str:
    return f"{count_words(parameters)} {link} {show_seconds(rtt)}"


def _by_way(rows: Sequence[wan.WanRow]) -> Iterator[tuple[tuple[int, str, float], list[wan.WanRow]]]:
    for key, some in groupby(rows, lambda row: row.place[:3]):
        yield key, list(some)


def plotted_wan(asked: wan.Wan, rows: Sequence[wan.WanRow]) -> str:
    """A mode is a line over the rate; of one size, one round trip and one kind of link."""
    place = rows[0].place
    where = f"{count_words(place.parameters)} parameters, {show_seconds(place.rtt)}, {place.link} link"
    return plot_svg(f"Pace kept: {where}", "Gbit/s", [
        PlottedLine(words(way), sorted(PlottedShare(row.place.rate, row.kept[way], 0.0) for row in rows))
        for way in asked.mode],
        lambda rate: f"{rate:g}")


def wan_document(asked: wan.Wan, rows: Sequence[wan.WanRow]) -> dict[str, Any]:
    """The same for programs."""
    return {"asked": asked.model_dump(mode="json"), "rows": [
        {"parameters": row.place.parameters, "link": row.place.link, "rtt_s": row.place.rtt,
         "gbit_per_s": row.place.rate, "kept": dict(row.kept)} for row in rows],
        "keeps": KEEPS, "least_gbit_per_s": [
            {"parameters": parameters, "link": link, "rtt_s": rtt,
             "least": {way: wan.least_rate(some, way) for way in asked.mode}}
            for (parameters, link, rtt), some in _by_way(rows)]}


def show_failed(asked: failed_share.FailedShare, rows: Sequence[failed_share.FailedShareRow], console: Console) -> None:
    """A row for each mode and share."""
    table = table_of("mode", "gone", "goodput", "learned, same tokens", "same time", left="mode", gap=2)
    for row in rows:
        table.add_row(words(row.mode), f"{row.gone} of {asked.learners}", share(row.goodput),
                      "never" if row.by_tokens is None else f"{row.by_tokens:.2%}", f"{row.by_time:.2%}")
    console.print(table)
    console.print(f"goodput: merged tokens per second, as a share of the same mode's with everybody. learned: share of "
                  f"the loss above its floor that is gone when the same tokens were processed, and when the run with "
                  f"everybody is over. {_QUADRATIC}; killed at the steady state, for good; means of {asked.runs} runs",
                  highlight=False)


def plotted_failed(asked: failed_share.FailedShare, rows: Sequence[failed_share.FailedShareRow]) -> str:
    """A mode is a line over the share that is gone."""
    return plot_svg("Goodput while learners are gone", "learners that are gone", [
        PlottedLine(words(way), [PlottedShare(row.gone / asked.learners, row.goodput, 0.0)
                                 for row in rows if row.mode == way])
        for way in asked.mode], lambda share: f"{share:.0%}")


def failed_document(asked: failed_share.FailedShare, rows: Sequence[failed_share.FailedShareRow]) -> dict[str, Any]:
    """The same for programs."""
    return {"asked": asked.model_dump(mode="json"), "rows": [row._asdict() for row in rows]}


def show_grace(asked: grace.Grace, rows: Sequence[grace.GraceRow], console: Console) -> None:
    """Gamma by gamma; a column for each rate."""
    for title, shown in (("Contributors of a merge", lambda row: f"{row.contributors:.1f}"),
                         ("Loss above its floor at the end, in thousandths",
                          lambda row: "never" if row.excess is None else f"{1000 * row.excess:.2f}")):
        console.print(title, style="bold")
        table = table_of("gamma", *(f"{rate:g} Gbit/s" for rate in asked.rate), left="gamma", gap=2)
        for gamma, some in groupby(rows, lambda row: row.gamma):
            table.add_row(f"{gamma:g}", *map(shown, some))
        console.print(table)
    console.print(f"{asked.learners} learners, K = {asked.quorum}, {count_words(asked.parameters)} parameters, a step "
                  f"in {show_seconds(asked.step_time)} give or take {asked.variance:.0%}, a round trip of "
                  f"{show_seconds(asked.rtt)}; H = P = {SYNC_EVERY}, tau = {OVERLAP}, int4 both ways; {_QUADRATIC}; "
                  f"means of {asked.runs} runs", highlight=False)


def grace_document(asked: grace.Grace, rows: Sequence[grace.GraceRow]) -> dict[str, Any]:
    """The same for programs."""
    return {"asked": asked.model_dump(mode="json"), "rows": [row._asdict() for row in rows]}


def share(value: float) -> str:
    """Return a share as a percentage, or that it is next to nothing."""
    return "< 0.1%" if value < _NOTHING else f"{value:.1%}" if value < 0.0995 else f"{value:.0%}"
