"""A line of the tape: an event survives being written, whatever it is about."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.record.tape import event
from diloco_chaos.harness.record.tape.event import Event, line, parse

NAMES = st.text(min_size=1).filter(lambda name: name not in event.FIELDS)
"""Of events that are not in the contract, and may have any fields or none."""
FIELDS = st.dictionaries(st.sampled_from(["a", "b", "c"]),
                         st.one_of(st.integers(-1 << 63, (1 << 64) - 1), st.text(), st.booleans()))


@given(st.floats(0, 1e6), st.text(min_size=1), st.integers(0, 9), NAMES, FIELDS)
def test_an_event_survives_being_written(t, node, incarnation, name, fields):
    again = parse(line(Event(t, node, incarnation, name, fields)))
    assert abs(again.t - t) < 1e-6
    assert (again.node, again.incarnation, again.event, again.fields) == (node, incarnation, name, fields)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_null_as_in_any_json(value):
    text = line(Event(1.0, "a", 0, "step", {"step": 1, "tokens": 1, "began": 0.5, "loss": value}))
    assert '"loss":null' in text
    assert parse(text)["loss"] is None


@pytest.mark.parametrize("value", ["/tmp/\udc80", 1 << 70])
def test_what_a_fast_encoder_does_not_take_is_written_all_the_same(value):
    text = line(Event(1.0, "a", 0, "exit", {"reason": value}))
    text.encode()
    assert parse(text)["reason"] == value
