"""Due dates: every H steps, evenly staggered, none left out and none twice, while H grows and when it stands."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.trainer.algorithm.fragments import offsets
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.config.schedule import steps_between_merges
from diloco_chaos.harness.trainer.coordinator.phase import advanced, due

GROWING = TrainerConfig(model="quadratic", fragments=4, sync_every=24, sync_from=2, sync_growth=200, budget=1000)


def walked(config, jumps=None):
    """(global step, fragments that came due at it), as far as the budget goes; one step at a time, or in jumps."""
    table, phase, step = offsets(config.fragments, config.sync_every), 0.0, 0
    for jump in jumps or [1] * config.budget:
        tokens = config.warm_tokens + step * config.tokens_of_all
        now, step = advanced(phase, jump, config, tokens), step + jump
        yield step, due(phase, now, table, config.sync_every)
        phase = now


@given(st.integers(1, 8), st.integers(1, 24), st.integers(0, 200))
def test_with_an_h_that_stands_a_fragment_is_due_when_the_step_modulo_h_is_its_offset(count, every, step):
    table = offsets(count, every)
    assert due(step, step + 1, table, every) == [
        index for index, offset in enumerate(table) if offset == (step + 1) % every]


def test_with_an_h_that_stands_the_phase_is_the_global_step():
    config = TrainerConfig(sync_every=24)
    assert advanced(7.0, 5, config, 10_000) == 12


@given(st.integers(0, 100), st.integers(1, 60), st.integers(1, 8), st.integers(1, 24))
def test_a_clock_that_jumps_makes_each_fragment_due_at_most_once(previous, jump, count, every):
    found = due(previous, previous + jump, offsets(count, every), every)
    assert len(found) == len(set(found))
    if jump >= every:
        assert sorted(found) == list(range(count))


@given(st.floats(0, 1e6), st.lists(st.floats(0, 50), min_size=1, max_size=20), st.integers(1, 8), st.integers(1, 24))
def test_nothing_is_due_twice_or_left_out_however_the_phase_comes_to_where_it_is(begin, jumps, count, every):
    table, phase, often = offsets(count, every), begin, Counter()
    for jump in jumps:
        often.update(due(phase, phase + jump, table, every))
        phase += jump
    turns = {index: (phase - offset) // every - (begin - offset) // every for index, offset in enumerate(table)}
    most = sum(max(1, jump // every + 1) for jump in jumps)
    assert all(often[index] <= min(turns[index], most) for index in turns)
    if max(jumps) < every:
        assert all(often[index] == turns[index] for index in turns)


@given(st.integers(1, 8), st.integers(1, 23), st.integers(1, 300))
def test_while_h_grows_no_fragment_is_ever_due_more_than_once_as_often_as_another(count, begin, growth):
    config = GROWING.model_copy(update={"fragments": count, "sync_from": begin, "sync_growth": growth, "budget": 400})
    often = Counter(dict.fromkeys(range(count), 0))
    for _, fragments in walked(config):
        often.update(fragments)
        assert max(often.values()) - min(often.values()) <= 1


@pytest.mark.parametrize("fragment", range(4))
def test_between_two_merges_of_a_fragment_lie_as_many_steps_as_h_is_there(fragment):
    at = [step for step, fragments in walked(GROWING) if fragment in fragments]
    per_step = GROWING.tokens_of_all
    for before, after in pairwise(at):
        least, most = (steps_between_merges(GROWING, step * per_step) for step in (before, after))
        assert least - 1 <= after - before <= most + 1
    assert at[-1] - at[-2] == GROWING.sync_every


def test_what_comes_due_first_is_exchanged_first():
    assert due(5, 12, [0, 2, 4, 6], 8) == [3, 0, 1, 2]
