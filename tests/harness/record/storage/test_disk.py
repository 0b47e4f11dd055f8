"""Contents of files, and what a real folder and a simulated one have in common."""

from __future__ import annotations

import numpy as np
import pytest

from diloco_chaos.harness.record.storage.checkpoint import PARTIAL, copies, load_either, saving, saving_both
from diloco_chaos.harness.record.storage.disk import CheckpointError, Content, FolderDisk
from diloco_chaos.harness.simulation.disk import MemoryDisk

NAME = "fragment-00.safetensors"


@pytest.fixture(params=["folder", "memory"])
def disk(request, tmp_path):
    return FolderDisk(tmp_path / "state") if request.param == "folder" else MemoryDisk()


def content(version=1):
    return Content({"w": np.arange(4, dtype=np.float32) + version}, {"version": version, "who": ["a", "b"]})


def save(disk, version):
    for _ in saving_both(disk, NAME, content(version)):
        pass


def test_what_was_encoded_is_decoded():
    found = Content.decoded(content().encoded(), "x")
    assert found.meta == content().meta
    assert np.array_equal(found.tensors["w"], content().tensors["w"])


def test_any_byte_that_is_flipped_is_noticed():
    data = content().encoded()
    noticed = 0
    for place in range(len(data)):
        altered = bytearray(data)
        altered[place] ^= 0x01
        try:
            found = Content.decoded(bytes(altered), "x")
        except CheckpointError:
            noticed += 1
        else:
            assert found.meta == content().meta
            assert np.array_equal(found.tensors["w"], content().tensors["w"])
    assert noticed > 0.9 * len(data)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.99])
def test_a_file_that_was_cut_off_is_refused(share):
    data = content().encoded()
    with pytest.raises(CheckpointError, match="where it was"):
        Content.decoded(data[:int(share * len(data))], "where it was")


def test_a_save_leaves_both_copies_and_nothing_else(disk):
    save(disk, 1)
    save(disk, 2)
    assert list(disk.names()) == sorted(copies(NAME))
    assert [disk.read(name).meta["version"] for name in copies(NAME)] == [2, 2]


def test_an_interrupted_save_leaves_the_old_file_beside_the_unfinished_one(disk):
    save(disk, 1)
    next(saving(disk, NAME, content(2)))
    assert disk.read(NAME).meta["version"] == 1
    assert NAME + PARTIAL in disk.names()


def test_between_the_two_copies_the_newer_one_counts(disk):
    save(disk, 1)
    for moment in saving_both(disk, NAME, content(2)):
        if moment == "checkpoint.between":
            break
    found, damaged = load_either(disk, NAME, set(disk.names()))
    assert found.meta["version"] == 2
    assert list(damaged.values()) == ["a version behind"]


@pytest.mark.parametrize("lost", [0, 1])
def test_one_copy_makes_up_for_the_other(disk, lost):
    save(disk, 1)
    disk.remove(copies(NAME)[lost])
    found, damaged = load_either(disk, NAME, set(disk.names()))
    assert found.meta["version"] == 1
    assert damaged == {copies(NAME)[lost]: "missing"}


def test_without_any_copy_it_says_so_for_each(disk):
    with pytest.raises(CheckpointError, match="missing; missing"):
        load_either(disk, NAME, set())


def test_a_name_that_is_not_there_can_not_be_read(disk):
    with pytest.raises(CheckpointError, match="nothing"):
        disk.read("nothing")


def test_a_rename_replaces_what_bore_the_name(disk):
    disk.write("a", content(1))
    disk.write("b", content(2))
    disk.rename("b", "a")
    assert list(disk.names()) == ["a"]
    assert disk.read("a").meta["version"] == 2
