"""The job as it is passes where it is killed, and each of eleven bugs of resumption is found by the check named for it.
"""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
sys.path.insert(0, str(HERE.parent))
from bed import BUGS, verdicts  # noqa: E402

pytest.importorskip("accelerate")


def test_it_passes_as_it_is(tmp_path):
    code, found = verdicts(HERE, tmp_path)
    assert (code, set(found.values())) == (0, {"passed"}), found
    assert {"rounds_repeat", "resumed"} < found.keys()


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(tmp_path, bug):
    code, found = verdicts(HERE, tmp_path, bug)
    assert (code, found[BUGS[bug]]) == (1, "failed"), found
