"""What is packed comes out as it went in."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.record.tape.columns import Fields, packed

SCALARS = [st.integers(-1 << 70, 1 << 70), st.integers(0, 300), st.floats(), st.booleans(), st.none(),
           st.text(st.characters(codec=None), max_size=4), st.sampled_from(["learner-1", "learner-2"])]
VALUES = st.recursive(st.one_of(SCALARS), lambda inner: st.lists(inner, max_size=3)
                      | st.dictionaries(st.text(max_size=3), inner, max_size=3), max_leaves=6)
COLUMNS = st.integers(1, 40).flatmap(lambda count: st.lists(st.one_of(
    [st.lists(kind, min_size=count, max_size=count) for kind in [*SCALARS, VALUES]]), min_size=1, max_size=4))


@given(COLUMNS)
def test_whatever_json_can_hold_comes_out_equal_and_of_the_same_types(columns):
    records = [dict(zip("abcd", values, strict=False)) for values in zip(*columns, strict=True)]
    made = packed(records)
    assert repr([dict(Fields(made, number)) for number in range(len(records))]) == repr(records)


@pytest.mark.parametrize("odd", [True, None, 1.0, "1", -1, 1 << 40, 1 << 63, 1 << 80, [1], {"a": 1}])
def test_one_value_of_another_kind_among_many_stays_what_it_is(odd):
    values = [*range(50), odd, *range(50)]
    found = packed([{"a": value} for value in values])
    assert repr([found["a"][number] for number in range(len(values))]) == repr(values)


def test_minus_zero_and_what_is_no_number_stay():
    found = packed([{"a": -0.0, "b": [-0.0], "c": [math.nan]}] * 20)
    assert repr(dict(Fields(found, 7))) == "{'a': -0.0, 'b': [-0.0], 'c': [nan]}"


def test_a_record_equals_the_one_that_went_in_and_has_its_fields_in_the_same_order():
    records = [{"b": number, "a": ["x", number]} for number in range(3)]
    found = Fields(packed(records), 1)
    assert found == records[1]
    assert found != records[0]
    assert list(found) == ["b", "a"]
    assert len(found) == 2
    assert "a" in found
    assert "c" not in found
    assert found.get("c") is None
    with pytest.raises(KeyError):
        found["c"]


def test_what_is_changed_in_a_record_that_was_asked_for_changes_nothing_in_the_next():
    found = packed([{"a": [number]} for number in range(3)])
    found["a"][1].append(5)
    assert found["a"][1] == [1]


def test_a_record_is_shown_as_the_dictionary_it_stands_for():
    record = {"a": 1, "b": [1, {"c": "x"}]}
    assert json.loads(json.dumps(dict(Fields(packed([record] * 20), 3)))) == record
    assert repr(Fields(packed([record] * 20), 3)) == repr(record)
