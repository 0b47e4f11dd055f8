"""Each job as it is passes where it is killed, and each bug of resumption in its table is found by the check
named for it. A framework that is not installed is skipped."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
sys.path.insert(0, str(HERE))
from bed import bugs, verdicts  # noqa: E402

NEEDS = {"accelerate": "accelerate", "checkpoint": "torch", "huggingface": "transformers", "keras": "keras",
         "lightning": "lightning"}
"""Example -> what it trains with."""


def present(example):
    """Skip what is not installed."""
    pytest.importorskip(NEEDS[example], minversion="1")  # the example's own folder, as a package, has no version
    return HERE / example


@pytest.mark.parametrize("example", NEEDS)
def test_it_passes_as_it_is(example, tmp_path):
    code, found = verdicts(present(example), tmp_path)
    assert (code, set(found.values())) == (0, {"passed"}), found
    assert {"rounds_repeat", "resumed"} < found.keys()


@pytest.mark.parametrize(("example", "bug"), [(example, bug) for example in NEEDS for bug in bugs(HERE / example)],
                         ids=str)
def test_a_planted_bug_is_found(example, bug, tmp_path):
    code, found = verdicts(present(example), tmp_path, bug)
    assert (code, "failed" in {found.get(check) for check in bug.checks}) == (1, True), found
