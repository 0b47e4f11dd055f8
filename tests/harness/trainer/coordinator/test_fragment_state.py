"""What a fragment's next version is made from, and what of it is kept."""

import numpy as np
import pytest

from diloco_chaos.harness.base.tensors import digest
from diloco_chaos.harness.trainer.algorithm.outer_optimizer import OuterStep
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.coordinator.fragment_state import FragmentState
from diloco_chaos.harness.trainer.coordinator.rounds import FragmentContribution
from diloco_chaos.harness.trainer.protocol.messages import OuterGradient

STEPS = 8


def tensors(random):
    return {"w": random.standard_normal((3, 4)).astype(np.float32), "b": random.standard_normal(5).astype(np.float32)}


def answered(learner, base, delta):
    return FragmentContribution(learner, 0, base, 1, STEPS, STEPS, 512, digest(delta), 0.0, delta)


def plain(**settings):
    """Of which a merge subtracts the outer gradient itself."""
    return TrainerConfig(merge="average", **settings)


PLAIN = OuterStep(1.0, 0.0)


def grown(config, versions, random):
    """A state of so many merges, and its value after each, the first one included."""
    state = FragmentState.initial(tensors(random))
    values = [state.value]
    for version in range(versions):
        state = state.after([answered("learner-1", version, tensors(random))], config, PLAIN)
        values.append(state.value)
    return state, values


def merged_alone(base, anchor):
    """Three versions are there; what a single learner that began from `base` makes of them, and what it sent."""
    random = np.random.default_rng(0)
    config = plain(anchor=anchor)
    state, values = grown(config, 3, random)
    delta = tensors(random)
    return values, delta, state.after([answered("learner-2", base, delta)], config, PLAIN)


def assert_lies_behind(merged, value, delta):
    for name, found in merged.value.items():
        np.testing.assert_allclose(found, value[name] - delta[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("base", [0, 1, 2, 3])
def test_anchored_at_the_previous_version_a_learner_alone_puts_its_own_value_in_its_place(base):
    """theta - (theta - its value), whatever it began from."""
    values, delta, merged = merged_alone(base, "latest")
    assert_lies_behind(merged, values[base], delta)


@pytest.mark.parametrize("base", [0, 1, 2, 3])
def test_anchored_at_its_own_base_a_learner_takes_nothing_back_of_what_others_did(base):
    values, delta, merged = merged_alone(base, "base")
    assert_lies_behind(merged, values[3], delta)
    assert not merged.before


def test_as_many_versions_are_kept_as_a_base_may_be_old_and_a_cut_holds_them():
    state, values = grown(plain(anchor="latest", max_staleness=2), 5, np.random.default_rng(0))
    restored = FragmentState.restored(state.tensors() | state.older(), state.meta())
    assert [digest(value) for value in restored.before] == [digest(values[4]), digest(values[3])]
    assert [digest(value) for value in state.before] == [digest(value) for value in restored.before]


@pytest.mark.parametrize(("base", "reason"), [(5, ""), (4, "forgotten base"), (2, "stale")])
def test_what_a_syncer_that_died_does_not_know_any_more_can_not_be_an_anchor(base, reason):
    config = plain(anchor="latest", max_staleness=2)
    state, _ = grown(config, 5, np.random.default_rng(0))
    restored = FragmentState.restored(state.tensors(), state.meta())
    delta = tensors(np.random.default_rng(1))
    answer = OuterGradient(round=1, fragment=0, base_version=base, first_step=1, last_step=STEPS, steps=STEPS,
                           tokens=STEPS * config.tokens_per_step_of("learner-2"),
                           digest=digest(delta))
    assert restored.objection("learner-2", 0, answer, delta, config) == reason
    without = "" if reason == "forgotten base" else reason
    assert state.objection("learner-2", 0, answer, delta, config) == without
    assert restored.objection("learner-2", 0, answer, delta, plain(max_staleness=2, anchor="base")) == without


def test_more_versions_than_fit_are_refused():
    TrainerConfig(max_staleness=1000, anchor="base")
    with pytest.raises(ValueError, match=r"max_staleness 65: the syncer keeps so many .* 64 at most"):
        TrainerConfig(max_staleness=65)
