"""However long a file is, no more of it is read than there is room for; what is written goes through no link."""

import os

import pytest

from diloco_chaos.harness.record.storage.files import bytes_of, last_lines, strange, write_whole


def test_a_file_of_the_length_that_is_allowed_is_read_and_one_that_is_longer_is_not(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"x" * (1 << 20))
    assert bytes_of(file, 1 << 20) == b"x" * (1 << 20)
    with open(file, "ab") as longer:
        longer.write(b"x")
    with pytest.raises(ValueError, match=r"^more than 1 MB$"):
        bytes_of(file, 1 << 20)


@pytest.mark.parametrize("size", [0, 1 << 31])
def test_the_end_of_a_log_is_read_however_long_it_is(tmp_path, size):
    log = tmp_path / "log"
    with open(log, "wb") as file:
        file.truncate(size)
        file.seek(size)
        file.write(b"\nlast but one\nlast\n")
    assert last_lines(log)[-2:] == ["last but one", "last"]


def test_a_line_without_an_end_is_cut(tmp_path):
    (tmp_path / "log").write_bytes(b"y" * 1_000_000)
    line, = last_lines(tmp_path / "log")
    assert 0 < len(line) < 10_000


def test_where_there_is_no_log_there_are_no_lines(tmp_path):
    (tmp_path / "folder").mkdir()
    assert last_lines(tmp_path / "folder") == last_lines(tmp_path / "nowhere") == []


def test_what_is_written_takes_the_place_of_a_link_and_leaves_nothing_beside_it(tmp_path):
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "file").symlink_to(tmp_path / "precious")
    write_whole(tmp_path / "file", "new")
    assert [(path.name, path.read_text(), path.is_symlink()) for path in sorted(tmp_path.iterdir())] == [
        ("file", "new", False), ("precious", "kept", False)]
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_whole(tmp_path / "folder", "new")
    assert len(list(tmp_path.iterdir())) == 3


def test_what_is_no_file_is_seen_wherever_it_is(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "plain").write_text("")
    assert strange(tmp_path, "a run") == ""
    os.mkfifo(tmp_path / "a" / "b" / "pipe")
    assert strange(tmp_path, "a run").startswith(f"{tmp_path}/a/b/pipe: not a plain file; a run leaves no links")
    (tmp_path / "a" / "b" / "pipe").unlink()
    (tmp_path / "a" / "link").symlink_to(tmp_path)
    assert strange(tmp_path, "a run").startswith(f"{tmp_path}/a/link: not a plain file")


def test_links_of_a_trainer_to_its_own_checkpoints_are_its_own(tmp_path):
    state = tmp_path / "state" / "w"
    (state / "step-20").mkdir(parents=True)
    (state / "step-20" / "weights").write_text("")
    for name, end in (("last", "step-20"), ("last.ckpt", "step-20/weights"), ("gone", "step-10")):
        (state / name).symlink_to(end)
    assert strange(tmp_path, "a run", links_in="state") == ""
    assert strange(tmp_path, "a run") != ""


@pytest.mark.parametrize("end", ["/dev/null", "../../tape", "loop", "../pipe"])
def test_links_that_lead_elsewhere_are_none_of_its_own(tmp_path, end):
    for name in ("state", "tape"):
        (tmp_path / name / "w").mkdir(parents=True)
    os.mkfifo(tmp_path / "tape" / "pipe")
    (tmp_path / "state" / "w" / "loop").symlink_to(end)
    assert strange(tmp_path / "state", "a run", links_in="w").startswith(f"{tmp_path}/state/w/loop: not a plain file")
    (tmp_path / "state" / "w" / "loop").unlink()
    (tmp_path / "tape" / "link").symlink_to("w")
    (tmp_path / "tape" / "pipe").unlink()
    assert strange(tmp_path, "a run", links_in="state").startswith(f"{tmp_path}/tape/link: not a plain file")
