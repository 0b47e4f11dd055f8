"""What nodes write: a file for each of their processes."""

from diloco_chaos.harness.record.tape.writing import TapeWriter, next_incarnation


def test_the_next_incarnation_is_told_by_the_tapes_that_are_there(tmp_path):
    assert next_incarnation(tmp_path / "not yet", "a") == 0
    assert next_incarnation(tmp_path, "a") == 0
    for name in ("a.0", "a.9", "a.10", "a.b.40", "ab.50", "a.x", "a", "a.", ".7", "a.-3"):
        (tmp_path / f"{name}.jsonl").touch()
    (tmp_path / "a.99.jsonl.partial").touch()
    assert next_incarnation(tmp_path, "a") == 11  # numbers, not texts: 10 comes after 9
    assert next_incarnation(tmp_path, "a.b") == 41
    assert next_incarnation(tmp_path, "b") == 0
    TapeWriter(tmp_path, "a", 11, 0.0).close()
    assert next_incarnation(tmp_path, "a") == 12
