"""Learners that are gone for good."""

import pytest
from pydantic import ValidationError

from diloco_chaos.chaos.fleet.sweeps.cell import CELLS
from diloco_chaos.chaos.fleet.sweeps.failed_share import FailedShare, swept
from diloco_chaos.harness.base.workers import InProcess


def rows(*modes):
    asked = FailedShare(learners=4, gone=(0.5,), mode=modes, runs=1)
    return {(row.mode, row.gone): row for row in swept(asked, InProcess(CELLS))}


def test_decoupled_learners_lose_what_is_gone_and_rigid_ones_everything():
    found = rows("data_parallel", "decoupled")
    assert list(found) == [("data_parallel", 0), ("data_parallel", 2), ("decoupled", 0), ("decoupled", 2)]
    for mode in ("data_parallel", "decoupled"):
        whole = found[mode, 0]
        assert (whole.goodput, whole.by_tokens) == (1.0, pytest.approx(1, abs=0.01))
    assert found["decoupled", 2].goodput == pytest.approx(0.5, abs=0.05)
    assert found["decoupled", 2].by_tokens == pytest.approx(1, abs=0.01)
    stands = found["data_parallel", 2]
    assert (stands.goodput, stands.by_tokens) == (0.0, None)
    assert stands.by_time < 0.5


def test_somebody_is_always_left_and_nobody_gone_is_always_there():
    assert FailedShare(learners=4, gone=(1.0, 0.26, 0.25)).counts == [0, 3, 1]


@pytest.mark.parametrize("wrong", [{"learners": 1}, {"gone": (1.5,)}, {"gone": (-0.1,)}, {"runs": 0}])
def test_what_can_not_be_is_refused(wrong):
    with pytest.raises(ValidationError):
        FailedShare(**wrong)
