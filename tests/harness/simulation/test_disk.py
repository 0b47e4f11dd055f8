"""What of a simulated disk is left after which crash."""

from __future__ import annotations

import errno

import numpy as np
import pytest

from diloco_chaos.harness.record.storage.checkpoint import copies, load_either, saving, saving_both
from diloco_chaos.harness.record.storage.disk import CheckpointError, Content
from diloco_chaos.harness.simulation.disk import MemoryDisk

NAME = "fragment-00.safetensors"


def content(version):
    return Content({"w": np.full(4, version, np.float32)}, {"version": version})


def version_of(disk, name):
    return disk.read(name).meta["version"]


def saved(*versions):
    disk = MemoryDisk()
    for version in versions:
        for _ in saving_both(disk, NAME, content(version)):
            pass
    return disk


def moments():
    return len(list(saving_both(MemoryDisk(), NAME, content(1)))) + 1


def interrupted(disk, steps, version=2):
    save = saving_both(disk, NAME, content(version))
    for _ in range(steps):
        next(save, None)
    return disk


@pytest.mark.parametrize("steps", range(moments() + 1))
def test_power_lost_at_any_moment_of_a_save_leaves_a_whole_copy(steps):
    disk = interrupted(saved(1), steps)
    disk.lose_power()
    found, _ = load_either(disk, NAME, set(disk.names()))
    assert found.meta["version"] in (1, 2)
    assert np.all(found.tensors["w"] == found.meta["version"])


@pytest.mark.parametrize("steps", range(moments() + 1))
def test_killed_at_any_moment_of_a_save_each_copy_is_old_or_new(steps):
    disk = interrupted(saved(1), steps)
    assert {version_of(disk, name) for name in copies(NAME)} <= {1, 2}


def test_what_a_save_has_finished_survives():
    disk = saved(1, 2)
    disk.lose_power()
    assert [version_of(disk, name) for name in copies(NAME)] == [2, 2]
    assert sorted(disk.names()) == sorted(copies(NAME))


def test_a_save_that_forgets_to_sync_is_torn_by_a_loss_of_power(monkeypatch):
    disk = saved(1)
    monkeypatch.setattr(disk, "sync", lambda name: None)
    interrupted(disk, moments())
    disk.lose_power()
    with pytest.raises(CheckpointError):
        load_either(disk, NAME, set(disk.names()))


def test_a_save_that_forgets_to_sync_names_is_undone_by_a_loss_of_power(monkeypatch):
    disk = saved(1)
    monkeypatch.setattr(disk, "sync_names", lambda: None)
    interrupted(disk, moments())
    disk.lose_power()
    assert version_of(disk, NAME) == 1


def test_a_second_loss_of_power_changes_nothing():
    disk = interrupted(saved(1), 3)
    disk.lose_power()
    first = {name: version_of(disk, name) for name in disk.names()}
    disk.lose_power()
    assert {name: version_of(disk, name) for name in disk.names()} == first


def test_the_bytes_of_a_file_are_the_same_each_time_that_somebody_looks():
    disk = saved(1)
    assert len({disk.data(NAME) for _ in range(20)}) == 1


def test_a_disk_goes_on_after_a_loss_of_power():
    disk = interrupted(saved(1), 2)
    disk.lose_power()
    interrupted(disk, moments(), version=3)
    disk.lose_power()
    assert version_of(disk, NAME) == 3


def test_a_full_disk_refuses_and_leaves_the_old_file():
    disk = saved(1)
    disk.full = True
    with pytest.raises(OSError) as caught:
        list(saving(disk, NAME, content(2)))
    assert caught.value.errno == errno.ENOSPC
    assert version_of(disk, NAME) == 1
    disk.full = False
    list(saving(disk, NAME, content(2)))
    assert version_of(disk, NAME) == 2


@pytest.mark.parametrize("limit", [0, 10])
def test_a_limit_cuts_a_file_off_there(limit):
    disk = MemoryDisk()
    disk.limit = limit
    with pytest.raises(OSError) as caught:
        disk.write("a", content(1))
    assert caught.value.errno == errno.EFBIG
    assert len(disk.data("a")) == limit
    with pytest.raises(CheckpointError):
        disk.read("a")


def test_a_file_as_large_as_the_limit_may_be_written():
    disk = MemoryDisk()
    disk.limit = len(content(1).encoded())
    disk.write("a", content(1))
    assert version_of(disk, "a") == 1


def test_an_altered_file_is_refused_and_stays_altered_without_power():
    disk = saved(1)
    data = bytearray(disk.data(NAME))
    data[-1] ^= 1
    disk.alter(NAME, bytes(data))
    for _ in range(2):
        with pytest.raises(CheckpointError, match="altered"):
            disk.read(NAME)
        disk.lose_power()


def test_a_file_that_was_taken_away_is_gone_for_good():
    disk = saved(1)
    disk.alter(NAME, None)
    disk.lose_power()
    assert NAME not in disk.names()
    with pytest.raises(CheckpointError, match="no such file"):
        disk.read(NAME)
