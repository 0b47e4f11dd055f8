"""The modes of the built-in trainer that sweeps compare, each as it is meant to be used, and a model to run them on."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator

from diloco_chaos.harness.base.units import Seconds, between, number

Way = Literal["data_parallel", "elastic_data_parallel", "diloco", "streaming", "decoupled"]
Gigabits = Annotated[float, BeforeValidator(number), between(0.001, 8000, "between 0.001 and 8000")]
"""A link's rate each way, Gbit/s."""
StepTime = Annotated[Seconds, between(0.01, 600, "between 10ms and 600s")]
"""Of an inner step, seconds."""
WAYS: tuple[Way, ...] = get_args(Way)
MODEL, VALUES = "quadratic24", 24 * 64
"""Without torch; 24 tensors of 64 values each, so that fragments are as many, and as large, as the paper's are."""
SYNC_EVERY = FRAGMENTS = 24
OVERLAP = 2
"""H, P and tau of the paper, as summaries have them (docs/sources.md)."""
_LEAST_DELAY = 0.001
_BYTES_OF_A_GIGABIT = 1e9 / 8
_SPARING = {"gradients": "int4", "broadcasts": "int4", "error_feedback": True, "outer_lr": 0.6, "outer_momentum": 0.5}
"""The outer step is one for short runs: with more momentum they end in the middle of an oscillation."""
_EXCHANGE: dict[Way, dict[str, Any]] = {
    "data_parallel": {"gradients": "bfloat16", "broadcasts": "bfloat16"},
    "elastic_data_parallel": {"gradients": "bfloat16", "broadcasts": "bfloat16"},
    "diloco": {"fragments": FRAGMENTS, "sync_every": SYNC_EVERY, **_SPARING},
    "streaming": {"fragments": FRAGMENTS, "sync_every": SYNC_EVERY, "overlap": OVERLAP, **_SPARING},
    "decoupled": {"fragments": FRAGMENTS, "sync_every": SYNC_EVERY, "overlap": OVERLAP, **_SPARING},
}
"""What travels in as few bits as each mode can do with: gradients of single steps as bfloat16."""


def cluster_of(way: Way, learners: int, step_time: float, budget: int, silence: float, **more: Any) -> dict[str, Any]:
    """A scenario's cluster. `step_time`, `silence` (for which a peer may say nothing): seconds; `budget`: steps."""
    return {"mode": way, "model": MODEL, "learners": learners, "step_time": f"{step_time!r}s", "budget": budget,
            "heartbeat_timeout": f"{silence!r}s", **_EXCHANGE[way], **more}


def links(rate: float, rtt: float, lasts: float, shared: bool = False) -> list[dict[str, Any]]:
    """Faults that make every learner's way to the syncer so long and so narrow, from the steady state on. `rate`:
    Gbit/s each way; `rtt`, `lasts`: seconds."""
    always = {"at": "0s", "for": f"{lasts!r}s"}
    return [{"latency": "learners", "delay": f"{max(rtt / 2, _LEAST_DELAY)!r}s", **always},
            {"bandwidth": "learners", "rate": f"{rate * _BYTES_OF_A_GIGABIT!r}B/s", "shared": shared, **always}]


def words(way: Way) -> str:
    """Return what people call this way to train."""
    return {"data_parallel": "data parallel", "elastic_data_parallel": "elastic", "diloco": "DiLoCo"}.get(way, way)
