"""What a baseline run left: its loss curve, and how regularly it merged."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from diloco_chaos.harness.trainers.api.trainer import Kind


class LossPoint(BaseModel):
    """One snapshot's place on a loss curve."""

    model_config = ConfigDict(frozen=True)

    number: int
    processed: int
    merged: int
    t: float
    loss: float
    error: float = 0.0
    """Standard error, where workers told the loss."""


class Reference(BaseModel):
    """The record that a reference run left: its curve, and how regularly it merged."""

    model_config = ConfigDict(frozen=True)

    kind: Kind
    key: str
    curve: tuple[LossPoint, ...]
    workers: dict[str, tuple[LossPoint, ...]] = {}
    """Of every worker that told its own losses."""
    rounds: dict[str, tuple[tuple[int, tuple[float | str, ...]], ...]] = {}
    """What every worker told of every round: its number, and the losses; what is no number as text."""
    digests: dict[str, tuple[tuple[int, tuple[str, ...]], ...]] = {}
    """In the same way the digests of its weights, where it told any."""
    merge_gap_p99: float | None = None
    """Seconds; None where nothing is merged."""
    wall: float
