"""What else goes on on other machines, from what agents there tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diloco_chaos.harness.base.machine import Sample
from diloco_chaos.harness.places.remote.machines import AgentMachines, AgentReport

HERE = Sample(1.0, 2, 0.5, 0.3, 1.2, 0.0, 0.02, 0.4, 0.1, 0.0, 1.0, 2.0, 0.1, 0.5, 0.01)


def look(agent, boot, at, used, busy=0, idle=0, **more):
    stat = [busy, 0, 0, idle, 0, 0, 0, 0]
    return AgentReport(agent, boot, at, used, {"cores": 4, "ticks": 100, "stat": stat, **more})


def test_what_others_used_is_what_nobody_of_ours_has():
    machines = AgentMachines()
    machines.samples([look("a", "m", 0.0, 1.0), look("b", "m", 0.0, 5.0)], "here", HERE)
    found = machines.samples([look("a", "m", 2.0, 2.0, busy=500, idle=300), look("b", "m", 2.0, 6.0)], "here", HERE)
    sample = found["m"]
    assert (sample.seconds, sample.cores, sample.ours) == (2.0, 4, 1.0)
    assert sample.idle == pytest.approx(1.5)
    assert sample.others == pytest.approx(1.5)


def test_waiting_is_a_share_of_the_time():
    machines = AgentMachines()
    machines.samples([look("a", "m", 0.0, 0.0, io=1_000_000)], "here", HERE)
    assert machines.samples([look("a", "m", 2.0, 0.0, io=1_500_000)], "here", HERE)["m"].io == 0.25


@pytest.mark.parametrize("second", [["b"], ["a", "b"], []])
def test_nothing_is_said_where_somebody_came_or_went(second):
    machines = AgentMachines()
    machines.samples([look("a", "m", 0.0, 0.0)], "here", HERE)
    assert "m" not in machines.samples([look(name, "m", 1.0, 0.0, idle=100) for name in second], "here", HERE)


def test_agents_on_the_harness_own_machine_are_a_part_of_what_it_knows():
    machines = AgentMachines()
    machines.samples([look("a", "here", 0.0, 0.0)], "here", HERE)
    sample = machines.samples([look("a", "here", 1.0, 0.9, busy=100, idle=100)], "here", HERE)["here"]
    assert sample == replace(HERE, ours=HERE.ours + 0.9, others=pytest.approx(0.3))


def test_what_others_do_on_the_harness_machine_keeps_no_node_elsewhere_waiting():
    sample = AgentMachines().samples([], "here", HERE)["here"]
    assert (sample.others, sample.cpu, sample.late) == (0.0, 0.0, HERE.late)


def test_what_agents_use_is_counted_each_by_its_own_time():
    machines = AgentMachines()
    machines.samples([look("a", "m", 0.0, 0.0), look("b", "m", 0.9, 0.0)], "here", HERE)
    assert machines.samples([look("a", "m", 1.0, 0.5), look("b", "m", 1.1, 0.1)], "here", HERE) == {
        "here": replace(HERE, others=0.0, cpu=0.0, io=0.0, memory=0.0, sync=0.0)}  # too soon to tell
    sample = machines.samples([look("a", "m", 1.0, 0.5), look("b", "m", 1.9, 0.4)], "here", HERE)["m"]
    assert sample.ours == pytest.approx(0.9)


def test_one_that_is_cut_off_keeps_nobody_from_being_watched():
    machines = AgentMachines()
    for at in range(8):
        found = machines.samples([look("a", "m", float(at), 0.5 * at), look("cut off", "m", 0.0, 0.0)], "here", HERE)
    assert found["m"].ours == 0.5
