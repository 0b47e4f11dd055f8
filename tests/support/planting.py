"""Runs under virtual time of a trainer that has a bug planted into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chaos.exploration.generate import plan_of
from chaos.exploration.strategies import scenario
from chaos.runner.simulate import simulate


def failed(faults: Sequence[dict[str, Any]], cluster: Mapping[str, Any]) -> list[str]:
    """The checks that fail, of a small cluster with these settings and faults."""
    setting = scenario(**{"warmup": "40 steps", "budget": "160 steps", **cluster})
    return simulate(plan_of(setting, list(faults), 0)).failed
