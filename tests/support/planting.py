"""Runs under virtual time of a trainer that has a bug planted into it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from diloco_chaos.chaos.exploration.generate import plan_of
from diloco_chaos.chaos.exploration.strategies import scenario
from diloco_chaos.chaos.runner.simulate import simulate
from diloco_chaos.harness.record.tape.events import Event, Hello, Initial, Merge, Refused, Resumed
from diloco_chaos.harness.trainer.coordinator.syncer import Syncer

_TOLD = Hello, Initial, Merge, Refused, Resumed


class Mutant(NamedTuple):
    """A bug, and the check that ought to find it."""

    plant: Callable[[pytest.MonkeyPatch], None]
    check: str
    faults: Sequence[dict[str, Any]] = ()
    """Of a run in which it does harm."""
    cluster: Mapping[str, Any] = {}
    """Settings of that run's small cluster."""
    name: str = ""
    """The function's, where none is given."""

    def __str__(self) -> str:
        return self.name or self.plant.__name__


def failed(faults: Sequence[dict[str, Any]], cluster: Mapping[str, Any]) -> list[str]:
    """The checks that fail, of a small cluster with these settings and faults."""
    setting = scenario(**{"warmup": "40 steps", "budget": "160 steps", **cluster})
    return simulate(plan_of(setting, list(faults), 0)).failed


def finds(mutants: Sequence[Mutant]) -> Callable[[], None]:
    """A test for each of these: its check fails, and without the bug none does."""
    @pytest.mark.parametrize("mutant", mutants, ids=str)
    def test(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
        assert not failed(mutant.faults, mutant.cluster)
        mutant.plant(monkeypatch)
        assert mutant.check in failed(mutant.faults, mutant.cluster)
    return test


def says(change: Callable[[Any], Event]) -> Callable[[pytest.MonkeyPatch], None]:
    """A syncer that records what it tells of learners, versions and rounds as `change` makes it, everywhere alike."""
    def plant(patch: pytest.MonkeyPatch) -> None:
        for name in ("start", "on_message", "on_timer", "on_lost"):
            usual = getattr(Syncer, name)
            patch.setattr(Syncer, name, lambda self, *args, usual=usual: (
                change(effect) if isinstance(effect, _TOLD) else effect for effect in usual(self, *args)))
    return plant
