"""What the rivals are measured with: who dies when, and how that is seen."""

import pytest

from benchmarks.measure.rivals import KILLS, LEARNERS, OTHER_RATES, WINDOW_S, _figures, _predicted, _simulated, plan
from diloco_chaos.chaos.report.compare import under
from diloco_chaos.faults import Kill
from diloco_chaos.harness.record.tape.events import Lost
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig


def kills(a_plan):
    return [planned.fault for planned in a_plan.faults if isinstance(planned.fault, Kill)]


@pytest.mark.parametrize("count", [KILLS, *OTHER_RATES])
def test_as_many_are_killed_in_the_window_as_are_asked_for_and_take_turns(count):
    killed = kills(plan(0, kills=count))
    assert len(killed) == count
    assert all(0 < kill.at < WINDOW_S for kill in killed)
    assert len({kill.targets for kill in killed[:LEARNERS]}) == min(count, LEARNERS)


def test_the_same_learners_die_at_the_same_times_however_that_is_seen():
    assert kills(plan(3)) == kills(plan(3, seen="by_timeout"))


@pytest.mark.parametrize(("seen", "reason", "least", "most"), [
    ("at_once", "closed by the peer", 0.0, 0.1), ("by_timeout", "silent", 2.9, 3.6)])
def test_a_death_is_seen_at_once_or_only_by_timeout_and_costs_what_is_predicted(seen, reason, least, most):
    history = _simulated(under(plan(0, seen=seen), "elastic_data_parallel"))
    lost = history.tape.of(Lost)
    assert len(lost) == KILLS
    assert all(event.reason.startswith(reason) for event in lost)
    figures = _figures(history, seen)
    assert least <= figures["noticed_s"] <= figures["noticed_longest_s"] <= most
    assert figures["goodput"] == pytest.approx(figures["predicted"], abs=0.02)


@pytest.mark.parametrize(("gone", "seen", "still", "alone"), [
    ([(10, 15)], "at_once", 2, 4), ([(10, 15)], "by_timeout", 5.25, 0.75), ([(10, 12)], "by_timeout", 3, 0),
    ([(10, 15), (15.5, 20)], "at_once", 3, 4 + 4), ([(10, 15), (12, 17)], "at_once", 4, 3 + 3),
    ([(96, 105)], "at_once", 1, 3)], ids=[
    "seen at once", "by timeout", "back before it is missed", "one dies while all stand still for another",
    "two at once", "back after the window"])
def test_an_elastic_group_loses_what_it_stands_still_and_the_rest_of_what_is_dead(gone, seen, still, alone):
    cluster = TrainerConfig(mode="elastic_data_parallel", learners=LEARNERS)
    lost = still + alone / LEARNERS
    assert _predicted(cluster, gone, WINDOW_S, seen) == pytest.approx(1 - lost / WINDOW_S)


def test_rigid_data_parallelism_has_nothing_left_where_somebody_is_always_dead():
    cluster = TrainerConfig(mode="data_parallel", learners=LEARNERS, checkpoint_every=4)
    assert _predicted(cluster, [(start, start + 5) for start in range(0, 100, 4)], WINDOW_S, "at_once") == 0
