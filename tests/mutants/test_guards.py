"""Scenarios of the library reach the guards that they are for: a trainer without its guard does not get through."""

import math

import pytest

from diloco_chaos.chaos.runner.simulate import simulate
from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.record.storage import disk
from diloco_chaos.harness.trainer.coordinator import fragment_state, syncer
from diloco_chaos.harness.trainer.learner import learner
from planting import failed


def merges_any_values(patch):
    patch.setattr(fragment_state, "all_finite", lambda tensors: True)
    patch.setattr(fragment_state, "too_large", lambda tensors, value: False)


def nobody_looks_at_values(patch):
    """Neither the learner whose memory fails, nor who merges what it sends."""
    merges_any_values(patch)
    patch.setattr(learner.arrays, "all_finite", lambda tensors: True)
    patch.setattr(learner, "_MOST_SKIPPED", math.inf)


def believes_every_report(patch):
    patch.setattr(syncer, "of_report", lambda *_: "")


def loads_what_was_altered(patch):
    patch.setattr(disk, "digest", lambda tensors: "")


def without_torch(name, seed):
    """What becomes of a run of the library, with the model that needs no torch."""
    scenario = load(name)[0]
    cluster = scenario.cluster.model_copy(update={"model": "quadratic"})
    return simulate(freeze(scenario.model_copy(update={"cluster": cluster}), seed))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("name", "without", "check"), [
    ("poison", merges_any_values, "weights_correct"),
    ("corrupt-memory", nobody_looks_at_values, "self_healing"),
    ("lie", believes_every_report, "processed_correct"),
    ("corrupt-checkpoint", loads_what_was_altered, "arithmetic_correct")])
def test_without_its_guard_the_run_fails(name, without, check, seed, monkeypatch):
    assert check not in without_torch(name, seed).failed
    without(monkeypatch)
    assert check in without_torch(name, seed).failed


def test_a_poison_that_is_merged_fails_a_small_run(monkeypatch):
    merges_any_values(monkeypatch)
    assert "weights_correct" in failed([{"poison": "learner-2", "at": "4s", "count": 2}], {})


def test_who_takes_tensors_of_any_shape_does_not_get_through(monkeypatch):
    monkeypatch.setattr(fragment_state, "same_shapes", lambda one, other: True)
    assert without_torch("poison", 0).outcome.kind == "broken"
