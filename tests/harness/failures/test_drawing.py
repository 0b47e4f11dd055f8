"""Nodes fail as often as was asked for, however they do: some more than others, again and together, in bad times."""

import numpy as np
import pytest
from pydantic import ValidationError

from diloco_chaos.harness.failures.away import away_shares, beyond
from diloco_chaos.harness.failures.drawing import drawn_by, impossible
from diloco_chaos.harness.failures.likeness import likeness
from diloco_chaos.harness.failures.process import FailureProcess

DAY = 86_400.0
NODES, DAYS, IN_SERVICE_S, AWAY_S = 400, 200, 20 * DAY, DAY
KINDS = {"alike": {}, "lemons": {"lemons": 0.7}, "relapse": {"relapse": 0.4, "relapse_within": "1d"},
         "quick relapses": {"relapse": 0.3, "relapse_within": "2d", "relapse_shape": 0.5},
         "burst": {"burst": 0.5, "burst_size": 4.0},
         "rack": {"burst": 0.3, "burst_size": 8.0, "burst_of": "neighbours"},
         "heavy": {"repair_shape": 0.5}, "lognormal": {"repair_sigma": 1.5},
         "all": {"lemons": 1.0, "relapse": 0.3, "burst": 0.2, "burst_size": 3.0, "repair_shape": 0.5}}


def courses(settings, count=20, away_s=AWAY_S):
    process = FailureProcess.model_validate(settings)
    return [drawn_by(process, NODES, IN_SERVICE_S, away_s, DAYS * DAY, seed) for seed in range(count)]


def average(settings):
    """What such courses are like, on average."""
    drawn = [likeness(course) for course in courses(settings)]
    return dict(zip(drawn[0]._fields, np.nanmean(np.array(drawn), axis=0), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_are_in_service_and_away_for_as_long_as_was_asked_for(kind):
    found = courses(KINDS[kind])
    failures = np.mean([(course.steps < 0).sum() for course in found])
    away = np.mean([(shares * np.arange(len(shares))).sum() for shares in (
        away_shares(course) for course in found)])
    lost = failures / NODES / DAYS / DAY  # each node's, per second in service and away
    in_service_s = (1 - away / NODES) / lost
    assert in_service_s == pytest.approx(IN_SERVICE_S, rel=0.06)
    assert away / NODES / lost == pytest.approx(AWAY_S, rel=0.06)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_from_the_beginning_on_as_it_will_be(kind):
    found = courses(KINDS[kind], 40)
    lost = np.mean([np.histogram(course.times[course.steps < 0], 4, (0, DAYS * DAY))[0] for course in found], axis=0)
    assert lost == pytest.approx(np.full(4, lost.mean()), rel=0.08)
    gone = np.mean([(~course.at_first).mean() for course in found])
    assert gone == pytest.approx(1 / 21, rel=0.15)


def test_lemons_have_most_of_the_failures_and_many_nodes_none():
    alike, lemons = average({}), average({"lemons": 0.5})
    assert alike["worst_tenth"] < 0.2 < 0.3 < lemons["worst_tenth"]
    assert lemons["never"] > alike["never"] + 0.1


def test_who_relapses_fails_again_soon():
    assert average({})["soon"] == pytest.approx(0.3, abs=0.03)  # 7 of 20 days
    assert average({"relapse": 0.4, "relapse_within": "1d"})["soon"] == pytest.approx(0.4 + 0.6 * 0.21, abs=0.05)


def test_those_that_fail_in_bursts_fail_at_the_same_moment():
    (course,) = courses({"burst": 0.5, "burst_size": 4.0}, 1)
    lost = course.times[course.steps < 0]
    moments, counts = np.unique(lost, return_counts=True)
    assert counts[counts > 1].sum() / len(lost) == pytest.approx(0.5, abs=0.06)
    assert counts[counts > 1].mean() == pytest.approx(4.0, rel=0.12)
    assert len(moments) < len(lost)


def test_those_that_fail_as_neighbours_stand_side_by_side():
    (course,) = courses({"burst": 0.5, "burst_size": 4.0, "burst_of": "neighbours"}, 1)
    lost = course.steps < 0
    times, nodes = course.times[lost], course.slices[lost]
    for moment in np.unique(times[1:][np.diff(times) == 0]):
        together = np.sort(nodes[times == moment])
        assert np.ptp(together) < 40 or np.ptp(together) > NODES - 40  # the last stands beside the first


def test_in_bad_times_many_are_away_at_once():
    alike, waves = average({}), average({"waves": 2.0})
    assert alike["weekly"] == pytest.approx(0.87, abs=0.12)  # a node that is away can't fail
    assert waves["weekly"] > 8
    many = [np.mean([beyond(away_shares(course), 30) for course in courses(settings)])
            for settings in ({}, {"waves": 2.0})]
    assert many[0] < 0.03 < 0.06 < many[1]


def test_where_who_is_lost_is_replaced_at_once_nobody_is_away_and_it_fails_as_often():
    for settings in KINDS.values():
        (course,) = courses(settings, 1, away_s=0.0)
        assert course.at_first.all()
        assert (course.steps == -1).all()
        assert len(course.times) == pytest.approx(NODES * DAYS / 20, rel=0.15)


def test_the_same_seed_draws_the_same():
    one, other = courses(KINDS["all"], 1), courses(KINDS["all"], 1)
    assert (one[0].times == other[0].times).all()


@pytest.mark.parametrize(("settings", "why"), [
    ({"relapse": "60%", "burst": "40%"}, "together they are less than 100%"),
    ({"lemons": 0.001}, "0 (all are alike), or 0.01 and more"),
    ({"repair_shape": 0.5, "repair_sigma": 1.0}, "leave one of them out"),
    ({"burst_size": 1.5}, "greater than or equal to 2")])
def test_a_process_that_can_t_be_is_refused(settings, why):
    with pytest.raises(ValidationError, match="1 validation error") as refused:
        FailureProcess.model_validate(settings)
    assert why in str(refused.value)


def test_nodes_that_relapse_late_can_t_fail_often():
    process = FailureProcess.model_validate({"relapse": "90%", "relapse_within": "1y"})
    assert impossible(process, DAY).endswith("make relapse_within shorter")
    assert impossible(process, 365 * DAY) == ""
    assert impossible(process.at_pace(1 / 365), DAY) == ""
