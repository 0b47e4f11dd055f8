"""The events that there are, each with its own fields."""

import inspect
import math

import pytest

from diloco_chaos.harness.record.tape import events
from diloco_chaos.harness.record.tape.events import KINDS, Custom, Event, Exit, Recovering, Step, Warning
from diloco_chaos.harness.record.tape.line import line, parse
from recorded_events import an_event


def test_every_event_of_the_module_can_be_on_a_tape():
    written = {kind for _, kind in inspect.getmembers(events, inspect.isclass)
               if issubclass(kind, Event) and not kind.__subclasses__()}
    assert written - {Custom} == set(KINDS.values())


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_event_is_the_same_after_it_was_written_and_read(name):
    event = an_event(1.5, "a", 2, name)
    assert parse(line(event)) == event
    assert event.event == KINDS[name].name() == name


@pytest.mark.parametrize("name", sorted(KINDS))
def test_the_times_of_an_event_are_fields_of_it(name):
    assert set(KINDS[name].times) <= set(KINDS[name].__struct_fields__)


def test_a_stamp_says_when_and_whose_it_was():
    event = Step(step=1, tokens=2, began=0.5)
    assert not event.whole
    assert event.stamped(1.23456789, "a", 3).whole
    assert (event.t, event.node, event.inc) == (1.234568, "a", 3)


def test_an_event_without_a_node_an_incarnation_or_a_time_is_not_whole():
    whole = {"t": 1.0, "node": "a", "inc": 0}
    for lacking in ({"t": math.nan}, {"node": ""}, {"inc": -1}):
        assert not Warning(reason="", **whole | lacking).whole


def test_the_payload_has_the_names_of_the_tape_and_nothing_that_is_missing():
    assert dict(Recovering(learner="a", from_="b", versions=[1]).payload()) == {
        "learner": "a", "from": "b", "versions": [1]}
    assert dict(Exit(target="a", incarnation=0, status=0).payload()) == {"target": "a", "incarnation": 0, "status": 0}
    assert dict(Custom(kind="x", fields={"y": 1}).payload()) == {"y": 1}
