"""Ranks that ft_launcher starts again go on as they should, and each of three bugs of theirs is found."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
pytest.importorskip("nvidia_resiliency_ext")
sys.path.insert(0, str(HERE.parent))
from bed import bugs, verdicts  # noqa: E402


def test_it_passes_as_it_is(tmp_path):
    code, found = verdicts(HERE, tmp_path, scenario="kill-rank")
    assert (code, set(found.values())) == (0, {"passed"}), found
    assert {"rounds_repeat", "resumed"} < found.keys()


@pytest.mark.parametrize("bug", bugs(HERE), ids=str)
def test_a_planted_bug_is_found(tmp_path, bug):
    code, found = verdicts(HERE, tmp_path, bug)
    assert (code, found[bug.checks[0]]) == (1, "failed"), found
