"""What counts as reading a file that is watched, and what does not."""

import mmap
import os

import pytest

from diloco_chaos.harness.record.storage.reads import Reads


@pytest.fixture
def reads():
    watching = Reads()
    yield watching
    watching.close()


@pytest.fixture
def kept(tmp_path):
    path = tmp_path / "kept"
    path.write_bytes(b"x" * 100)
    return path


def mapped(path):
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content[3]


@pytest.mark.parametrize("read", [lambda path: path.read_bytes(), mapped], ids=["read", "mapped"])
def test_a_file_that_is_read_is_told_once(reads, kept, read):
    assert reads.watch(kept, "it")
    assert reads.new() == []
    read(kept)
    read(kept)
    assert reads.new() == ["it"]
    assert reads.new() == []


def test_looking_at_its_size_or_writing_it_anew_is_no_reading(reads, kept):
    reads.watch(kept, "it")
    kept.stat()
    kept.write_bytes(b"new")
    (kept.parent / "other").write_bytes(b"new")
    os.replace(kept.parent / "other", kept)
    kept.read_bytes()  # it is another one now
    assert reads.new() == []


def test_a_file_that_is_gone_is_looked_for_by_who_reads_another_one_of_its_folder(reads, kept):
    (kept.parent / "other").write_bytes(b"x")
    (kept.parent / "folder").mkdir()
    kept.unlink()
    reads.watch(kept, "it")
    os.listdir(kept.parent)
    os.listdir(kept.parent / "folder")
    assert reads.new() == []
    (kept.parent / "other").read_bytes()
    assert reads.new() == ["it"]
    (kept.parent / "new").write_bytes(b"x")
    assert reads.new() == []


def test_a_file_that_the_harness_follows_is_not_told(reads, kept):
    reads.watch(kept, "it")
    with kept.open("rb") as followed:
        followed.read()
        assert reads.new() == []
    kept.read_bytes()
    assert reads.new() == ["it"]


def test_the_harness_own_reading_is_not_told_and_hides_no_other(reads, kept):
    reads.watch(kept, "it")
    kept.read_bytes()
    with reads.ignored():
        kept.read_bytes()
    assert reads.new() == ["it"]
    with reads.ignored():
        kept.read_bytes()
    assert reads.new() == []


def test_what_can_not_be_watched_is_not_and_without_a_watch_nothing_is_read(reads, tmp_path):
    assert not reads.watch(tmp_path / "no" / "file", "it")
    assert Reads().new() == []
