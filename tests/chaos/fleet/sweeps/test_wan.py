"""Links of so long a round trip and so low a rate, and which mode stands them."""

import pytest
from pydantic import ValidationError

from diloco_chaos.chaos.fleet.sweeps.cell import CELLS
from diloco_chaos.chaos.fleet.sweeps.wan import Wan, WanRound, WanRow, least_rate, swept
from diloco_chaos.harness.base.workers import InProcess

SMALL = {"sites": 2, "step_time": "100ms", "parameters": ("1M",)}


def rows(**asked):
    return swept(Wan(**SMALL | asked), InProcess(CELLS))


def test_a_narrow_link_takes_more_from_who_sends_every_gradient():
    narrow, wide = rows(rtt=("20ms",), rate=(0.02, 10.0), link=("own",), mode=("data_parallel", "decoupled"))
    assert narrow.place == WanRound(1_000_000, "own", 0.02, 0.02)
    assert narrow.kept["data_parallel"] < 0.1 < 0.9 < narrow.kept["decoupled"]
    assert wide.kept["decoupled"] == pytest.approx(1, abs=0.05)
    assert wide.kept["data_parallel"] > 0.5


def test_a_link_that_all_share_gives_each_less():
    own, shared = rows(rtt=("1ms",), rate=(0.5,), mode=("data_parallel",))
    assert (own.place.link, shared.place.link) == ("own", "shared")
    assert shared.kept["data_parallel"] < 0.75 * own.kept["data_parallel"]


def test_a_long_round_trip_costs_who_waits_for_it_in_every_step():
    [far] = rows(rtt=("100ms",), rate=(10.0,), link=("own",), mode=("data_parallel", "streaming", "decoupled"))
    assert far.kept["data_parallel"] == pytest.approx(0.1 / (0.02 + 0.1), rel=0.1), "computing takes 20 ms of a step"
    assert min(far.kept["streaming"], far.kept["decoupled"]) > 0.85


def test_who_waits_behind_a_busy_link_says_where_it_is_as_soon_as_it_is_free():
    """A report that is dropped because the link is busy must not be the last one for long: a run's timeout is long
    here, and nothing else would tell the syncer that the learner waits."""
    [full] = rows(rtt=("20ms",), rate=(0.0025,), link=("own",), mode=("streaming",))
    assert full.kept["streaming"] > 0.3


def row(rate, kept):
    return WanRow(WanRound(1, "own", 0.1, rate), {"decoupled": kept})


@pytest.mark.parametrize(("kept", "least"), [
    ((0.1, 0.95, 1.0), 2.0), ((0.95, 0.5, 1.0), 5.0), ((1.0, 0.9, 1.02), 1.0), ((0.1, 0.2, 0.3), None)])
def test_the_lowest_rate_is_the_one_from_which_on_all_are_enough(kept, least):
    assert least_rate([row(*pair) for pair in zip((1.0, 2.0, 5.0), kept, strict=True)], "decoupled") == least


@pytest.mark.parametrize("wrong", [{"parameters": ("0",)}, {"rtt": ("61s",)}, {"rate": (0.0,)}, {"link": ("both",)},
                                   {"mode": ("synchronous",)}, {"sites": 1}, {"step_time": "1ms"}, {"seed": -1}])
def test_what_can_not_be_is_refused(wrong):
    with pytest.raises(ValidationError):
        Wan(**wrong)
