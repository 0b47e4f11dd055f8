"""Rounds that begin again with each epoch have one number in all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.trainers.commands.numbering import Numbering
from diloco_chaos.harness.trainers.core.round_reports import RoundReport


def numbers(pairs, numbering=None):
    numbering = numbering or Numbering()
    return [numbering.numbered(RoundReport(told, epoch=epoch)).round for epoch, told in pairs]


@given(first_epoch=st.sampled_from([0, 1, 5]), first=st.sampled_from([0, 1]), length=st.integers(2, 30),
       epochs=st.integers(1, 5))
def test_they_go_on_where_the_epoch_before_ended(first_epoch, first, length, epochs):
    pairs = [(first_epoch + epoch, first + step) for epoch in range(epochs) for step in range(length)]
    assert numbers(pairs) == list(range(first, first + epochs * length))


@given(every=st.integers(2, 10), told=st.integers(2, 6), first=st.booleans())
def test_also_where_every_tenth_is_told(every, told, first):
    steps = [0 if first else every] + [every * number for number in range(1 if first else 2, told + (not first))]
    assert numbers([(epoch, step) for epoch in range(3) for step in steps]) == [
        steps[0] + every * number for number in range(3 * len(steps))]


@given(length=st.integers(2, 20), made=st.integers(1, 60), back=st.integers(0, 30))
def test_after_a_restart_from_a_checkpoint_a_round_has_the_number_that_it_had(length, made, back):
    whole = [(number // length, number % length + 1) for number in range(100)]
    again = max(0, made - back)
    assert numbers(whole[:made] + whole[again:]) == [*range(1, made + 1), *range(again + 1, 101)]


@given(length=st.integers(1, 20))
def test_rounds_that_go_on_through_all_epochs_are_left_as_they_are(length):
    assert numbers([(number // length, number) for number in range(1, 80)]) == list(range(1, 80))


def test_workers_that_count_together_have_the_same_numbers_though_one_comes_late():
    numbering = Numbering()
    assert numbers([(epoch, step) for epoch in range(3) for step in range(1, 11)], numbering)[-1] == 30
    assert numbers([(2, 9), (2, 10), (3, 1)], numbering) == [29, 30, 31]


def test_an_epoch_that_is_left_out_has_as_many_rounds_as_others():
    assert numbers([(0, 1), (0, 2), (1, 1), (1, 2), (3, 1)]) == [1, 2, 3, 4, 7]


def test_a_process_that_begins_with_the_next_epoch_has_left_out_the_rest():
    numbering = Numbering()
    assert numbers([(0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (1, 2)], numbering)[-1] == 6
    assert numbering.numbered(RoundReport(1, epoch=2), begins=True).round == 9
    assert numbers([(2, 2), (2, 3), (3, 1)], numbering) == [10, 11, 12], "one that goes on has shorter epochs"


@pytest.mark.parametrize("epoch", [None, float("nan"), float("inf")])
def test_without_an_epoch_a_round_is_what_it_says(epoch):
    assert numbers([(epoch, 7), (epoch, 3)]) == [7, 3]


def test_a_fraction_of_an_epoch_is_of_that_epoch():
    assert numbers([(0.5, 1), (0.99, 2), (1.5, 1), (1.99, 2)]) == [1, 2, 3, 4]
