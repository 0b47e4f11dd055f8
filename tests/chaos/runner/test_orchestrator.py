"""The orchestrator: when faults come and go, without a clock or a cluster."""

import json

from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.chaos.runner.orchestrator import Abort, EndRun, Heal, Inject, Orchestrator
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from recorded_events import an_event


def orchestrator(faults, deadline="60s", more=""):
    text = f"diloco_chaos: 1\nname: x\ncluster: {{learners: 6}}\ndeadline: {deadline}\n{more}\nfaults:\n"
    text += "".join(f"  - {fault}\n" for fault in faults)
    return Orchestrator(freeze(parse(text), 0))


def event(t, name, node="syncer", **fields):
    return an_event(t, node, 0, name, fields)


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


def test_a_fault_lasts_from_when_it_is_done_as_long_as_was_asked_for():
    machine = orchestrator(["{pause: learner-1, at: 2s, for: 3s}"])
    machine.on_event(event(10, "steady"))
    machine.on_time(12)
    machine.on_event(event(12.4, "injected", "harness", fault="f1", observed={}))
    assert machine.next_at == 15.4
    assert machine.on_time(15.3) == []
    assert [type(action) for action in machine.on_time(15.4)] == [Heal]
    machine.on_event(event(15.5, "injected", "harness", fault="f1", observed={}))
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
    machine = orchestrator(["{kill: learner-1, when: {node: learner-1, failpoint: upload.half, count: 20}}"])
    machine.on_event(event(1, "steady"))
    assert machine.on_event(event(2, "failpoint", "learner-1", point="upload.half", count=20)) != []


def test_a_hold_of_another_count_is_not_the_one_that_is_waited_for():
    machine = orchestrator(["{kill: learner-1, when: {node: learner-1, failpoint: upload.half, count: 20}}"])
    machine.on_event(event(1, "steady"))
    assert machine.on_event(event(2, "failpoint", "learner-1", point="upload.half", count=10)) == []


def test_a_fault_that_waits_for_a_line_comes_when_it_was_sighted_for_it():
    nodes = "trainer: {kind: commands, nodes: {w: {worker: true, run: ls}}, progress: [{node: w, written: true}]}"
    machine = Orchestrator(freeze(parse(f"diloco_chaos: 1\nname: x\n{nodes}\nfaults:\n"
                                        "  - {pause: w, when: {node: w, log: saving}, for: 1s}\n"), 0))
    machine.on_event(event(1, "steady", "rounds"))
    assert machine.on_event(event(2, "sighted", "harness", fault="f2", target="w")) == []
    assert machine.on_event(event(2.1, "sighted", "harness", fault="f1", target="w")) == [
        Inject(machine.plan.faults[0], 2.1)]


def test_a_kill_needs_no_healing():
    machine = orchestrator(["{kill: learner-1, at: 1s, restart_after: 2s}"])
    machine.on_event(event(0, "steady"))
    machine.on_time(1)
    assert machine.active() == []
    assert machine.on_time(50) == []


def test_the_deadline_ends_a_run_that_never_was_steady():
    assert orchestrator([], "5s").on_time(5) == [EndRun("deadline")]


def test_nothing_comes_after_the_end_of_training():
    machine = orchestrator(["{kill: learner-1, at: 30s}"])
    machine.on_event(event(1, "steady"))
    assert machine.on_event(event(9, "finished")) == [EndRun("finished")]
    assert machine.on_time(40) == []


def injected(actions):
    return [action.planned.id for action in actions if isinstance(action, Inject)]


def test_a_fault_comes_a_while_after_the_end_of_one_that_is_undone():
    machine = orchestrator(["{straggler: learner-1, at: 1s, for: 2s, id: first}",
                            "{kill: learner-2, after: {fault: first, wait: 3s}}"])
    machine.on_event(event(0, "steady"))
    machine.on_time(1)
    machine.on_event(event(1.1, "injected", "harness", fault="first", observed={}))
    assert injected(machine.on_time(4.5)) == []  # it is over, and healed at 4.6 only
    machine.on_event(event(4.6, "healed", "harness", fault="first", observed={}))
    assert injected(machine.on_time(7.5)) == []
    assert injected(machine.on_time(7.6)) == ["f2"]


def test_a_kill_is_over_when_all_its_targets_are_started_again():
    machine = orchestrator(["{kill: [learner-1, learner-2], at: 1s, restart_after: 1s}",
                            "{kill: learner-3, after: f1}"])
    machine.on_event(event(0, "steady"))
    machine.on_time(1)
    machine.on_event(event(1, "injected", "harness", fault="f1", observed={}))
    machine.on_event(event(2, "spawn", "harness", target="learner-1", incarnation=1))
    assert injected(machine.on_time(3)) == []
    machine.on_event(event(3, "spawn", "harness", target="learner-2", incarnation=1))
    assert injected(machine.on_time(3)) == ["f2"]


def test_a_kill_for_good_is_over_at_once():
    machine = orchestrator(["{kill: learner-1, at: 1s}", "{kill: learner-3, after: f1}"])
    machine.on_event(event(0, "steady"))
    machine.on_time(1)
    machine.on_event(event(1, "injected", "harness", fault="f1", observed={}))
    assert injected(machine.on_time(1.01)) == ["f2"]


def test_a_fault_after_a_row_of_them_waits_for_the_last():
    machine = orchestrator(["{flapping: learner-1, at: 1s, for: 2s, down: 500ms, up: 500ms, id: flaps}",
                            "{kill: learner-3, after: flaps}"])
    machine.on_event(event(0, "steady"))
    assert injected(machine.on_time(1)) == ["flaps.1"]
    machine.on_event(event(1.5, "healed", "harness", fault="flaps.1", observed={}))
    assert injected(machine.on_time(2)) == ["flaps.2"]
    machine.on_event(event(2.5, "healed", "harness", fault="flaps.2", observed={}))
    assert injected(machine.on_time(2.5)) == ["f2"]


def test_a_fault_comes_once_the_training_loss_has_fallen():
    machine = orchestrator(["{kill: learner-1, when: {loss_below: 2.5}}"])
    machine.on_event(event(0, "steady"))
    assert machine.on_event(event(1, "step", "learner-1", loss=3.0)) == []
    found = [injected(machine.on_event(event(2 + number, "step", "learner-1", loss=2.0))) for number in range(20)]
    assert found[0] == []  # one good step is not yet a trend
    assert [names for names in found if names] == [["f1"]]


def test_a_fault_comes_as_the_recovery_from_another_one_begins_is_noticed_and_goes_on():
    def due(phase):
        machine = orchestrator(["{kill: learner-1, at: 1s, restart_after: 1s}",
                                f"{{kill: learner-3, after: {{fault: f1, phase: {phase}, wait: 500ms}}}}"])
        machine.on_event(event(0, "steady"))
        machine.on_event(event(0.5, "lost", learner="learner-1", reason="of before"))
        machine.on_event(event(0.6, "step", "learner-1", step=1, loss=1.0))
        machine.on_time(1)
        for happens in (event(1.0, "injected", "harness", fault="f1", observed={}),
                        event(1.1, "lost", learner="learner-2", reason="of another fault"),
                        event(1.2, "lost", learner="learner-1", reason="closed"),
                        event(2.0, "spawn", "harness", target="learner-1", incarnation=1, pid=1),
                        event(2.5, "step", "learner-1", step=2, loss=1.0)):
            machine.on_event(happens)
        return machine.next_at
    assert [due(phase) for phase in ("begun", "noticed", "restarted", "first_round", "over")] == [
        1.5, 1.7, 2.5, 3.0, 2.5]


def test_of_commands_a_fault_is_noticed_by_a_line_of_another_node():
    nodes = ("trainer: {kind: commands, nodes: {w: {worker: true, count: 2, run: ls}}, noticed: lost, "
             "progress: [{node: w, written: true}]}")
    machine = Orchestrator(freeze(parse(f"diloco_chaos: 1\nname: x\n{nodes}\nfaults:\n"
                                        "  - {pause: w-1, at: 1s, for: 9s}\n"
                                        "  - {kill: w-2, after: {fault: f1, phase: noticed}}\n"), 0))
    machine.on_event(event(0, "steady", "rounds"))
    machine.on_time(1)
    for happens in (event(1, "injected", "harness", fault="f1", observed={}),
                    event(2, "lost", "rounds", learner="w-1", reason="its process ended"),
                    event(3, "noticed", "w-1", line="lost w-2"), event(4, "noticed", "w-2", line="lost w-1")):
        machine.on_event(happens)
    assert machine.on_time(4) == [Inject(machine.plan.faults[1], 4)]


def test_an_abort_undoes_what_is_on_injects_no_more_and_gives_up_after_the_time_to_heal():
    machine = orchestrator(["{straggler: learner-1, at: 1s, for: 30s}", "{kill: learner-2, at: 5s}"],
                           more="abort_when: {loss_above: 4}\nchecks: {self_healing: {within: 6s}}")
    machine.on_event(event(0, "steady"))
    machine.on_time(1)
    actions = machine.on_event(event(3, "step", "learner-3", loss=9.0))
    assert [type(action) for action in actions] == [Abort, Heal]
    assert "above 4" in actions[0].why
    assert machine.on_event(event(3.1, "step", "learner-3", loss=9.0)) == []
    assert machine.on_time(8) == []
    assert machine.on_time(9) == [EndRun("aborted")]


def test_an_abort_lets_a_lemon_live():
    machine = orchestrator(["{lemon: learner-1, at: 1s}"], more="abort_when: {loss_above: 4}")
    machine.on_event(event(0, "steady"))
    machine.on_time(1)
    actions = machine.on_event(event(3, "step", "learner-3", loss=9.0))
    assert [type(action) for action in actions] == [Abort, Heal]


def test_a_loss_that_is_no_number_is_above_any_bound_until_there_is_one_again():
    machine = orchestrator(["{kill: learner-1, when: {loss_below: 2.5}}"])
    machine.on_event(event(0, "steady"))
    assert machine.on_event(event(1, "step", "learner-1", loss=None)) == []
    assert machine.on_event(event(1.5, "step", "learner-1", loss=float("nan"))) == []
    assert injected(machine.on_event(event(2, "step", "learner-1", loss=2.0))) == ["f1"]
    machine = orchestrator(["{kill: learner-1, at: 5s}"], more="abort_when: {loss_above: 4}")
    machine.on_event(event(0, "steady"))
    assert [type(action) for action in machine.on_event(event(3, "step", "learner-3", loss=None))] == [Abort]


def test_a_loss_that_is_never_reported_ends_no_run():
    trainer = {"kind": "commands", "rounds": 9, "nodes": {"w": {"run": "t", "worker": True}},
               "progress": [{"node": "w", "log": r"(?P<round>\d+)"}]}
    machine = Orchestrator(freeze(parse("diloco_chaos: 1\nname: x\nabort_when: {loss_above: 4}\n"
                                        f"trainer: {json.dumps(trainer)}\n"), 0))
    machine.on_event(event(0, "steady"))
    assert machine.on_event(event(1, "step", "w", step=1, tokens=0)) == []
    assert [type(action) for action in machine.on_event(event(2, "step", "w", step=2, tokens=0, no_number="nan"))] \
        == [Abort]


def test_an_abort_comes_when_too_few_learners_are_alive():
    machine = orchestrator(["{kill: learner-1, at: 1s}"], more="abort_when: {alive_below: 6}")
    for number in range(1, 7):
        machine.on_event(event(0, "spawn", "harness", target=f"learner-{number}", incarnation=0))
    machine.on_event(event(1, "steady"))
    assert machine.on_event(event(2, "merge")) == []
    actions = machine.on_event(event(3, "exit", "harness", target="learner-1", incarnation=0, status=-9, killed=True))
    assert [type(action) for action in actions] == [Abort]


def test_a_learner_is_alive_when_its_stale_incarnation_ends_beside_it():
    machine = orchestrator(["{kill: learner-1, at: 1s}"], more="abort_when: {alive_below: 6}")
    for number in range(1, 7):
        machine.on_event(event(0, "spawn", "harness", target=f"learner-{number}", incarnation=0))
    machine.on_event(event(1, "steady"))
    ends = event(3, "exit", "harness", target="learner-1", incarnation=0, status=0, killed=True)
    machine.on_event(event(2, "spawn", "harness", target="learner-1", incarnation=1))
    assert machine.on_event(ends) == []


def test_what_is_injected_late_is_told_when_it_was_due():
    machine = orchestrator(["{kill: learner-1, at: 1s}"])
    machine.on_event(event(10, "steady"))
    assert machine.on_time(13)[0].due == 11


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


# -- a run that goes on -----------------------------------------------------------------------------------------------


def test_a_run_that_goes_on_knows_its_time_zero_and_brings_only_what_had_not_come():
    machine = orchestrator(["{pause: learner-1, at: 2s, for: 1s}", "{kill: learner-2, at: 4s, restart_after: 1s}"])
    machine.catch_up([event(10, "steady"), event(12, "injected", "harness", fault="f1", observed={}),
                      event(13, "healed", "harness", fault="f1", observed={})], {"f1"})
    assert machine.zero == 10
    assert machine.next_at == 14
    assert [action.planned.id for action in machine.on_time(20)] == ["f2"]  # its moment has passed


def went_on(machine, t, *learners):
    """The harness says so, and starts them."""
    machine.on_event(event(t, "continued", "harness", run="before", checkpoint=1))
    for name in learners:
        machine.on_event(event(t, "spawn", "harness", target=name, incarnation=0))


def test_no_fault_comes_at_a_time_before_everybody_trains_again():
    machine = orchestrator(["{kill: learner-2, at: 4s, restart_after: 1s}"])
    machine.catch_up([event(10, "steady")], set())
    went_on(machine, 16, "learner-1", "learner-2")
    assert machine.wake_on >= {("learner-1", "ready"), ("learner-2", "ready"), ("syncer", "merge")}
    machine.on_event(event(20, "ready", "learner-1"))
    machine.on_event(event(21, "merge"))  # not yet of all
    assert (machine.on_time(21), machine.next_at) == ([], 16 + 60.0)
    machine.on_event(event(22, "ready", "learner-2"))
    assert machine.on_time(22) == []
    machine.on_event(event(23, "merge"))
    assert [action.planned.id for action in machine.on_time(23)] == ["f1"]  # its moment, 14, had passed
    assert machine.next_at == 60 + 7


def test_what_was_still_to_come_comes_as_much_later_as_the_run_was_down_every_time():
    machine = orchestrator(["{pause: learner-1, at: 10s, for: 1s}",
                            "{kill: learner-2, after: {fault: f1, wait: 3s}, restart_after: 1s}"])
    machine.catch_up([event(10, "steady")], set())
    for down, up in ((12, 17), (18, 20)):
        went_on(machine, down)
        machine.on_event(event(up, "merge"))
    assert machine.next_at == 10 + 10 + 5 + 2
    machine.on_time(27)
    for what, t in (("injected", 27.0), ("healed", 28.0)):
        machine.on_event(event(t, what, "harness", fault="f1", observed={}))
    machine.on_time(28)
    assert machine.next_at == 31


def test_a_fault_whose_event_had_passed_unheeded_comes_with_the_next_one():
    machine = orchestrator(["{kill: learner-1, when: {node: learner-2, event: upload, count: 2}}"])
    machine.catch_up([event(1, "steady"), *(event(t, "upload", "learner-2") for t in (2, 3, 4))], set())
    assert [type(action) for action in machine.on_event(event(9, "upload", "learner-2"))] == [Inject]


def test_after_another_fault_means_after_that_of_the_time_before():
    machine = orchestrator(["{id: first, pause: learner-1, at: 2s, for: 1s}",
                            "{kill: learner-2, after: {fault: first, wait: 3s}, restart_after: 1s}"])
    machine.catch_up([event(10, "steady"), event(12, "injected", "harness", fault="first", observed={}),
                      event(13, "healed", "harness", fault="first", observed={})], {"first"})
    assert machine.next_at == 16


def test_a_run_that_had_been_aborted_brings_nothing_more():
    machine = orchestrator(["{kill: learner-1, at: 4s, restart_after: 1s}"], more="abort_when: {alive_below: 6}")
    machine.catch_up([event(1, "steady"), *(event(1, "spawn", "harness", target=f"learner-{index}", incarnation=0)
                                            for index in range(1, 7)),
                      event(2, "exit", "harness", target="learner-3", incarnation=0)], set())
    assert machine.aborted
    assert machine.on_time(5.5) == []
