"""Faults of processes: what is asked of the cluster."""

import signal
from types import SimpleNamespace

import pytest


@pytest.mark.parametrize(("kind", "calls"), [
    ("kill", [("kill", "learner-1", 3.0), ("kill", "learner-2", 3.0)]),
    ("terminate", [("terminate", name, 3.0, signal.SIGTERM, 2.0) for name in ("learner-1", "learner-2")]),
    ("restart", [("terminate", name, 3.0, signal.SIGTERM, 2.0) for name in ("learner-1", "learner-2")]),
])
def test_what_ends_a_process_leaves_the_restart_to_the_cluster(cluster, hit, fault, kind, calls):
    one = fault(kind=kind, targets=["learner-1", "learner-2"], restart_after="3s")
    assert one.inject(hit) == {}
    assert cluster.calls == calls
    assert one.expected_duration() == 3.0


def test_a_kill_of_the_first_process_alone_needs_a_place_that_tells_processes_apart(fault):
    hit = SimpleNamespace(having=lambda capability: SimpleNamespace(kill_first=lambda *call: killed.append(call)))
    killed, one = [], fault(kind="kill", targets="w", only="process", restart_after="1s")
    one.inject(hit)
    assert killed == [("w", 1.0)]
    assert one.describe() == "kill w (its first process alone), back after 1.0 s"
    assert "signal_process" in one.requires() - fault(kind="kill", targets="w").requires()
    assert "only" not in fault(kind="kill", targets="w").model_dump(mode="json")


def test_a_kill_without_a_restart_is_for_good(fault):
    one = fault(kind="kill", targets="learner-1")
    assert one.expected_duration() is None
    assert one.expected_lost_time() == float("inf")


def test_a_restart_comes_back_at_once(cluster, hit, fault):
    fault(kind="restart", targets="syncer").inject(hit)
    assert cluster.calls == [("terminate", "syncer", 0.0, signal.SIGTERM, 2.0)]


def test_who_is_asked_to_end_is_asked_by_the_signal_and_given_the_time_that_a_scenario_names(cluster, hit, fault):
    one = fault(kind="terminate", targets="w", signal="USR1", grace="30s", restart_after="5s")
    one.inject(hit)
    assert cluster.calls == [("terminate", "w", 5.0, signal.SIGUSR1, 30.0)]
    assert one.describe() == "terminate w by SIGUSR1, back after 5.0 s"


def test_what_older_plans_lack_stands_in_none_that_says_nothing_of_it(fault):
    plain = fault(kind="terminate", targets="w").model_dump(mode="json", by_alias=True)
    assert {"signal", "grace"}.isdisjoint(plain)
    said = fault(kind="terminate", targets="w", signal="INT", grace="4s").model_dump(mode="json", by_alias=True)
    assert (said["signal"], said["grace"]) == ("INT", "4.0s")


def test_a_pause_stops_and_lets_go(cluster, hit, fault):
    one = fault(kind="pause", targets="syncer", **{"for": "2s"})
    one.inject(hit)
    one.undo(hit)
    assert cluster.calls == [("pause", "syncer"), ("resume", "syncer")]


def test_a_superseded_process_comes_back(cluster, hit, fault):
    one = fault(kind="zombie", targets="learner-2", **{"for": "2s"})
    one.inject(hit)
    one.undo(hit)
    assert cluster.calls == [("supersede", "learner-2"), ("revive", "learner-2")]


def test_a_straggler_is_throttled_and_let_go_each_with_chance_of_its_own(cluster, hit, fault):
    one = fault(kind="straggler", targets=["learner-1", "learner-2"], factor=0.5, spread=0.2, seed=7, **{"for": "5s"})
    one.inject(hit)
    one.undo(hit)
    assert cluster.calls == [("throttle", "learner-1", 0.5, 0.2, 7), ("throttle", "learner-2", 0.5, 0.2, 8),
                             ("throttle", "learner-1", None), ("throttle", "learner-2", None)]


def test_a_stragglers_spread_leaves_it_between_standing_and_full_speed(fault):
    with pytest.raises(ValueError, match="not between 0 and 1"):
        fault(kind="straggler", targets="learner-1", factor=0.25, spread=0.3, **{"for": "5s"})
