"""A line of the tape: an event survives being written, whatever it is about."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.base.errors import all_printable, printable
from diloco_chaos.harness.record.tape.events import KINDS, Custom, Failed, MergedPart, Step
from diloco_chaos.harness.record.tape.line import line, parse
from recorded_events import an_event

NAMES = st.text(min_size=1).filter(lambda name: name not in KINDS)
"""Of events that are not in the contract, and may have any fields or none."""
FIELDS = st.dictionaries(st.sampled_from(["a", "b", "c"]),
                         st.one_of(st.integers(-1 << 63, (1 << 64) - 1), st.text(), st.booleans()))
STEP = {"t": 1.0, "node": "a", "inc": 0, "event": "step", "step": 1, "tokens": 8, "began": 0.5}


def read(**fields):
    return parse(json.dumps(STEP | fields).encode())


@given(st.floats(0, 1e6), st.text(min_size=1), st.integers(0, 9), NAMES, FIELDS)
def test_an_event_that_only_its_trainer_knows_survives_being_written(t, node, incarnation, name, fields):
    again = parse(line(Custom(kind=name, fields=fields).stamped(t, node, incarnation)))
    assert isinstance(again, Custom)
    assert abs(again.t - t) < 1e-6
    assert (again.node, again.inc, again.event) == (printable(node), incarnation, printable(name))
    assert again.fields == all_printable(fields)


@given(st.floats(0, 1e6), st.text(min_size=1), st.integers(0, 9), st.text())
def test_text_survives_being_written(t, node, incarnation, reason):
    again = parse(line(Failed(reason=reason).stamped(t, node, incarnation)))
    assert (again.node, again.inc, again.reason) == (printable(node), incarnation, printable(reason))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_null_as_in_any_json(value):
    text = line(Step(step=1, tokens=1, began=0.5, loss=value).stamped(1.0, "a", 0))
    assert b'"loss":null' in text
    assert parse(text).loss is None


def test_a_name_that_is_no_unicode_is_written_all_the_same():
    text = line(Failed(reason="/tmp/\udc80").stamped(1.0, "a", 0))
    text.decode()
    assert parse(text).reason.endswith("\\udc80")


def test_a_number_of_more_than_64_bits_is_written_all_the_same():
    text = line(Custom(kind="x", fields={"size": 1 << 70}).stamped(1.0, "a", 0))
    assert parse(text).fields == {"size": 1 << 70}


def test_a_merge_has_what_went_into_it():
    part = MergedPart(learner="a", incarnation=1, base=0, first=1, last=2, steps=2, tokens=16, weight=128.0,
                      arrived=0.5, digest="d")
    merge = an_event(1.0, "syncer", 0, "merge", {"contributions": [part]})
    assert parse(line(merge)).contributions == [part]


def test_fields_that_nobody_knows_are_passed_over():
    assert read(more=1) == read()


@pytest.mark.parametrize(("fields", "words"), [
    ({"step": "1"}, "not a step: Expected `int`, got `str`"),
    ({"tokens": None}, "not a step: Expected `int`, got `null`"),
    ({"began": "soon"}, "not a step: Expected `float`, got `str`"),
    ({"t": 1e9}, "not a step: Expected `float` <= 10000000.0"),
    ({"node": ""}, "not an event: t, node or inc is missing or wrong"),
    ({"inc": -1}, "not an event: t, node or inc is missing or wrong")])
def test_a_field_of_another_type_is_named(fields, words):
    with pytest.raises(ValueError, match=words):
        read(**fields)


def test_all_missing_fields_are_named_at_once():
    with pytest.raises(ValueError, match="a step without began, tokens"):
        parse(b'{"t":1,"node":"a","inc":0,"event":"step","step":1}')


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b'{"t":1}', b'{"event":7,"t":1,"node":"a","inc":0}',
                                  b'{"event":"x","t":"1","node":"a","inc":0}', b"\xff", b"[" * 100_000])
def test_what_is_no_event_is_a_value_error(text):
    with pytest.raises(ValueError):
        parse(text)
