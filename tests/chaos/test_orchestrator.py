"""The orchestrator: when faults come and go, without a clock or a cluster."""

from hypothesis import given
from hypothesis import strategies as st

from chaos.orchestrator import End, Heal, Inject, Orchestrator
from chaos.plan import freeze
from chaos.scenario import parse
from harness.tape import Event


def orchestrator(faults, deadline="60s"):
    text = f"diloco_chaos: 1\nname: x\ncluster: {{learners: 6}}\ndeadline: {deadline}\nfaults:\n"
    text += "".join(f"  - {fault}\n" for fault in faults)
    return Orchestrator(freeze(parse(text), 0))


def event(t, name, node="syncer", **fields):
    return Event(t, node, 0, name, fields)


def test_times_count_from_the_steady_state():
    machine = orchestrator(["{straggler: learner-1, at: 2s, for: 3s}"])
    assert machine.on_time(10) == []
    machine.on_event(event(11, "steady"))
    assert machine.on_time(12.9) == []
    assert [type(action) for action in machine.on_time(13)] == [Inject]
    assert [planned.id for planned in machine.active()] == ["f1"]
    assert machine.on_time(15.9) == []
    assert [type(action) for action in machine.on_time(16)] == [Heal]
    assert machine.active() == []


def test_a_logical_trigger_fires_at_the_counted_event_after_the_steady_state():
    machine = orchestrator(["{kill: learner-1, when: {node: learner-2, event: upload, count: 2}}"])
    machine.on_event(event(0.5, "upload", "learner-2"))
    machine.on_event(event(1, "steady"))
    assert machine.on_event(event(2, "upload", "learner-2")) == []
    assert machine.on_event(event(2, "upload", "learner-3")) == []
    assert [type(action) for action in machine.on_event(event(3, "upload", "learner-2"))] == [Inject]
    assert machine.on_event(event(4, "upload", "learner-2")) == []


def test_a_hold_point_fires_when_the_node_says_that_it_holds():
    machine = orchestrator(["{kill: learner-1, when: {node: learner-1, hold: upload.half, count: 20}}"])
    machine.on_event(event(1, "steady"))
    assert machine.on_event(event(2, "held", "learner-1", point="upload.half", count=20)) != []


def test_a_kill_needs_no_healing():
    machine = orchestrator(["{kill: learner-1, at: 1s, restart_after: 2s}"])
    machine.on_event(event(0, "steady"))
    machine.on_time(1)
    assert machine.active() == []
    assert machine.on_time(50) == []


def test_the_deadline_ends_a_run_that_never_was_steady():
    assert orchestrator([], "5s").on_time(5) == [End("deadline")]


def test_nothing_comes_after_the_end_of_training():
    machine = orchestrator(["{kill: learner-1, at: 30s}"])
    machine.on_event(event(1, "steady"))
    assert machine.on_event(event(9, "finished")) == [End("finished")]
    assert machine.on_time(40) == []


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 10)), min_size=1, max_size=6),
       st.lists(st.floats(0, 50), max_size=60))
def test_every_injected_fault_is_healed_once_and_in_time(times, ticks):
    machine = orchestrator([f"{{straggler: learner-{number}, at: {at}s, for: {length}s}}"
                            for number, (at, length) in enumerate(times, 1)], "500s")
    machine.on_event(event(0, "steady"))
    log = [(now, action) for now in [*sorted(ticks), 60] for action in machine.on_time(now)]
    log += [(90, action) for action in machine.on_time(90)]
    for index in range(len(times)):
        mine = [(now, type(action)) for now, action in log if action.planned.id == f"f{index + 1}"]
        assert [kind for _, kind in mine] == [Inject, Heal]
        assert mine[1][0] >= mine[0][0] + times[index][1]
