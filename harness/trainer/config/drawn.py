"""Clusters as explorations draw them: every setting that decides who waits for whom, and what is computed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from diloco_chaos.harness.trainer.config.cluster_config import SYNCHRONOUS, TrainerConfig
from diloco_chaos.harness.trainers.api.settings import Pick

_ATTEMPTS = 20
_EXCHANGING = 6
"""How much likelier Decoupled DiLoCo is than each of the modes that it is compared with."""
_ON_TWO_CORES, _UNCROWDED_S = 4, 0.08
"""More learners than this need steps as long as this, or they leave nothing of a simulated machine's processors."""
_SPEEDS = (1.0, 0.7, 0.5, 0.3)
_ANY: Mapping[str, Sequence[Any]] = {
    "variance": (0.0, 0.1, 0.2), "heartbeat_timeout": ("3s", "1s"), "final_lr": (0.1, 0.0, 1.0)}
_OF_EXCHANGE: Mapping[str, Sequence[Any]] = {
    "fragments": (8, 1, 2, 4, 5), "sync_every": (8, 4, 12, 16), "max_staleness": (16, 4, 2), "grace": (0.8, 0.0, 0.4),
    "on_receipt": ("carry", "overwrite"), "anchor": ("latest", "base"), "merge": ("rda", "average"),
    "recovery": ("syncer", "peer"), "momentum_ramp": (0, 40),
    "gradients": ("float32", "bfloat16", "int8", "int4"), "broadcasts": ("float32", "bfloat16", "int8", "int4"),
    "rounding": ("nearest", "stochastic"), "error_feedback": (False, True)}
_OUTER = ((0.8, 0.3), (0.5, 0.75), (0.0, 1.0))
"""Momentum and rate: with rate / (1 - momentum) as it suits runs of this length."""
_OVERLAPS = (2, 1, 4, 0.5)


def varied(settings: TrainerConfig, pick: Pick) -> TrainerConfig:
    """The same model, data, budget and pace in a cluster of other settings; itself where none fits together."""
    for _ in range(_ATTEMPTS):
        with suppress(ValidationError):  # not all of them go together
            return TrainerConfig.model_validate(_changed(settings, pick))
    return settings


def _changed(settings: TrainerConfig, pick: Pick) -> dict[str, Any]:
    own = {"quorum", "joining", "seed", "overlap", "outer_momentum", "outer_lr", *_ANY, *_OF_EXCHANGE}
    whole = settings.model_dump(mode="json", exclude=own)
    learners = pick((4, 2, 3, 5))
    mode = pick((*("decoupled",) * _EXCHANGING, "streaming", "diloco", *SYNCHRONOUS[1:]))
    whole |= {"mode": mode, "learners": learners, **{key: pick(values) for key, values in _ANY.items()}}
    if learners > _ON_TWO_CORES:
        whole["step_time"] = f"{max(settings.step_time, _UNCROWDED_S):g}s"
    whole["speeds"] = [pick(_SPEEDS) for _ in range(learners)] if pick((False, True)) else []
    whole["batch"] = [pick((1, 2, 4)) for _ in range(learners)] if pick((False, False, True)) else pick((4, 1))
    if mode not in SYNCHRONOUS:
        whole |= {key: pick(values) for key, values in _OF_EXCHANGE.items()}
        whole["overlap"] = pick(_OVERLAPS)
        whole["outer_momentum"], whole["outer_lr"] = pick(_OUTER)
    if mode == "decoupled":
        whole["quorum"] = pick(range(1, learners + 1))
        if whole["quorum"] == learners and pick((False, False, True)):
            whole["overlap"] = 0
    implied_by_mode = {"diloco": ("grace", "overlap"), "streaming": ("grace",)}.get(mode, ())
    return {key: value for key, value in whole.items() if key not in implied_by_mode}
