"""What nodes keep of what they compute with: bounded, some of all of a long run, and never more important than it."""

import numpy as np
import pytest

from diloco_chaos.harness.trainers.core.effects import Working
from diloco_chaos.harness.trainers.storage import workings
from diloco_chaos.harness.trainers.storage.workings import InFolder, InMemory, Workings, room


def working(number, values=1000):
    return Working("merge", {"fragment": number % 4, "version": number},
                   {"value": {"a": np.full(values, number, np.float32)}, "error": {}})


def numbers(folder):
    return [record.fields["version"] for record in InFolder(folder)]


def test_what_was_kept_is_read_as_it_was_written(tmp_path):
    keeps = Workings(tmp_path / "workings", "syncer", 2, "full", 3)
    for number in range(5):
        keeps.keep(working(number))
    records = list(InFolder(tmp_path / "workings"))
    assert [(one.node, one.incarnation, one.of, one.fields["version"]) for one in records] == [
        ("syncer", 2, "merge", number) for number in range(5)]
    assert records[3].parts.keys() == {"value", "error"}
    assert (records[3].parts["value"]["a"] == 3).all()
    assert records[3].parts["error"] == {}


@pytest.fixture
def small(monkeypatch):
    """A run may keep 400 kB."""
    monkeypatch.setattr(workings, "_SAMPLED", 400_000)


def test_a_long_run_has_some_of_all_of_it_and_no_more_than_there_is_room_for(tmp_path, small):
    keeps = Workings(tmp_path, "syncer", 0, "sampled", 3)
    for number in range(5000):
        keeps.keep(working(number, 200))
    found = numbers(tmp_path)
    assert (tmp_path / "syncer.0.bin").stat().st_size <= room("sampled", "syncer", 3) // 2
    assert found[:10] == list(range(10))
    assert sum(number > 2500 for number in found) >= 5
    assert {number % 4 for number in found} == {0, 1, 2, 3}


def test_every_process_of_a_node_has_room_though_there_were_many(tmp_path, small):
    for incarnation in range(4):
        keeps = Workings(tmp_path, "syncer", incarnation, "sampled", 3)
        for number in range(100):
            keeps.keep(working(number, 300))
    assert {record.incarnation for record in InFolder(tmp_path)} == {0, 1, 2, 3}
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= room("sampled", "syncer", 3)


def test_what_is_larger_than_all_the_room_is_left_out(tmp_path, small):
    Workings(tmp_path, "learner-1", 0, "sampled", 3).keep(working(0, 10**6))
    assert numbers(tmp_path) == []


def test_a_disk_without_room_costs_the_evidence_and_nothing_else(tmp_path):
    (tmp_path / "syncer.0.bin").mkdir()
    keeps = Workings(tmp_path, "syncer", 0, "full", 3)
    keeps.keep(working(0))
    keeps.keep(working(1))
    assert numbers(tmp_path) == []


def test_half_of_a_run_is_the_syncers_and_half_the_learners_together():
    assert room("sampled", "syncer", 5) == 4 * room("sampled", "learner-1", 5) == 32 << 20
    assert room("off", "syncer", 5) == 0


@pytest.mark.parametrize("garbage", [b"", b"\0", b"\xff\xff\xff\xff", b"\0\0\0\2ab", b"\0\0\0\0" * 9])
def test_a_file_ends_where_it_is_no_record(tmp_path, garbage):
    Workings(tmp_path, "syncer", 0, "full", 3).keep(working(7))
    with open(tmp_path / "syncer.0.bin", "ab") as file:
        file.write(garbage)
    (tmp_path / "notes.bin").write_bytes(garbage)
    assert numbers(tmp_path) == [7]


def test_what_is_remembered_is_as_it_was_though_it_is_computed_with_further():
    keeps, one = InMemory(), working(3)
    keeps.keep("syncer", 1, one)
    one.parts["value"]["a"] += 1
    [record] = keeps
    assert (record.node, record.incarnation, record.of, record.fields["version"]) == ("syncer", 1, "merge", 3)
    assert (record.parts["value"]["a"] == 3).all()


def test_memory_is_bounded_too(small):
    keeps = InMemory()
    for number in range(1000):
        keeps.keep("syncer", 0, working(number, 200))
    assert 250 < len(list(keeps)) < 300
