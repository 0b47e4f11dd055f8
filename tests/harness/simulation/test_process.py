"""Simulated processes: stopped, continued and killed at any moment, with clocks that jump."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diloco_chaos.harness.links.toxic import Toxic
from diloco_chaos.harness.record.storage.checkpoint import copies, load_either, saving_both
from diloco_chaos.harness.record.storage.disk import CheckpointError, Content
from diloco_chaos.harness.record.tape.events import Custom, Step, Upload
from diloco_chaos.harness.simulation.disk import MemoryDisk
from diloco_chaos.harness.trainer.protocol.messages import Clock, OuterGradient
from diloco_chaos.harness.trainers.core.effects import AtFailpoint, Close, Commit, Compute, Send, Stop, Timer
from recorded_events import a_part, an_event

NAME = "fragment-00.safetensors"
CLOCK = Clock(step=1, tokens=1, steady=True)
BIG = {"w": np.zeros(2000, np.float32)}
ANSWER = OuterGradient(round=1, fragment=0, base_version=0, first_step=1, last_step=1, steps=1, tokens=1, digest="")


def commit(version):
    return Commit(NAME, {"w": np.full(4, version, np.float32)}, {"version": version})


def old_disk():
    disk = MemoryDisk()
    for _ in saving_both(disk, NAME, Content(commit(1).tensors, commit(1).meta)):
        pass
    return disk


# -- computing ---------------------------------------------------------------------------------------------------------

@settings(max_examples=40)
@given(st.lists(st.tuples(st.floats(0.01, 0.4), st.floats(0.01, 5.0)), max_size=4))
def test_a_computation_that_stands_still_finishes_later_by_exactly_that_time(machines, stops):
    both, stood, ran = machines(client={"on_connected": [[Compute(0, 0.1)]]}), 0.0, 0.0
    for runs, stands in stops:
        if ran + runs >= 0.99:
            break
        both.at(both.world.now + runs).client.freeze()
        both.at(both.world.now + stands).client.thaw()
        ran, stood = ran + runs, stood + stands
    both.at(30.0)
    assert both.client_core.times("on_computed") == [pytest.approx(1.0 + stood, abs=1e-5)]


def test_stopped_twice_a_computation_stands_still_once(machines):
    both = machines(client={"on_connected": [[Compute(0, 0.1)]]})
    both.at(0.4).client.freeze()
    both.at(0.8).client.freeze()
    both.at(2.4).client.thaw()
    both.at(2.5).client.thaw()
    both.at(10.0)
    assert both.client_core.times("on_computed") == [3.0]


def test_a_computation_loses_no_time_to_a_hold_right_after_a_stop(machines):
    both = machines(client={"on_connected": [[Compute(0, 0.1)]], "on_message": [[AtFailpoint("point")]]},
                    server={"on_lost": [], "on_timer": [[Send(CLOCK, to=1)]], "start": [[Timer("t", 0.5)]]},
                    holds={"point": 1})
    both.at(0.3).client.freeze()
    both.at(2.0).client.thaw()
    assert both.client.held
    both.at(5.0).client.thaw()
    both.at(10.0)
    assert both.client_core.times("on_computed") == [5.7]


def test_messages_that_came_while_it_stood_still_are_handled_afterwards_in_order(machines):
    sends = [Send(Clock(step=number, tokens=0, steady=True), to=1) for number in range(3)]
    both = machines(server={"start": [[Timer("t", 1.0)]], "on_timer": [sends]})
    both.at(0.5).client.freeze()
    both.at(2.0)
    assert both.client_core.times("on_message") == []
    both.client.thaw()
    got = [entry[1].step for entry in both.client_core.inputs if entry[0] == "on_message"]
    assert (got, both.client_core.times("on_message")) == ([0, 1, 2], [2.0] * 3)


def test_a_process_that_is_stopped_while_it_starts_is_up_later_by_that_time(machines):
    both = machines(start_learner=1.0)
    both.at(0.5).client.freeze()
    both.at(3.0).client.thaw()
    both.at(10.0)
    [(imported, _)] = both.of("imported")
    assert imported == pytest.approx(3.5, abs=0.1)


# -- timers and clocks -------------------------------------------------------------------------------------------------

def test_of_two_timers_with_one_key_the_newest_counts(machines):
    both = machines(client={"on_connected": [[Timer("t", 1.0), Timer("t", 2.0)]]})
    both.at(5.0)
    assert both.client_core.times("on_timer") == [2.0]


def test_a_timer_fires_once_when_a_stop_is_over(machines):
    both = machines(client={"on_connected": [[Timer("t", 1.0)]]})
    both.at(0.5).client.freeze()
    both.at(4.0).client.thaw()
    both.at(5.0)
    assert both.client_core.times("on_timer") == [4.0]


def test_a_clock_that_jumps_fires_timers_that_are_due_by_then_and_others_as_much_earlier(machines):
    both = machines(client={"on_connected": [[Timer("soon", 10.0), Timer("later", 20.0)]],
                            "on_timer": [[Custom(kind="fired", fields={})], [Custom(kind="fired", fields={})]]})
    both.at(1.0).client.jump(9.5)
    both.at(30.0)
    assert [at for at, _ in both.of("fired")] == [1.0, 10.5]
    assert both.client_core.times("on_timer") == [10.5, 20.0]


def test_a_timer_that_is_set_after_a_jump_fires_by_the_new_clock(machines):
    both = machines(client={"on_connected": [[Compute(0, 0.1)]], "on_computed": [[Timer("t", 12.0)]],
                            "on_timer": [[Custom(kind="fired", fields={})]]})
    both.at(0.5).client.jump(9.0)
    both.at(30.0)
    assert [at for at, _ in both.of("fired")] == [3.0]


def test_the_tape_stays_in_the_time_of_the_world_through_jumps(machines):
    merge = an_event(0.0, "", 0, "merge", {"opened": 0.2, "quorum_at": 0.25, "closed": 111.0,
                                           "contributions": [a_part(arrived=10.5)]})
    both = machines(client={"on_connected": [[Compute(0, 0.1)]], "on_computed": [[merge]]})
    both.at(0.3).client.jump(10.0)
    both.at(0.6).client.jump(100.0)
    both.at(5.0)
    [(_, fields)] = both.of("merge")
    assert [fields[name] for name in ("opened", "quorum_at", "closed")] == [0.2, 0.25, 1.0]
    assert fields["contributions"] == [a_part(arrived=0.5)]


def test_no_time_within_any_jump_is_later_than_that_jump(machines):
    both = machines(client={"on_connected": [[Timer("t", 114.0)]],
                            "on_timer": [[Step(step=1, tokens=1, began=60.0)]]})
    both.at(1.0).client.jump(10.0)
    both.at(2.0).client.jump(100.0)
    both.at(200.0)
    assert both.of("step")[0][1]["began"] == 2.0


# -- saving ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("when", [0.0, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5])
def test_killed_at_any_moment_of_a_commit_old_or_new_is_there_and_nothing_is_told_too_early(machines, when):
    both = machines(server={"start": [[commit(2), Custom(kind="committed", fields={})]]}, disk=old_disk())
    both.at(when)
    both.server.die()
    both.at(20.0)
    versions = [both.disk.read(name).meta["version"] for name in copies(NAME)]
    assert set(versions) <= {1, 2}
    if both.of("committed"):
        assert versions == [2, 2]
    both.disk.lose_power()
    assert load_either(both.disk, NAME, both.disk.names())[0].meta["version"] in (1, 2)


def test_a_commit_takes_as_long_as_its_steps(machines):
    both = machines(server={"start": [[commit(2), Custom(kind="committed", fields={})]]})
    both.at(20.0)
    assert [at for at, _ in both.of("committed")] == [7.0]


def test_a_stop_within_a_write_makes_no_commit_faster(machines):
    both = machines(server={"start": [[commit(2), Custom(kind="committed", fields={})]]})
    for turn in range(6):
        both.at(0.1 + 0.1 * turn).server.freeze()
        both.at(0.15 + 0.1 * turn).server.thaw()
    both.at(20.0)
    assert both.of("committed")[0][0] >= 7.0


def test_a_commit_goes_on_after_a_long_stop(machines):
    both = machines(server={"start": [[commit(2), Custom(kind="committed", fields={})]]})
    both.at(2.5).server.freeze()
    both.at(50.0)
    assert both.of("committed") == []
    both.server.thaw()
    both.at(80.0)
    assert 54.0 <= both.of("committed")[0][0] <= 55.0


def test_what_is_told_while_it_saves_waits_until_it_has_saved(machines):
    both = machines(server={"start": [[commit(2), Custom(kind="committed", fields={})]],
                            "on_message": [[Custom(kind="told", fields={})]]},
                    client={"on_connected": [[Send(CLOCK)]]})
    both.at(20.0)
    assert [event.event for event in both.events if event.event in ("told", "committed")] == ["committed", "told"]


def test_without_room_a_commit_fails_and_nothing_behind_it_happens(machines):
    disk = MemoryDisk()
    disk.full = True
    both = machines(server={"start": [[commit(2), Custom(kind="committed", fields={})]]}, disk=disk).at(20.0)
    assert (both.server.status, both.of("committed")) == (1, [])
    assert "No space left" in both.of("failed")[0][1]["reason"]


def test_a_checkpoint_that_is_refused_ends_the_process(machines):
    def refuse():
        raise CheckpointError("torn")
    both = machines(make_server=refuse).at(1.0)
    assert (both.server.status, both.server.listening) == (2, False)
    assert both.of("refused_checkpoint")[0][1] == {"reason": "torn"}


# -- failpoints -------------------------------------------------------------------------------------------------------

def test_held_in_the_middle_of_a_frame_it_sends_the_rest_once_it_is_thawed(machines):
    both = machines(client={"on_connected": [[Send(ANSWER, BIG, half="half", sent=Upload()),
                                              Custom(kind="next", fields={})]]},
                    holds={"half": 1})
    both.at(5.0)
    [connection] = both.server._open.values()
    arrived, expected = connection.partial
    assert arrived == expected // 2
    assert (both.server_core.times("on_message"), both.of("upload"), both.of("next")) == ([], [], [])
    both.client.thaw()
    both.at(6.0)
    assert both.server_core.times("on_message") == [5.001]
    assert [at for at, _ in both.of("upload")] == [at for at, _ in both.of("next")] == [5.0]


def test_the_rest_of_a_frame_is_no_more_than_what_was_not_sent(machines):
    both = machines(client={"on_connected": [[Send(ANSWER, BIG, half="half", sent=Upload())]]}, holds={"half": 1})
    both.link.add(Toxic("bandwidth", "upstream", {"rate": 1}))
    both.at(20.0).client.thaw()
    both.at(60.0)
    size = both.of("upload")[0][1]["bytes"]
    assert both.server_core.times("on_message") == [pytest.approx(20 + size / 2 / 1000, abs=0.3)]


def test_killed_in_the_middle_of_a_frame_it_leaves_a_part(machines):
    both = machines(client={"on_connected": [[Send(ANSWER, BIG, half="half", sent=Upload())]]}, holds={"half": 1})
    both.at(1.0).client.die()
    both.at(2.0)
    [(_, fields)] = both.of("partial_frame")
    assert fields["peer"] == "learner-1"
    assert fields["bytes"] == fields["expected"] // 2
    assert both.of("upload") == []


def test_a_rest_whose_connection_has_ended_meanwhile_is_not_sent_on_another(machines):
    both = machines(client={"on_connected": [[Send(ANSWER, BIG, half="half", sent=Upload())], []]}, holds={"half": 1})
    both.at(1.0).link.break_all()
    both.at(2.0).client.thaw()
    both.at(10.0)
    assert both.server_core.times("on_message") == []
    assert len(both.client_core.times("on_connected")) == 2


def test_a_point_is_counted_only_in_the_steady_state(machines):
    both = machines(client={"on_connected": [[Timer("t", 1.0), AtFailpoint("point")]],
                            "on_timer": [[AtFailpoint("point")]]},
                    holds={"point": 1})
    both.client_core.steady = False
    both.at(0.5)
    assert not both.client.held
    both.client_core.steady = True
    both.at(1.5)
    assert both.client.held


def test_the_nth_time_counts_and_never_again(machines):
    both = machines(client={"on_connected": [[AtFailpoint("point")] * 5]}, holds={"point": 3})
    both.at(1.0)
    assert [fields for _, fields in both.of("failpoint")] == [{"point": "point", "count": 3}]
    both.client.thaw()
    both.at(2.0)
    assert not both.client.held


@pytest.mark.parametrize("point", ["checkpoint.before_sync", "checkpoint.before_rename", "checkpoint.between"])
def test_held_within_a_commit_it_goes_on_from_there(machines, point):
    both = machines(server={"start": [[commit(2), Custom(kind="committed", fields={})]]}, holds={point: 1})
    both.at(20.0)
    assert (both.server.held, both.of("committed")) == (True, [])
    both.server.thaw()
    both.at(40.0)
    assert both.of("committed")
    assert {both.disk.read(name).meta["version"] for name in copies(NAME)} == {2}


# -- its end -----------------------------------------------------------------------------------------------------------

def test_a_process_that_stands_still_ends_in_good_order_only_when_it_goes_on(machines):
    both = machines()
    both.at(1.0).client.freeze()
    both.client.feed(both.client.exit, 0)
    assert both.at(5.0).client.status is None
    both.client.thaw()
    assert both.client.status == 0
    assert [at for at, _ in both.of("exit")] == [5.0]


def test_a_process_that_stands_still_can_be_killed_and_never_goes_on(machines):
    both = machines(client={"on_connected": [[Compute(0, 0.1)]]})
    both.at(0.5).client.freeze()
    both.client.die()
    both.client.thaw()
    both.at(5.0)
    assert (both.client.status, both.client_core.times("on_computed")) == (-9, [])
    assert both.server_core.times("on_lost")


def test_the_first_end_counts(machines):
    both = machines()
    both.at(1.0).client.exit(0)
    both.client.die()
    assert both.client.status == 0


def test_what_was_sent_before_a_stop_of_training_arrives(machines):
    both = machines(server={"on_message": [[Send(CLOCK, to=1), Stop("finished"), Custom(kind="never", fields={})]]},
                    client={"on_connected": [[Send(CLOCK)]]})
    both.at(5.0)
    assert both.server.status == 0
    assert both.client_core.times("on_message") != []
    assert both.of("never") == []


# -- connections -------------------------------------------------------------------------------------------------------

def test_connections_to_a_server_that_is_starting_end_until_it_listens(machines):
    both = machines(start_syncer=3.0, client={"on_connected": [()] * 50})
    both.at(2.5)
    assert len(both.client_core.times("on_connected")) == len(both.client_core.times("on_lost")) > 2
    both.at(10.0)
    assert len(both.client_core.times("on_connected")) == len(both.client_core.times("on_lost")) + 1
    assert both.server_core.times("on_lost") == []


def test_a_link_that_is_down_refuses_and_nothing_stands_until_it_is_up(machines):
    both = machines()
    both.link.enable(False)
    both.at(5.0)
    assert both.client_core.times("on_connected") == []
    both.link.enable(True)
    both.at(7.0)
    assert len(both.client_core.times("on_connected")) == 1


def test_one_who_is_refused_for_good_ends_and_one_who_is_refused_for_now_comes_back(machines):
    def refused(final):
        both = machines(client={"on_connected": [[Send(CLOCK)], [], []]},
                        server={"on_message": [[Close(1, "no", final)], [], []]})
        return both.at(5.0)
    assert refused(True).client.status == 0
    assert refused(True).of("superseded")[0][1] == {"reason": "no"}
    assert refused(False).client.status is None
    assert len(refused(False).client_core.times("on_connected")) == 2
