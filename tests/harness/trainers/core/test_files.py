"""Files that are followed while they are written, whatever becomes of them."""

from __future__ import annotations

import os

import pytest

from diloco_chaos.harness.trainers.core.files import Followed, present


@pytest.fixture
def follow(tmp_path):
    """follow(path) -> what is new in it, each time that it is called."""
    followed = []

    def begin(path="x.log", **options):
        known = before(path, options) if options.pop("existing", False) else None
        files = Followed(str(tmp_path / path), list, known, **options)
        followed.append(files)
        return lambda **end: [line.text for _, lines in files.look(0.0, **end) for line in lines]

    def before(path, options):
        many = options.get("many", False)
        return {identity: size for identity, _, size in present(str(tmp_path / path), many)}
    yield begin
    for files in followed:
        files.close()


def append(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        file.write(text)


def test_a_file_may_come_later_and_grow(tmp_path, follow):
    new = follow()
    assert new() == []
    append(tmp_path / "x.log", "a\nb")
    assert new() == ["a"]
    append(tmp_path / "x.log", "c\n")
    assert new() == ["bc"]
    assert new() == []


def test_what_was_there_before_is_not_read(tmp_path, follow):
    append(tmp_path / "x.log", "old\n")
    new = follow(existing=True)
    append(tmp_path / "x.log", "new\n")
    assert new() == ["new"]


def test_a_file_that_is_rotated_is_read_to_its_end_and_then_the_new_one(tmp_path, follow):
    new, log = follow(), tmp_path / "x.log"
    append(log, "1\n")
    assert new() == ["1"]
    append(log, "2\n")
    os.rename(log, tmp_path / "x.log.1")
    assert new() == ["2"], "nothing is there under its name for a moment"
    append(log, "3\n")
    append(tmp_path / "x.log.1", "late\n")
    assert new() == ["late", "3"]
    os.rename(log, tmp_path / "x.log.2")
    append(log, "4\n")
    assert new() == ["4"]


def test_a_file_that_is_rewritten_and_put_in_its_place_has_the_same_lines_once(tmp_path, follow):
    new, log = follow(), tmp_path / "x.log"
    text = ""
    for number in range(400):
        text += f"{number}\n"
        (tmp_path / "x.tmp").write_text(text)
        os.replace(tmp_path / "x.tmp", log)
        assert new() == [str(number)]


def test_one_that_is_begun_anew_is_read_from_its_beginning(tmp_path, follow):
    new, log = follow(), tmp_path / "x.log"
    append(log, "1\n2\n")
    assert new() == ["1", "2"]
    log.write_text("3\n")
    assert new() == ["3"]
    (tmp_path / "x.tmp").write_text("other\n1\n2\n")
    os.replace(tmp_path / "x.tmp", log)
    assert new() == ["other", "1", "2"]


def test_all_files_of_a_pattern_are_read_also_those_that_come_later(tmp_path, follow):
    new = follow("tr/*/attempt_*/0/stdout.log", many=True)
    append(tmp_path / "tr/a_1/attempt_0/0/stdout.log", "1\n")
    append(tmp_path / "tr/a_1/attempt_0/1/stdout.log", "of another rank\n")
    assert new() == ["1"]
    append(tmp_path / "tr/a_1/attempt_0/0/stdout.log", "2")
    append(tmp_path / "tr/a_1/attempt_1/0/stdout.log", "1\n")
    assert sorted(new()) == ["1"]
    assert new(to_the_end=True) == ["2"]


def test_of_very_many_files_none_is_lost(tmp_path, follow):
    new = follow("*.log", many=True)
    for number in range(1000):
        append(tmp_path / f"{number}.log", f"{number}\n")
    assert sorted(map(int, new())) == list(range(1000))
    append(tmp_path / "0.log", "again\n")
    assert new() == ["again"]


def test_a_folder_or_a_pipe_of_that_name_is_not_waited_for(tmp_path, follow):
    (tmp_path / "folder.log").mkdir()
    os.mkfifo(tmp_path / "pipe.log")
    assert follow("*.log", many=True)() == []
    assert follow("pipe.log")() == []
