"""Which data a round was made on: what was written is what is read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.trainers.commands.named_data import named, samples

NUMBERS = st.integers(0, 10**12)
RUNS = st.lists(st.tuples(NUMBERS, st.integers(0, 99)).map(lambda run: (run[0], run[0] + run[1])), min_size=1)


def numbers(runs):
    return [number for first, last in runs for number in range(first, last + 1)]


@pytest.mark.parametrize(("value", "runs"), [
    (7, ((7, 7),)), ("7", ((7, 7),)), (7.0, ((7, 7),)), ("12-15", ((12, 15),)), ("12..15", ((12, 15),)),
    ("[3, 4, 9]", ((3, 4), (9, 9))), ([3, 4, 9], ((3, 4), (9, 9))), (["12-15", 20], ((12, 15), (20, 20))),
    ("(3,)", ((3, 3),)), ("4,3", ((4, 4), (3, 3))), ("12,345", ((12345, 12345),)), ("[]", None), ("abc", None),
    ("5-3", None), (-1, None), (1.5, None), (True, None), ({"a": 1}, None), ("", None), (float("nan"), None)])
def test_numbers_ranges_and_lists_name_data(value, runs):
    if runs is None:
        with pytest.raises(ValueError, match="names no data: write a number"):
            named(value)
    else:
        assert named(value) == runs


@given(RUNS, st.sampled_from([", ", " ", "; ", ","]), st.sampled_from(["-", "..", " - "]), st.booleans())
def test_what_is_written_is_read(runs, between, to, brackets):
    text = between.join(f"{first}{to}{last}" for first, last in runs)
    assert numbers(named(f"[{text}]" if brackets else text)) == numbers(runs)


@given(st.lists(NUMBERS, min_size=1))
def test_a_list_is_read_in_its_order_from_json_and_from_text(those):
    assert numbers(named(json.loads(json.dumps(those)))) == numbers(named(str(those))) == those


@given(st.text())
def test_any_text_names_data_or_is_refused_with_what_to_write(text):
    try:
        assert named(text)
    except ValueError as error:
        assert "write a number, a range (12-15), or a list ([3, 4])" in str(error)


@pytest.mark.parametrize(("value", "known"), [
    ("64", {"samples": 64}), (64, {"samples": 64}), ("1,024", {"samples": 1024}),
    ("0-63", {"samples": 64, "named_samples": ((0, 63),)}),
    ([3, 4, 9], {"samples": 3, "named_samples": ((3, 4), (9, 9))})])
def test_a_number_of_samples_is_a_count_and_anything_else_names_them(value, known):
    assert samples(value) == known
