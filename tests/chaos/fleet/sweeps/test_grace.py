"""The grace window."""

import pytest
from pydantic import ValidationError

from diloco_chaos.chaos.fleet.sweeps.cell import CELLS
from diloco_chaos.chaos.fleet.sweeps.grace import Grace, swept
from diloco_chaos.harness.base.workers import InProcess


def test_a_window_lets_more_contribute_unless_the_link_is_too_narrow():
    asked = Grace(gamma=(0.0, 0.8), rate=(0.9, 20.0), learners=3, runs=1)
    found = {(row.gamma, row.rate): row for row in swept(asked, InProcess(CELLS))}
    assert found[0.0, 20.0].contributors == pytest.approx(1, abs=0.2)
    assert found[0.8, 20.0].contributors == pytest.approx(3, abs=0.1)
    assert found[0.8, 0.9].contributors < 2.5
    assert found[0.8, 20.0].tokens_per_s > 2 * found[0.0, 20.0].tokens_per_s
    assert found[0.8, 20.0].excess < found[0.0, 20.0].excess


@pytest.mark.parametrize(("wrong", "words"), [
    ({"quorum": 9}, "--quorum 9: there are 8 learners"), ({"gamma": (1.1,)}, "between 0 and 1"),
    ({"rate": (0.0,)}, "between 0.001 and 8000"), ({"variance": 1.0}, "0.9"), ({"rtt": "2min"}, "at most 60s")])
def test_what_can_not_be_is_refused(wrong, words):
    with pytest.raises(ValidationError, match=words):
        Grace(**wrong)
