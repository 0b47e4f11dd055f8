"""The tape: readable after any crash, up to the last whole line."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.record.tape import reading, writing
from diloco_chaos.harness.record.tape.event import Event, line, parse
from diloco_chaos.harness.record.tape.packed import times, values
from diloco_chaos.harness.record.tape.reading import Tail, Tape
from diloco_chaos.harness.record.tape.writing import TapeWriter


def test_events_of_all_nodes_come_in_the_order_of_time(tmp_path):
    first, second = TapeWriter(tmp_path, "a", 0, 0.0), TapeWriter(tmp_path, "b.c", 3, 0.0)
    first.record("one")
    second.record("two", x=1)
    first.record("three")
    read = reading.read(tmp_path)
    assert [(e.node, e.incarnation, e.event) for e in read.events] == [("a", 0, "one"), ("b.c", 3, "two"),
                                                                       ("a", 0, "three")]
    assert read.torn == {}


@given(st.integers(1, 200))
def test_a_file_cut_anywhere_is_read_up_to_the_cut(tmp_path_factory, cut):
    folder = tmp_path_factory.mktemp("tape")
    writer = TapeWriter(folder, "a", 0, 0.0)
    for number in range(5):
        writer.record("event", number=number)
    path = folder / "a.0.jsonl"
    data = path.read_bytes()
    path.write_bytes(data[:len(data) - cut % len(data)])
    read = reading.read(folder)
    whole = data[:len(data) - cut % len(data)].count(b"\n")
    assert [e["number"] for e in read.events] == list(range(whole))
    torn = data[:len(data) - cut % len(data)].endswith(b"\n") or not path.read_bytes()
    assert (("a", 0) in read.torn) == (not torn)


@given(st.binary(max_size=200))
def test_garbage_is_never_more_than_a_torn_file(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("tape")
    (folder / "a.0.jsonl").write_bytes(data)
    read = reading.read(folder)
    assert not data.strip() or read.torn or read.events


def test_a_tail_waits_for_the_end_of_a_line(tmp_path):
    tail = Tail(tmp_path)
    assert list(tail.poll()) == []
    (tmp_path / "a.0.jsonl").write_text('{"t":1,"node":"a","inc":0,"event":"x"}\n{"t":2,"no')
    assert [e.event for e in tail.poll()] == ["x"]
    with open(tmp_path / "a.0.jsonl", "a") as file:
        file.write('de":"a","inc":0,"event":"y"}\n')
    assert [e.event for e in tail.poll()] == ["y"]
    assert list(tail.poll()) == []


def test_a_line_without_an_end_is_not_read_as_a_whole(tmp_path):
    with open(tmp_path / "syncer.0.jsonl", "wb") as file:
        file.truncate(8 << 30)  # a sparse file: nobody has so much memory to hold it
    found = reading.read(tmp_path)
    assert found.torn == {("syncer", 0): "syncer.0.jsonl, line 1: the line is too long"}
    assert found.unread == {("syncer", 0)}


@pytest.mark.parametrize("escape", [r"\r", r"\b", r"\f", r"\u001b[2J"])
def test_what_a_terminal_would_obey_is_shown_however_it_is_written(tmp_path, escape):
    (tmp_path / "syncer.0.jsonl").write_text(
        '{"t": 1.0, "node": "syncer", "inc": 0, "event": "failed", "reason": "lost' + escape + 'PASSED"}\n')
    assert reading.read(tmp_path).events[0]["reason"].isprintable()


def test_numbers_that_are_none_are_read(tmp_path):
    (tmp_path / "a.0.jsonl").write_text('{"t": 1.0, "node": "a", "inc": 0, "event": "x", "loss": NaN}\n')
    assert math.isnan(reading.read(tmp_path).events[0]["loss"])


def test_events_of_several_names_come_in_the_order_of_time():
    events = [Event(float(t), "a", 0, name, {}) for t, name in enumerate("xyzxyx")]
    assert Tape(events).of("x", "z", "x") == [events[0], events[2], events[3], events[5]]
    assert Tape(events).of("nothing") == []


def step(number, **more):
    return {"t": number / 10, "node": "a", "inc": 0, "event": "step", "step": number, "tokens": 8, "began": number / 11,
            **more}


def lines(folder, name, records):
    (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))


def exactly(events):
    return [repr((event.t, event.node, event.incarnation, event.event, dict(event.fields))) for event in events]


NUMBERS = st.dictionaries(st.sampled_from(["a", "b"]), st.integers(-9, 1 << 40) | st.booleans())
ODD = [{"more": 1}, {"step": 1.0}, {"step": True}, {"step": None}, {"tokens": 1 << 70}, {"tokens": -1}, {"tokens": "8"},
       {"began": float("nan")}, {"began": 1 << 63}, {"began": [{"a": [1]}]}, {"inc": True}, {"t": 7}, {"node": "b"},
       {"event": "unheard of"}, {"began": "\x1b[2J"}, {"began": "\ud800"}]


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_line_among_thousands_that_are_alike_is_read_as_it_stands(tmp_path, odd):
    records = [step(number, **(odd if number == 5000 else {})) for number in range(9000)]
    lines(tmp_path, "a.0.jsonl", records)
    alone = tmp_path / "alone"
    alone.mkdir()
    lines(alone, "a.0.jsonl", records[5000:5001])
    found = exactly(reading.read(tmp_path).events)
    del records[5000]
    assert sorted(found) == sorted([*exactly(reading.read(alone).events),
                                    *exactly(map(parse, map(json.dumps, records)))])


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("xyz"), st.sampled_from(["a.0", "a.1", "b.0"]), NUMBERS)))
def test_a_tape_that_was_read_answers_as_one_that_was_made_by_hand(tmp_path_factory, told):
    folder = tmp_path_factory.mktemp("tape")
    events = [Event(float(t), file[0], int(file[2]), name, fields) for t, name, file, fields in told for _ in range(9)]
    writing.write(events, folder)
    read = reading.read(folder)
    by_file = sorted(events, key=lambda event: (event.node, event.incarnation))
    made = Tape(sorted(by_file, key=lambda event: event.t))
    assert list(read.events) == made.events
    assert list(read.events[1:5]) == made.events[1:5]
    assert read.of("x", "z") == made.of("x", "z")
    assert read.of("y", node="a") == made.of("y", node="a")
    assert list(read.each("z", "x")) == made.of("x", "z")
    assert read.ends == made.ends
    for names in ((), ("x",), ("x", "y"), ("nothing",)):
        found, by_hand = read.by_process(*names), made.by_process(*names)
        assert [(process, list(events)) for process, events in found.items()] == list(by_hand.items())
        for process, mine in found.items():
            assert times(mine) == times(by_hand[process])
            assert values(mine, "a", "none") == values(by_hand[process], "a", "none")


def test_a_line_that_lacks_a_field_ends_its_file_though_thousands_before_it_were_whole(tmp_path):
    records = [step(number) for number in range(9000)]
    del records[7000]["tokens"]
    lines(tmp_path, "a.0.jsonl", records)
    found = reading.read(tmp_path)
    assert len(found.events) == 7000
    assert found.torn == {("a", 0): "a.0.jsonl, line 7001: a step without tokens"}
    assert found.unread == {("a", 0)}


def test_an_event_that_was_read_can_be_written_again(tmp_path):
    lines(tmp_path, "a.0.jsonl", [step(number, parts=[{"of": number}]) for number in range(50)])
    writing.write(reading.read(tmp_path).events, tmp_path / "again")
    assert (tmp_path / "again" / "a.0.jsonl").read_text() == "".join(map(line, reading.read(tmp_path).events))
    assert list(reading.read(tmp_path / "again").events)[30]["parts"] == [{"of": 30}]
