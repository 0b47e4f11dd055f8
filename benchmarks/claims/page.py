"""The page: claims with their numbers filled in, and the tables behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from benchmarks.claims.register import Claim, counted
from benchmarks.claims.tables import Tables
from diloco_chaos.chaos.fleet.sweep_tables import share
from diloco_chaos.chaos.fleet.sweeps.ways import WAYS, words
from diloco_chaos.chaos.fleet.tables import count_words
from diloco_chaos.harness.base.units import show_seconds
from diloco_chaos.harness.fleet.paper import rms

_HERE = Path(__file__).parent
_RTT_S, _PARAMETERS = 0.03, 12 * 10**9
"""Of the claim about four regions."""


def page(claims: Sequence[Claim], recorded: Mapping[str, Any], tables: Tables) -> str:
    """All of `docs/claims.md`.

    Raises:
        TableError: a claim asks for a cell that is not there.
        jinja2.UndefinedError: or for something that was not recorded.
    """
    environment = Environment(loader=FileSystemLoader(_HERE), undefined=StrictUndefined, keep_trailing_newline=True,
                              autoescape=False)  # noqa: S701 - Markdown, of our own texts
    environment.filters |= {"way": words, "count": count_words, "seconds": show_seconds, "share": share,
                            "number": lambda value: f"{value:g}"}
    environment.globals |= _numbers(recorded) | {"cell": tables.cell, "recorded": recorded}
    filled = [claim.model_copy(update={"ours": environment.from_string(claim.ours).render()}) for claim in claims]
    text = environment.get_template("claims.md.j2").render(
        claims=claims, counts=counted(claims), wan=recorded["wan"], failed=recorded["failed_share"],
        grace=recorded["grace"], ways=WAYS,
        topics=[(topic, list(rows)) for topic, rows in groupby(filled, lambda claim: claim.topic)])
    return "\n".join(line.rstrip() for line in text.split("\n"))


def _numbers(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """What claims call."""
    cells = {(cell["chips"], cell["mode"], cell["learners"]): cell["goodput"] for cell in recorded["fleet"]["cells"]}
    rates = {row["gbit_per_s"]: row["kept"] for row in recorded["wan"]["rows"]
             if (row["parameters"], row["link"], row["rtt_s"]) == (_PARAMETERS, "own", _RTT_S)}
    left = {(row["mode"], row["gone"]): row["goodput"] for row in recorded["failed_share"]["rows"]}
    windows = {(row["gamma"], row["rate"]): row for row in recorded["grace"]["rows"]}

    def window(gamma: float, rate: float, what: str = "contributors") -> str:
        value = windows[gamma, rate][what]
        return f"{value:.1f}" if what == "contributors" else f"{value:.4f}"

    def whole_table() -> str:
        off = [100 * (cell["goodput"] - cell["published"]) for cell in recorded["fleet"]["cells"]]
        return f"off by {rms(off):.2f} points (root mean square), at most {max(map(abs, off)):.1f}"
    return {
        "whole_table": whole_table,
        "goodput": lambda chips, mode, learners: f"{cells[chips, mode, learners]:.1%}",
        "kept": lambda rate: share(rates[rate]["decoupled"]),
        "times": lambda rate: f"{rates[rate]['decoupled'] / rates[rate]['data_parallel']:.0f}",
        "gone": lambda mode, count: share(left[mode, count]), "window": window}
