"""A planner's page has what can be chosen, what a point is worth, and what the answer hangs on."""

from itertools import pairwise

import pytest

from diloco_chaos.chaos.fleet.planning import HOURS_A_YEAR, Answer, Asked, Plan, wanted
from diloco_chaos.harness.fleet.fleet import Fleet
from diloco_chaos.harness.fleet.replications import Estimate, Summary


def fleet(**settings):
    return Fleet.model_validate({"chips": 100_000, "repair": "1h"} | settings)


def answered(goodput, base=None, cost=None, half=0.001):
    """A plan in which each fleet has this goodput."""
    answers = [Answer(asked, Summary(fleet=asked.fleet, goodput=Estimate(mean=goodput(asked), half=half), states={},
                                     uptime=Estimate(mean=1.0, half=0.0), capacity=Estimate(mean=1.0, half=0.0),
                                     interruptions=1.0)) for asked in wanted(base or fleet())]
    return Plan(base or fleet(), answers, (), cost)


def test_every_part_of_the_page_has_several_fleets_that_differ_in_what_it_is_about():
    asked = wanted(fleet())
    for part, setting in (("chips", "chips"), ("learners", "learners"), ("repair", "repair"), ("spares", "spares"),
                          ("intervals", "checkpoint_every")):
        mine = [each for each in asked if each.part == part]
        assert len({getattr(each.fleet, setting) for each in mine}) == len({each.x for each in mine}) > 3
    assert [each.fleet.mode for each in asked if each.part == "modes"] == [
        "decoupled", "elastic_data_parallel", "data_parallel"]


def test_fleets_that_can_t_be_are_left_out():
    asked = wanted(fleet(chips=10_000, slice_chips=1000))
    assert {each.fleet.learners for each in asked if each.part == "learners"} == {2, 4, 8}
    assert {each.fleet.mode for each in asked if each.part == "chips" and each.x < 8000} == {
        "elastic_data_parallel", "data_parallel"}


def test_checkpoint_intervals_lie_around_the_one_that_is_best_by_the_formula():
    base = fleet(checkpoint_cost="20s", checkpoint_every="1h")
    every = [each.x for each in wanted(base) if each.part == "intervals"]
    best = (2 * 20 / base.interruptions_per_s) ** 0.5
    assert every == pytest.approx(sorted([best / 4, best / 2, best, 2 * best, 4 * best, 3600]))
    assert {each.fleet.checkpoint_cost for each in wanted(base) if each.part == "intervals"} == {20.0}


def test_what_it_hangs_on_most_comes_first_and_what_means_nothing_to_a_mode_has_no_number():
    def goodput(asked: Asked) -> float:
        changed = asked.x if asked.line == "time to repair" else 1.0
        return 0.8 - 0.1 * (changed - 1)
    rows = answered(goodput).hangs()
    assert rows[0].words == "time to repair"
    assert rows[0].points["decoupled"] == pytest.approx((5.0, -10.0))
    assert rows[0].points["data_parallel"] is None  # a spare is always there
    assert rows[0].most == pytest.approx(10)
    by_words = {row.words: row.points for row in rows}
    assert by_words["restart of a rigid job"]["decoupled"] is None
    assert by_words["pauses to shrink and to grow"]["data_parallel"] is None
    assert by_words["learners"]["elastic_data_parallel"] is None
    assert "time to notice a loss" not in by_words  # half and twice of nothing


def test_spares_cost_what_their_chips_do_and_a_point_what_those_that_bring_it_cost():
    plan = answered(lambda asked: 0.5 + 0.01 * (asked.fleet.spares or 0), cost=2.0)
    rows = plan.bought()
    assert [row.spares for row in rows] == sorted({row.spares for row in rows})
    for before, row in pairwise(rows):
        assert row.cost == pytest.approx(row.spares * 256 * HOURS_A_YEAR * 2)
        assert row.per_point == pytest.approx(256 * HOURS_A_YEAR * 2)
        assert row.cost > before.cost
    assert rows[0].per_chip == pytest.approx(rows[0].goodput.mean * 391 / (391 + rows[0].spares))
    assert plan.point_a_year == pytest.approx(0.01 * 100_000 * HOURS_A_YEAR * 2)


def test_a_point_that_chance_explains_has_no_price_and_without_a_price_nothing_has():
    assert all(row.per_point is None for row in answered(lambda asked: 0.5, cost=2.0).bought())
    plan = answered(lambda asked: 0.5 + 0.01 * (asked.fleet.spares or 0))
    assert plan.point_a_year is None
    assert all(row.cost is row.per_point is None for row in plan.bought())
