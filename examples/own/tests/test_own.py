"""The trainers pass as they are, and each bug planted in them is found by a check that is named for it beforehand."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
sys.path.insert(0, str(HERE.parent))
from bed import bugs, verdicts  # noqa: E402

BUGS = bugs(HERE)


@pytest.mark.parametrize("scenario", dict.fromkeys(bug.scenario for bug in BUGS))
def test_it_passes_as_it_is(tmp_path, scenario):
    code, found = verdicts(HERE, tmp_path, scenario=scenario)
    assert (code, set(found.values())) == (0, {"passed"}), found


@pytest.mark.parametrize("bug", BUGS, ids=str)
def test_a_planted_bug_is_found(tmp_path, bug):
    code, found = verdicts(HERE, tmp_path, bug)
    assert (code, "failed" in {found.get(check) for check in bug.checks}) == (1, True), found


def test_a_bit_that_turns_over_on_the_way_is_found(tmp_path):
    """One in the numbers leaves two workers that differ, or one without a number; one in a length ends the process, or
    leaves both waiting. Which of them comes first is chance."""
    code, found = verdicts(HERE, tmp_path, scenario="garbled")
    assert (code, found["faults_verified"]) == (1, "passed"), found
    failed = {name for name, verdict in found.items() if verdict == "failed"}
    assert failed & {"digests_agree", "losses_are_numbers", "no_unplanned_exit", "no_global_stall"}, found
