"""What training asks of the links between sites, for nobody to wait for them. Per site and direction."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from diloco_chaos.harness.base.units import Count, LongSeconds, Part

Precision = Literal["float32", "bfloat16", "int8", "int4"]
BITS: dict[Precision, float] = {"float32": 32, "bfloat16": 16, "int8": 8 + 16 / 64, "int4": 4 + 16 / 64}
"""Of a value on the wire; integers have a scale of 16 bits for every 64 of them."""
_GIGA = 1e9


class Exchange(BaseModel):
    """A model, the sites that train it together, and how a decoupled run exchanges what it has learned."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    parameters: Count = 12 * 10**9
    """N."""
    step_time: LongSeconds = Field(2.0, gt=0)
    """Seconds of an inner step."""
    sites: int = Field(8, ge=2, le=10**6)
    """S: with data parallelism all are one group, in a decoupled run each is a learner."""
    sync_every: int = Field(24, ge=1)
    """H, inner steps between two merges of the same fragment."""
    fragments: int = Field(24, ge=1)
    """P."""
    overlap: float = Field(2.0, gt=0)
    """tau, inner steps that an exchange may take."""
    gradients: Precision = "int4"
    """How outer gradients travel."""
    broadcasts: Precision = "int4"
    """How what was merged travels."""
    hidden: Part = Field(1.0, gt=0)
    """Of data parallelism: share of a step in which gradients may travel while something is computed."""


class Needed(NamedTuple):
    """Gbit/s."""

    up: float
    """From a site."""
    down: float
    """To it."""


def data_parallel(exchange: Exchange, precision: Precision) -> Needed:
    """A ring all-reduce of every step's gradients: each site sends, and receives, 2 (S - 1) / S of them."""
    share = 2 * (exchange.sites - 1) / exchange.sites
    rate = share * exchange.parameters * BITS[precision] / (exchange.hidden * exchange.step_time) / _GIGA
    return Needed(rate, rate)


def decoupled(exchange: Exchange) -> Needed:
    """Every fragment, of N / P parameters, travels once in H steps, and has tau steps of time for it: where that is
    less than the H / P steps until the next one is due, the link is idle in between."""
    steps = min(exchange.sync_every, exchange.fragments * exchange.overlap)
    a_bit = exchange.parameters / (steps * exchange.step_time) / _GIGA
    return Needed(a_bit * BITS[exchange.gradients], a_bit * BITS[exchange.broadcasts])


def at_the_syncer(exchange: Exchange) -> Needed:
    """Return what the syncer's own site needs, in Gbit/s: it exchanges with every site."""
    per_site = decoupled(exchange)
    return Needed(exchange.sites * per_site.down, exchange.sites * per_site.up)


class Published(NamedTuple):
    """A pair of published numbers, in Gbit/s, and what must be assumed for the formulas to have them."""

    data_parallel: float
    decoupled: float
    assumed: Exchange


PUBLISHED = (
    Published(198.0, 0.84, Exchange.model_validate({
        "parameters": 12 * 10**9, "step_time": "1.695s", "sites": 8, "sync_every": 36, "gradients": "int4",
        "broadcasts": "int4"})),
    Published(104.0, 1.7, Exchange.model_validate({
        "parameters": 12 * 10**9, "step_time": "1.85s", "sites": 2, "sync_every": 32, "gradients": "int8",
        "broadcasts": "int8"})),
)
"""Decoupled DiLoCo (arXiv 2604.21428) and its summaries. The gradients of data parallelism are bfloat16."""
