"""The matrix of bugs that are planted in trainers that are not ours."""

import sys
from pathlib import Path

import pytest

from benchmarks import detection, foreign
from diloco_chaos.chaos.checks.builtin import CHECKS

EXAMPLES = Path(foreign.__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))
import bed  # noqa: E402

TABLES = sorted(path.parents[1] for path in EXAMPLES.glob("*/tests/bugs.yaml"))
BUGS = [(example, bug) for example in TABLES for bug in bed.bugs(example)]


def row(bug, named, failed, **more):
    return {"example": "own", "scenario": "kill", "bug": bug, "named": named, "failed": failed, "exit": 1} | more


ROWS = [row("", [], [], exit=0), row("one", ["a", "b"], ["c", "b"]), row("two", ["a"], ["c"]), row("three", ["a"], [])]


@pytest.mark.parametrize(("example", "bug"), BUGS, ids=str)
def test_a_bug_has_a_place_in_its_trainer_and_names_checks_and_a_scenario_that_there_are(example, bug, tmp_path):
    copy = bed.plant(example, tmp_path, bug.edits)
    assert all((copy / edit.file).read_text() != (example / edit.file).read_text() for edit in bug.edits)
    for edit in bug.edits:
        if edit.file.endswith(".py"):
            compile((copy / edit.file).read_text(), edit.file, "exec")
    assert bug.checks
    assert {*bug.checks} <= {each.name for each in CHECKS}
    assert (example / f"scenarios/{bug.scenario}.yaml").exists()


@pytest.mark.parametrize("example", TABLES, ids=lambda path: path.name)
def test_no_two_bugs_of_an_example_have_one_name(example):
    names = [bug.name for bug in bed.bugs(example)]
    assert len(names) == len({*names})


def test_a_text_that_is_not_there_once_is_no_place_for_a_bug(tmp_path):
    with pytest.raises(ValueError, match=r"'import' is \d+ times in own/train.py"):
        bed.plant(EXAMPLES / "own", tmp_path, (bed.Edit("train.py", "import", "x"),))


def test_a_bug_without_edits_is_planted_by_a_script_in_the_trainers_place(tmp_path):
    bug = next(bug for bug in bed.bugs(EXAMPLES / "keras") if bug.name == "step off by one")
    copy = bed.plant(EXAMPLES / "keras", tmp_path, bug.edits)
    assert "tests/planted.py 'step off by one' " in (copy / "scenarios/base.yaml").read_text()


def test_what_was_found_by_the_check_named_by_another_and_by_none_is_told_apart():
    assert foreign.counts(ROWS) == {"bugs": 3, "by_the_check_named": 1, "by_another": 1, "missed": 1, "healthy": 1,
                                    "false_alarms": 0}
    assert foreign.table(ROWS).splitlines()[2:] == [
        "| own | one | kill | a or b | b, c |", "| own | two | kill | a | c |", "| own | three | kill | a | - |"]


def test_a_scenario_that_fails_without_a_bug_is_told():
    assert "Without a bug 1 of 1 of the scenarios passed." in foreign.section(ROWS, [])
    alarm = row("", [], ["uptime"])
    assert "0 of 1 of the scenarios passed; not own/kill (uptime)." in foreign.section([alarm, *ROWS[1:]], [])


def test_the_page_has_both_matrices():
    one = {"class": "c", "bug": "b", "named": "n", "own": ["n"], "explored": ["n"], "schedules": 1, "seconds": 1.0,
           "faults": 0}
    results = {"bugs": 1, "found": 1, "by_the_check_named": 1, "explored": 1, "explored_by_the_check_named": 1,
               "rows": [one]}
    page = detection.page(results, ROWS, ["own: four"])
    assert "| c | b | n | n | n | 1 | 1 | 0 |" in page
    assert "| own | two | kill | a | c |" in page
    assert page.endswith("\n\nNot run yet: own: four.\n")


def test_a_bug_that_no_row_is_about_waits():
    every = foreign.waiting([])
    first = next(bug for bug in bed.bugs(EXAMPLES / "own") if f"own: {bug}" in every)
    assert f"own: {first}" not in foreign.waiting([row(str(first), [], [], scenario=first.scenario)])
