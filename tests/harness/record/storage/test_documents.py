"""YAML that is more than anybody writes is refused, and soon."""

import pytest

from diloco_chaos.harness.record.storage.documents import yaml_of

BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{one}: &{one} [{', '.join([f'*{before}'] * 9)}]\n" for before, one in zip("abcdefgh", "bcdefghi", strict=True))


def test_plain_values_and_aliases_are_read(tmp_path):
    (tmp_path / "file").write_text("x: &x {a: 1}\ny: {<<: *x, b: [1, two]}\n")
    assert yaml_of(tmp_path / "file") == {"x": {"a": 1}, "y": {"a": 1, "b": [1, "two"]}}


def test_an_empty_file_holds_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    assert yaml_of(tmp_path / "file") is None


@pytest.mark.parametrize(("text", "why"), [
    (BOMB, "more than 20,000 values"), ("[" * 5000, "too many brackets"), ("{", "while parsing"),
    (b"\xff\xfe\xfd", "can't decode"), ("#" * ((1 << 20) + 1), "more than 1 MB")])
def test_what_nobody_writes_is_refused_with_a_reason(tmp_path, text, why):
    (tmp_path / "file").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=why):
        yaml_of(tmp_path / "file")
