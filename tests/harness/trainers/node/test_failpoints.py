"""Where a node stands still for a fault: counted over all of its processes, from the steady state on."""

from types import SimpleNamespace

from diloco_chaos.harness.record.tape.writing import earlier, write
from diloco_chaos.harness.trainers.node.failpoints import Failpoints, passed
from recorded_events import an_event

PASSED, STOPPED = "failpoint_passed", "failpoint"
STEADY, NOT_YET = SimpleNamespace(steady=True), SimpleNamespace(steady=False)


def come(points, times, core=STEADY):
    """Come to a failpoint so often: the counts at which it was to stop, and what was told."""
    told = []
    stops = [index for index in range(1, times + 1)
             if points.due("upload.half", core, lambda event: told.append((event.event, event.count)))]
    return stops, told


def test_a_node_stops_at_the_nth_time_and_tells_of_each_time_before():
    assert come(Failpoints({"upload.half": 3}), 5) == ([3], [(PASSED, 1), (PASSED, 2), (STOPPED, 3)])


def test_nothing_is_counted_before_the_steady_state_or_where_no_stop_is_wanted():
    assert come(Failpoints({"upload.half": 1}), 5, NOT_YET) == ([], [])
    assert come(Failpoints({"merge.before_commit": 1}), 5) == ([], [])


def test_a_process_counts_on_from_those_before_it():
    assert come(Failpoints({"upload.half": 5}, before={"upload.half": 3}), 4) == ([2], [(PASSED, 4), (STOPPED, 5)])


def test_a_process_after_one_that_has_stopped_stops_no_more():
    assert come(Failpoints({"upload.half": 3}, before={"upload.half": 3}), 4) == ([], [])


def test_how_often_a_node_came_there_stands_on_the_tapes_of_its_earlier_processes(tmp_path):
    def at(incarnation, event, **fields):
        return an_event(1.0, "learner-1", incarnation, event, fields)
    write([at(0, PASSED, point="upload.half", count=1), at(0, PASSED, point="upload.half", count=2),
           at(1, PASSED, point="upload.half", count=3), at(2, PASSED, point="upload.half", count=4)], tmp_path)
    with open(tmp_path / "learner-1.1.jsonl", "a", encoding="utf-8") as file:
        file.write('{"t": 1.0, "node": "learner-1", "inc')  # it was killed
    assert passed(earlier(tmp_path, "learner-1", 2)) == {"upload.half": 3}
    assert passed(earlier(tmp_path, "learner-1", 0)) == {}
