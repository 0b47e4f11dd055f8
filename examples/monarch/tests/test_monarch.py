"""A driver whose trainer dies goes on as it should when it is started again, and each of three bugs of its is found."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
pytest.importorskip("monarch")
sys.path.insert(0, str(HERE.parent))
from bed import verdicts  # noqa: E402

BUGS = {
    "the driver begins anew": "resumed",
    "optimizer not restored": "rounds_repeat",
    "weights of an older checkpoint": "rounds_repeat",
}
"""Bug -> the check that is named for it."""


def test_it_passes_as_it_is(tmp_path):
    code, found = verdicts(HERE, tmp_path, scenario="kill-trainer")
    assert (code, set(found.values())) == (0, {"passed"}), found
    assert {"rounds_repeat", "resumed"} < found.keys()


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(tmp_path, bug):
    code, found = verdicts(HERE, tmp_path, bug, "kill-trainer")
    assert (code, found[BUGS[bug]]) == (1, "failed"), found
