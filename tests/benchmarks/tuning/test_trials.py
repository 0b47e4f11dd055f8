"""A search that was interrupted goes on where it was."""

import json

from benchmarks.tuning.trials import kept, key_of, rows


def squared(number):
    return number * number


def row(number, result):
    return {"number": number, "result": result}


def test_jobs_are_done_once_in_any_order_and_told_in_theirs(tmp_path, capsys):
    path, known = tmp_path / "kept.jsonl", {3: -9}
    with kept(path, known, squared, row, float, 2) as results:
        assert results([5, 3, 4, 5]) == [25, -9, 16, 25]
        assert results([4, 2]) == [16, 4]
    assert sorted(rows(path), key=lambda one: one["number"]) == [row(2, 4), row(4, 16), row(5, 25)]
    assert known == {2: 4, 3: -9, 4: 16, 5: 25}
    assert "16.0000  4" in capsys.readouterr().err


def test_what_was_kept_before_stays(tmp_path):
    path = tmp_path / "kept.jsonl"
    path.write_text(json.dumps(row(1, 1)) + "\n")
    with kept(path, {1: 1}, squared, row, float, 1) as results:
        results([2])
    assert rows(path) == [row(1, 1), row(2, 4)]


def test_there_is_nothing_where_there_is_no_file(tmp_path):
    assert rows(tmp_path / "none.jsonl") == []


def test_the_name_of_a_setting_does_not_depend_on_the_order_of_its_parts():
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1})
    assert json.loads(key_of({"b": 2, "a": 1})) == {"a": 1, "b": 2}
