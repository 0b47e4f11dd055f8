"""What is kept in columns comes out as it went in."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.record.tape.events import Received, Step
from diloco_chaos.harness.record.tape.series import Series, column_of, numbered, plain, ranks, texts, together

VALUES = st.one_of(st.lists(kind, min_size=1, max_size=40) for kind in [
    st.integers(-1 << 70, 1 << 70), st.integers(0, 300), st.floats(allow_nan=False), st.booleans(),
    st.text(st.characters(codec=None), max_size=4), st.sampled_from(["learner-1", "learner-2"]),
    st.one_of(st.integers(), st.none(), st.booleans()), st.text("0123456789abcdef", min_size=32, max_size=32)])


def step(t, number=1, **fields):
    return Step(step=number, tokens=8, began=t - 0.1, **fields).stamped(t, "a", 0)


def received(t, fragment=0):
    return Received(fragment=fragment, version=1, step=1, digest="d", closed=0, carried=0).stamped(t, "a", 0)


@given(VALUES)
def test_values_come_out_of_a_column_equal_and_of_the_same_types(values):
    assert repr(plain(column_of(values))) == repr(values)


@given(VALUES, VALUES)
def test_pieces_of_a_column_come_out_as_one(first, second):
    assert repr(plain(together([column_of(first), column_of(second)]))) == repr(first + second)


@given(VALUES)
def test_different_values_are_numbered_in_the_order_in_which_they_come(values):
    different, rows = numbered(column_of(values))
    assert [different[row] for row in rows] == values
    assert len(different) == len(set(values))
    if type(values[0]) is not bool or len(set(map(type, values))) == 1:
        assert different == list(dict.fromkeys(values))


@pytest.mark.parametrize("odd", [None, 1 << 70, 1.5, "x"])
def test_one_value_of_another_kind_among_many_stays_what_it_is(odd):
    values = [*range(50), odd, *range(50)]
    assert repr(plain(column_of(values))) == repr(values)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(-5, 1 << 40), st.none() | st.floats(0, 9)), min_size=1))
def test_events_come_out_equal_and_in_the_order_of_time(rows):
    events = [step(float(t), number, loss=loss) for t, number, loss in rows]
    series = Series.of(events)
    ordered = sorted(events, key=lambda event: event.t)
    assert list(series) == ordered
    assert [series[place] for place in range(len(series))] == ordered
    assert list(series[1:3]) == ordered[1:3]
    assert list(series.until(10.0)) == [event for event in ordered if event.t <= 10.0]
    assert list(series.where(series.t > 5.0)) == [event for event in ordered if event.t > 5.0]


def test_a_field_that_is_missing_is_no_number():
    series = Series.of([step(1.0, loss=2.0), step(2.0)])
    assert np.isnan(series.numbers("loss")).tolist() == [False, True]
    with pytest.raises(TypeError):
        series.integers("loss")


def test_the_rank_of_an_event_is_its_place_among_those_of_several_series():
    steps = Series.of([step(1.0), step(3.0), step(4.0)], [0, 2, 5])
    receipts = Series.of([received(3.0), received(4.0)], [1, 6])
    assert [rank.tolist() for rank in ranks(steps, receipts)] == [[0, 2, 3], [1, 4]]


def test_texts_can_be_compared_whatever_they_hold():
    same = ["a" * 32, "\ud800", "ü"]
    assert (texts(column_of(same)) == texts(list(same))).all()
