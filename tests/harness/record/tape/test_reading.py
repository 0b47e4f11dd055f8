"""The tape: readable after any crash, up to the last whole line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.record.tape.events import Custom, Failed, Merge, Received, Spawn, Step
from diloco_chaos.harness.record.tape.line import line, parse
from diloco_chaos.harness.record.tape.reading import Tail, Tape
from diloco_chaos.harness.record.tape.series import times, values
from diloco_chaos.harness.record.tape.writing import TapeWriter, write
from recorded_events import a_part, an_event


def test_events_of_all_nodes_come_in_the_order_of_time(tmp_path):
    first, second = TapeWriter(tmp_path, "a", 0, 0.0), TapeWriter(tmp_path, "b.c", 3, 0.0)
    first.record(Failed(reason="one"))
    second.record(Custom(kind="two", fields={"x": 1}))
    first.record(Step(step=1, tokens=8, began=0.0))
    read = Tape.read(tmp_path)
    assert [(e.node, e.inc, e.event) for e in read.events] == [("a", 0, "failed"), ("b.c", 3, "two"), ("a", 0, "step")]
    assert read.torn == {}


@given(st.integers(1, 200))
def test_a_file_cut_anywhere_is_read_up_to_the_cut(tmp_path_factory, cut):
    folder = tmp_path_factory.mktemp("tape")
    writer = TapeWriter(folder, "a", 0, 0.0)
    for number in range(5):
        writer.record(Step(step=number, tokens=8, began=0.0))
    path = folder / "a.0.jsonl"
    data = path.read_bytes()
    path.write_bytes(data[:len(data) - cut % len(data)])
    read = Tape.read(folder)
    whole = data[:len(data) - cut % len(data)].count(b"\n")
    assert [e.step for e in read.events] == list(range(whole))
    torn = data[:len(data) - cut % len(data)].endswith(b"\n") or not path.read_bytes()
    assert (("a", 0) in read.torn) == (not torn)


@given(st.binary(max_size=200))
def test_garbage_is_never_more_than_a_torn_file(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("tape")
    (folder / "a.0.jsonl").write_bytes(data)
    read = Tape.read(folder)
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
    found = Tape.read(tmp_path)
    assert found.torn == {("syncer", 0): "syncer.0.jsonl, line 1: the line is too long"}
    assert found.unread == {("syncer", 0)}


@pytest.mark.parametrize("escape", [r"\r", r"\b", r"\f", r"\u001b[2J"])
def test_what_a_terminal_would_obey_is_shown_however_it_is_written(tmp_path, escape):
    (tmp_path / "syncer.0.jsonl").write_text(
        '{"t": 1.0, "node": "syncer", "inc": 0, "event": "failed", "reason": "lost' + escape + 'PASSED"}\n')
    assert Tape.read(tmp_path).events[0].reason.isprintable()


def test_numbers_that_are_none_are_read(tmp_path):
    (tmp_path / "a.0.jsonl").write_text(json.dumps(step(1, loss=float("nan"))) + "\n")
    assert str(Tape.read(tmp_path).events[0].loss) == "nan"


def test_events_of_several_kinds_come_in_the_order_of_time():
    kinds = {"x": "step", "y": "spawn", "z": "received"}
    events = [an_event(float(t), "a", 0, kinds[name]) for t, name in enumerate("xyzxyx")]
    tape = Tape(reversed(events))
    assert list(tape.of(Step, Received, Step)) == [events[0], events[2], events[3], events[5]]
    assert tape.of(Merge) == []
    assert tape.has(Step)
    assert not tape.has(Merge)


def step(number, **more):
    return {"t": number / 10, "node": "a", "inc": 0, "event": "step", "step": number, "tokens": 8, "began": number / 11,
            **more}


def lines(folder, name, records):
    (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))


ODD = [{"more": 1}, {"tokens": -1}, {"loss": float("nan")}, {"loss": 7}, {"t": 7}, {"node": "b"}, {"inc": 3},
       {"event": "unheard of"}, {"event": "failed", "reason": "\x1b[2J"}, {"event": "failed", "reason": "\ud800"},
       {"step": 1 << 60}]
WRONG = [{"step": 1.5}, {"step": True}, {"step": None}, {"tokens": "8"}, {"began": [{"a": [1]}]}, {"inc": True},
         {"node": ""}, {"t": 1e9}, {"began": "\x1b[2J"}]


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_line_among_thousands_that_are_alike_is_read_as_it_stands(tmp_path, odd):
    records = [step(number, **(odd if number == 5000 else {})) for number in range(9000)]
    lines(tmp_path, "a.0.jsonl", records)
    found = Tape.read(tmp_path)
    assert not found.torn
    expected = [parse(json.dumps(record).encode()) for record in records]
    assert sorted(map(repr, found.events)) == sorted(map(repr, expected))


@pytest.mark.parametrize("wrong", WRONG)
def test_a_line_that_is_wrong_ends_its_file_though_thousands_before_it_were_whole(tmp_path, wrong):
    records = [step(number, **(wrong if number == 5000 else {})) for number in range(9000)]
    lines(tmp_path, "a.0.jsonl", records)
    found = Tape.read(tmp_path)
    assert len(found.events) == 5000
    assert found.torn["a", 0].startswith("a.0.jsonl, line 5001: not a")
    assert found.torn["a", 0].isprintable()
    assert found.unread == {("a", 0)}


KINDS = st.sampled_from(["step", "received", "outer_gradient", "spawn", "merge", "unheard of"])


@given(st.lists(st.tuples(st.integers(0, 9), KINDS, st.sampled_from(["a.0", "a.1", "b.0"]), st.integers(-9, 1 << 40))))
def test_a_tape_that_was_read_answers_as_one_that_was_made_by_hand(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("tape")
    numbers = {"spawn": "incarnation", "merge": "round"}
    events = [an_event(float(t), file[0], int(file[2]), name, {numbers.get(name, "step"): number})
              for t, name, file, number in rows for _ in range(9)]
    write(events, folder)
    read = Tape.read(folder)
    made = Tape(sorted(events, key=lambda event: (event.node, event.inc)))
    assert list(read.events) == list(made.events)
    assert len(read) == len(made) == len(events)
    assert list(read.of(Step, Merge)) == list(made.of(Step, Merge))
    assert list(read.of(Received, node="a")) == list(made.of(Received, node="a"))
    assert read.named("unheard of", "step") == made.named("unheard of", "step")
    assert read.ends == made.ends
    assert read.end == made.end
    for process in made.ends:
        assert read.moments(process) == made.moments(process)
    for kinds in ((Step,), (Step, Spawn), (Merge,)):
        found, by_hand = read.by_process(*kinds), made.by_process(*kinds)
        assert [(process, list(events)) for process, events in found.items()] == [
            (process, list(events)) for process, events in by_hand.items()]
    assert list(read.series(Step)) == list(made.series(Step))
    for process, mine in read.series(Step).items():
        assert times(mine) == times(made.series(Step)[process])
        assert values(mine, "step") == values(made.series(Step)[process], "step")


def test_a_line_that_lacks_a_field_ends_its_file(tmp_path):
    records = [step(number) for number in range(9000)]
    del records[7000]["tokens"]
    lines(tmp_path, "a.0.jsonl", records)
    found = Tape.read(tmp_path)
    assert len(found.events) == 7000
    assert found.torn == {("a", 0): "a.0.jsonl, line 7001: a step without tokens"}
    assert found.unread == {("a", 0)}


def test_events_that_were_read_can_be_written_again(tmp_path):
    merges = [an_event(t, "a", 0, "merge", {"contributions": [a_part(learner="b", first=t)]}) for t in range(50)]
    write([*merges, *(an_event(t, "a", 0, "step", {"step": t}) for t in range(50))], tmp_path)
    read = Tape.read(tmp_path)
    write(read.events, tmp_path / "again")
    assert (tmp_path / "again" / "a.0.jsonl").read_bytes() == b"".join(map(line, read.events))
    assert Tape.read(tmp_path / "again").of(Merge)[30].contributions == [a_part(learner="b", first=30)]
