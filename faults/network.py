"""Faults of links: far, thin, or cut. A link bears the name of the learner whose it is."""

from __future__ import annotations

from statistics import median
from typing import ClassVar, Literal

from pydantic import Field

from faults.base import Fault, Felt, Hit, names
from harness.cluster.base import Ability
from harness.links.client import Toxic
from harness.units import Rate, Seconds, show_seconds

_PROBES = 3
_RATE_PROBE_S = 0.15
_LEAST_PROBE_BYTES, _MOST_PROBE_BYTES = 1 << 14, 1 << 22
_TOLERANCE = 0.5  # a felt delay or rate within half of what was asked for counts as felt


class Latency(Fault):
    """A wide-area network: delay with jitter each way and, where asked for, a rate. Connections stay."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"links"})

    kind: Literal["latency"] = "latency"
    delay: Seconds = Field(0.02, gt=0)
    """Each way."""
    jitter: Seconds = 0.0
    """Uniform, plus or minus."""
    rate: Rate | None = None
    """Bytes per second each way."""

    def inject(self, hit: Hit) -> Felt:
        """Put the toxics on, and measure with probes through the same link."""
        before = {target: _round_trip(hit, target) for target in self.targets}
        for target in self.targets:
            hit.cluster.degrade(target, self._toxics())
        felt: Felt = {"ok": True}
        for target in self.targets:
            around = _round_trip(hit, target)
            delay = (around - before[target]) / 2
            felt["delay_s"] = round(delay, 4)
            felt["ok"] = bool(felt["ok"]) and self._close(delay, self.delay, self.jitter)
            if self.rate is not None:
                size = round(min(max(self.rate * _RATE_PROBE_S, _LEAST_PROBE_BYTES), _MOST_PROBE_BYTES))
                rate = size / max(hit.probe(target, size) - around, 1e-6)
                felt["rate_bytes_per_s"] = round(rate)
                felt["ok"] = bool(felt["ok"]) and self._close(rate, self.rate, 0)
        return felt

    def undo(self, hit: Hit) -> Felt:
        """Take the toxics off."""
        for target in self.targets:
            hit.cluster.restore(target, self._toxics())
        return {}

    def words(self) -> str:
        """What it does, for people."""
        rate = "" if self.rate is None else f", {self.rate / 1e6:g} MB/s"
        return (f"{names(self.targets)} {show_seconds(self.delay)} ± {show_seconds(self.jitter)} away{rate} "
                f"for {show_seconds(self.duration or 0)}")

    def downtime(self) -> float:
        """Far away is no loss of time."""
        return 0.0

    def _toxics(self) -> list[Toxic]:
        streams = ("upstream", "downstream")
        toxics = [Toxic("latency", stream, {"latency": round(self.delay * 1e3), "jitter": round(self.jitter * 1e3)})
                  for stream in streams]
        if self.rate is not None:
            toxics += [Toxic("bandwidth", stream, {"rate": max(1, round(self.rate / 1e3))}) for stream in streams]
        return toxics

    @staticmethod
    def _close(felt: float, asked: float, slack: float) -> bool:
        return abs(felt - asked) <= _TOLERANCE * asked + slack


class Partition(Fault):
    """Cut off: the links' connections break and new ones are refused. The nodes go on by themselves."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"links"})

    kind: Literal["partition"] = "partition"

    def inject(self, hit: Hit) -> Felt:
        """Cut the links; felt when a probe no longer gets through."""
        for target in self.targets:
            hit.cluster.cut(target, True)
        return {"ok": not any(_answers(hit, target) for target in self.targets)}

    def undo(self, hit: Hit) -> Felt:
        """Let the links listen again; felt when a probe gets through."""
        for target in self.targets:
            hit.cluster.cut(target, False)
        return {"back": all(_answers(hit, target) for target in self.targets)}

    def words(self) -> str:
        """What it does, for people."""
        return f"{names(self.targets)} cut off for {show_seconds(self.duration or 0)}"

    def downtime(self) -> float:
        """Learners train on while they are cut off, and what they learned is merged when they are back."""
        return 0.0


def _round_trip(hit: Hit, link: str) -> float:
    return median(hit.probe(link, 0) for _ in range(_PROBES))


def _answers(hit: Hit, link: str) -> bool:
    try:
        hit.probe(link, 0)
    except OSError:
        return False
    return True
