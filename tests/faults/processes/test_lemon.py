"""Broken nodes: what is asked of the cluster."""

from dataclasses import replace

from diloco_chaos.harness.places.base import NodeSpec
from diloco_chaos.harness.trainers.core.programs import Program


def test_a_lemon_of_commands_leaves_its_start_to_its_own_scheduler_and_one_of_ours_has_none(cluster, hit, fault):
    one = fault(kind="lemon", targets="w-2", after_start="1s")
    one.inject(replace(hit, spec=lambda name: NodeSpec(name, (), program=Program("train"))))
    one.inject(hit)
    assert cluster.calls == [("spoil", "w-2", 1.0, None, None, None), ("spoil", "w-2", 1.0, 0.5, None, None)]
    assert one.expected_duration() is None
    assert one.describe() == "w-2 fails for good, 1.0 s after each start"


def test_a_lemon_that_is_undone_lives(cluster, hit, fault):
    fault(kind="lemon", targets=["w-1", "w-2"]).undo(hit)
    assert cluster.calls == [("mend", "w-1"), ("mend", "w-2")]


def test_a_lemon_is_started_when_the_scenario_says_so_and_fails_so_often(cluster, hit, fault):
    one = fault(kind="lemon", targets="w-2", after_start="300ms", restart_after="2s", times=3)
    one.inject(hit)
    assert cluster.calls == [("spoil", "w-2", 0.3, 2.0, 3, None)]
    assert one.describe() == "w-2 fails 3 times, 300 ms after each start"


def test_a_lemon_is_one_for_so_long(cluster, hit, fault):
    one = fault(kind="lemon", targets="syncer", **{"for": "4s"})
    one.inject(hit)
    assert cluster.calls == [("spoil", "syncer", 0.8, 0.5, None, 4.0)]
    assert one.describe() == "syncer fails for 4.0 s, 800 ms after each start"
    assert [fault(kind="lemon", targets="syncer", **more).is_final() for more in ({"for": "4s"}, {"times": 2}, {})] == [
        False, False, True]
