"""Fates of steps: a mapping that needs a byte for each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.chaos.evidence.accounting.step_fates import Fates

STEPS = [3, 4, 5, 9, 12]


@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15), st.sampled_from(["merged", "late", "crash"]))))
def test_who_has_no_fate_yet_gets_it_as_in_a_dictionary(given_):
    fates, expected = Fates(STEPS), {}
    for first, last, fate in given_:
        places = fates.places(first, last)
        assert [fates.step(place) for place in fates.without(places)] == [
            step for step in STEPS if first <= step <= last and step not in expected]
        fates.give_all(places, fate)
        for step in STEPS:
            if first <= step <= last:
                expected.setdefault(step, fate)
    assert dict(fates) == expected
    assert len(fates) == len(expected)
    assert [fates.at(place) for place in range(len(STEPS))] == [expected.get(step, "") for step in STEPS]
    assert fates.have("merged", "late").tolist() == [expected.get(step) in ("merged", "late") for step in STEPS]


def test_a_fate_can_be_changed_and_given_only_once():
    fates = Fates(STEPS)
    fates.give(0, "merged")
    fates.give(0, "late")
    assert fates[3] == fates.at(0) == "merged"
    fates.change(0, "rolled back")
    assert dict(fates) == {3: "rolled back"}


def test_a_step_that_was_not_taken_and_one_without_a_fate_have_none():
    fates = Fates(STEPS)
    for step in (3, 7):
        with pytest.raises(KeyError):
            fates[step]


def test_more_fates_than_a_byte_can_tell_apart_are_one():
    fates = Fates(range(1000))
    for place in range(1000):
        fates.give(place, f"reason {place}")
    assert fates[5] == "reason 5"
    assert fates[999] == fates[500] == "for one of many other reasons"
