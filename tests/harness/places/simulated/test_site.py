"""A whole cluster under virtual time: what is done to its nodes, links and disks, and how it goes on."""

from __future__ import annotations

import numpy as np
import pytest

from diloco_chaos.harness.links.probe import Sounding
from diloco_chaos.harness.links.toxic import Toxic
from diloco_chaos.harness.places.base import ClusterError, NodeSpec
from diloco_chaos.harness.places.capabilities import Clocks, Disks, LinkServer, MemoryLimits, Network, Power
from diloco_chaos.harness.places.cluster import Cluster
from diloco_chaos.harness.places.simulated.site import SimulatedSite
from diloco_chaos.harness.record.undo_log import NoUndoLog
from diloco_chaos.harness.simulation.host import SimulatedHost
from diloco_chaos.harness.simulation.parameters import Parameters
from diloco_chaos.harness.simulation.world import World
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.plugin import DecoupledDiLoCo

COORDINATOR, FIRST, SECOND = "syncer", "learner-1", "learner-2"
TICK = 0.01


class Run:
    """A cluster and its tape."""

    def __init__(self, seed=0, holds=None, **config):
        self.config = TrainerConfig(**({"model": "quadratic", "learners": 2, "budget": 80, "fragments": 8,
                                        "step_time": "0.06s"} | config))
        self.world, self.events = World(seed), []
        around = SimulatedHost(self.world, Parameters(), self._note, lambda *arguments: None)
        self.initial = self.config.spec.initial(self.config.seed)
        workload = DecoupledDiLoCo(self.config).workload(None, self.initial)
        self.site = SimulatedSite(around, workload, self._record, NoUndoLog("token"))
        self.cluster = Cluster(self.site)
        held = {name: (point,) for name, point in (holds or {}).items()}
        hub = NodeSpec(COORDINATOR, (), listens=True, state="state", failpoints=held.get(COORDINATOR, ()))
        self.cluster.start([hub, *(
            NodeSpec(name, (), connects_to=COORDINATOR, failpoints=held.get(name, ())) for name in self.config.names)])

    def _note(self, node, incarnation, event):
        self.events.append((round(self.world.now, 6), node, incarnation, event.event, dict(event.payload())))

    def _record(self, event):
        self._note("harness", 0, event)

    def at(self, when, until=lambda: False):
        while self.world.now < when and not until():
            self.world.run(min(when, self.world.now + TICK))
            self.cluster.poll()
        return self

    def past(self, seconds):
        return self.at(self.world.now + seconds)

    def until(self, event, node=None, count=1):
        before = len(self.of(event, node))
        self.at(self.world.now + 60, lambda: len(self.of(event, node)) >= before + count)
        assert len(self.of(event, node)) >= before + count, f"no {event} within a minute"
        return self

    def end(self):
        self.at(self.world.now + 120, lambda: all(
            node.state == "finished" for node in self.cluster.states().values()))
        assert {node.state for node in self.cluster.states().values()} == {"finished"}
        return self

    def of(self, event, node=None):
        return [found for found in self.events if found[3] == event and node in (None, found[1])]

    def steps(self, node, since):
        return sum(at > since for at, *_ in self.of("step", node))

    def state(self, node):
        return self.cluster.states()[node].state


def test_a_run_to_which_nothing_is_done_finishes():
    run = Run()
    before = {name: array.copy() for name, array in run.initial.items()}
    run.end()
    assert run.of("finished", COORDINATOR)
    assert sum(len(run.of("step", name)) for name in run.config.names) >= 2 * run.config.budget
    assert all(np.array_equal(before[name], array) for name, array in run.initial.items())
    assert run.cluster.residue() == []


def test_one_seed_gives_one_course_of_events_and_another_seed_another():
    def course(seed):
        run = Run(seed, budget=20)
        run.until("steady").cluster.kill(FIRST, 0.1)
        run.cluster.throttle(SECOND, 0.5, 0.2, 1)
        run.cluster.degrade(SECOND, [Toxic("latency", "upstream", {"latency": 20, "jitter": 10}, 0.5)])
        return run.end().events
    assert course("a") == course("a") != course("b")


def test_no_two_processes_have_the_same_number():
    run = Run(learners=24, budget=8)
    pids = [fields["pid"] for *_, fields in run.of("spawn")]
    assert len(set(pids)) == len(pids)


# -- standing still ----------------------------------------------------------------------------------------------------

def test_a_paused_learner_takes_no_step_and_the_others_go_on():
    run = Run(budget=400).until("steady")
    run.cluster.pause(FIRST)
    since = run.world.now
    run.past(3.0)
    assert run.steps(FIRST, since) == 0 < run.steps(SECOND, since)
    assert (run.state(FIRST), run.cluster.residue()) == ("paused", [f"{FIRST} is stopped"])
    run.cluster.resume(FIRST)
    run.past(1.0)
    assert run.steps(FIRST, since) > 5
    assert run.cluster.residue() == []


def test_a_throttled_learner_takes_about_its_share_of_steps():
    run = Run(budget=2000).until("steady")
    run.cluster.throttle(FIRST, 0.25, 0.0, 0)
    since = run.world.now
    run.past(16.0)
    assert run.steps(FIRST, since) == pytest.approx(0.25 * run.steps(SECOND, since), rel=0.25)


def test_a_throttle_does_not_wake_what_is_paused_and_its_end_neither():
    run = Run(budget=2000).until("steady")
    run.cluster.throttle(FIRST, 0.5, 0.0, 0)
    run.past(0.4).cluster.pause(FIRST)
    since = run.world.now
    run.past(5.0).cluster.throttle(FIRST, None)
    run.past(5.0)
    assert run.steps(FIRST, since) == 0
    run.cluster.resume(FIRST)
    run.past(1.0)
    assert run.steps(FIRST, since) > 5


def test_a_throttle_does_not_wake_what_is_held_and_a_pause_takes_it_over():
    run = Run(budget=2000, holds={FIRST: "upload.half:3"})
    run.until("steady").cluster.throttle(FIRST, 0.9, 0.0, 0)
    run.until("failpoint")
    since = run.world.now
    run.past(1.5).cluster.throttle(FIRST, None)
    run.past(1.0).cluster.pause(FIRST)
    run.past(0.2)
    assert [event for at, node, _, event, _ in run.events if at > since and node == FIRST] == []
    run.cluster.resume(FIRST)
    run.past(1.0)
    assert run.of("upload", FIRST)[-1][0] > since
    assert run.steps(FIRST, since) > 5


def test_held_in_the_middle_of_an_upload_and_killed_it_leaves_a_part_and_comes_back():
    run = Run(holds={FIRST: "upload.half:2"}).until("failpoint")
    uploads = len(run.of("upload", FIRST))
    run.cluster.kill(FIRST, 0.2)
    run.until("partial_frame").until("hello", COORDINATOR)
    assert run.of("partial_frame")[0][4]["peer"] == FIRST
    assert len(run.of("upload", FIRST)) == uploads
    assert run.of("hello")[-1][4]["incarnation"] == 1
    run.end()
    assert len(run.of("failpoint")) == 1


def test_one_that_was_killed_on_its_way_to_a_failpoint_comes_to_it_as_its_next_process():
    run = Run(budget=2000, holds={FIRST: "upload.half:6"}).until("failpoint_passed", count=3)
    run.cluster.kill(FIRST, 0.2)
    run.until("failpoint")
    assert run.of("failpoint")[0][1:3] == (FIRST, 1)
    assert [at[4]["count"] for at in run.of("failpoint_passed") if at[2]] == [4, 5]


# -- ends --------------------------------------------------------------------------------------------------------------

def test_one_that_is_terminated_ends_in_good_order():
    run = Run().until("steady")
    run.cluster.terminate(FIRST, None)
    run.past(0.1)
    assert run.state(FIRST) == "finished"
    assert run.of("exit", "harness")[0][4] == {"target": FIRST, "incarnation": 0, "status": 0, "killed": True}


def test_one_that_stands_still_is_terminated_once_it_goes_on():
    run = Run().until("steady")
    run.cluster.pause(FIRST)
    run.cluster.terminate(FIRST, None)
    run.past(1.0)
    assert run.state(FIRST) == "paused"
    run.cluster.resume(FIRST)
    run.past(0.1)
    assert run.state(FIRST) == "finished"


def test_one_that_stands_still_and_is_terminated_is_killed_after_two_seconds():
    run = Run(budget=400).until("steady")
    run.cluster.pause(FIRST)
    run.cluster.terminate(FIRST, None)
    began = run.world.now
    run.until("exit", "harness")
    assert run.of("exit", "harness")[-1][4]["status"] == -9
    assert run.world.now - began == pytest.approx(2.0, abs=0.05)


def test_a_death_that_nobody_brought_about_is_an_error():
    run = Run().until("steady")
    run.site.nodes[FIRST].process.simulated.die()
    with pytest.raises(ClusterError, match="on its own"):
        run.past(0.1)


def test_learners_come_back_to_a_syncer_that_was_restarted():
    run = Run(budget=200).until("steady")
    run.cluster.kill(COORDINATOR, 0.5)
    run.until("listening", COORDINATOR)
    since = run.world.now
    run.past(3.0)
    assert {fields["learner"] for at, *_, fields in run.of("hello") if at > since} == {FIRST, SECOND}
    assert run.of("disconnected", FIRST)
    assert run.end().of("finished", COORDINATOR)[0][2] == 1


def test_a_superseded_learner_sees_it_and_ends():
    run = Run(budget=300).until("steady")
    run.cluster.supersede(FIRST)
    run.past(3.0).cluster.revive(FIRST)
    run.past(3.0)
    assert run.of("superseded", FIRST)[0][2] == 0
    assert [fields["status"] for *_, fields in run.of("exit", "harness")] == [0]
    assert run.cluster.states()[FIRST].incarnation == 1


def test_memory_that_is_used_up_is_said_to_be_the_reason():
    run = Run().until("steady")
    run.cluster.having(MemoryLimits).exhaust_memory(FIRST, 0.1)
    run.past(0.1)
    assert run.of("exit", "harness")[0][4] == {"target": FIRST, "incarnation": 0, "status": -9, "killed": True,
                                               "oom": True}


# -- disks -------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("offset", [0.0, 0.0003, 0.0007, 0.0011, 0.0017, 0.0023, 0.003])
def test_what_was_merged_survives_a_loss_of_power(offset):
    run = Run(budget=200).until("steady")
    run.until("merge", count=2)
    run.world.run(run.world.now + offset)
    run.cluster.having(Power).lose_power(COORDINATOR, 0.2)
    merged = {}
    for *_, fields in run.of("merge"):
        merged[fields["fragment"]] = fields["version"]
    run.until("resumed", COORDINATOR)
    versions = run.of("resumed", COORDINATOR)[-1][4]["versions"]
    assert all(versions[fragment] >= version for fragment, version in merged.items())
    assert run.of("refused_checkpoint") == []


def test_a_full_disk_ends_the_syncer_and_room_brings_it_back():
    run = Run(budget=300).until("steady")
    assert run.cluster.having(Disks).fill_disk(COORDINATOR, 0.5) == sum(run.cluster.state_files(COORDINATOR).values())
    run.until("exit", "harness")
    assert run.of("exit", "harness")[-1][4]["status"] == 1
    assert "No space left" in run.of("failed", COORDINATOR)[0][4]["reason"]
    run.cluster.having(Disks).empty_disk(COORDINATOR)
    run.until("resumed", COORDINATOR)
    run.end()


def test_a_limit_on_files_is_gone_with_the_process():
    run = Run(budget=300).until("steady")
    run.cluster.limit_writes(COORDINATOR, 10, 0.2)
    assert run.cluster.residue() == [f"{COORDINATOR} may write no large file"]
    run.until("resumed", COORDINATOR)
    assert run.cluster.residue() == []
    run.end()


def test_one_damaged_copy_is_made_good_and_two_are_refused():
    run = Run(budget=300).until("steady")
    run.cluster.kill(COORDINATOR, 0.5)
    run.past(0.1).cluster.alter(COORDINATOR, "fragment-00.safetensors", lambda data: data[:-1])
    run.until("repaired", COORDINATOR)
    assert run.of("repaired", COORDINATOR)[0][4]["file"] == "fragment-00.safetensors"
    run.past(1.0).cluster.kill(COORDINATOR, 0.5)
    run.past(0.1)
    for name in ("fragment-00.safetensors", "fragment-00.mirror.safetensors"):
        run.cluster.alter(COORDINATOR, name, lambda data: data[:-1])
    with pytest.raises(ClusterError, match="exit code 2"):
        run.past(2.0)


def test_a_learner_keeps_no_state():
    with pytest.raises(ClusterError, match="keeps no state"):
        Run().cluster.state_files(FIRST)


# -- links -------------------------------------------------------------------------------------------------------------

def test_a_cut_ends_connections_and_refuses_new_ones_until_it_is_over():
    run = Run(budget=300).until("steady")
    run.cluster.disable_link(FIRST)
    since = run.world.now
    run.past(3.0)
    assert [event for at, node, _, event, _ in run.events if at >= since and event == "disconnected"] == [
        "disconnected"]
    assert all(at < since for at, *_ in run.of("hello"))
    assert run.steps(FIRST, since) > 10
    assert run.cluster.residue() == [f"{FIRST} is partitioned"]
    run.cluster.enable_link(FIRST)
    run.past(2.0)
    assert [fields["learner"] for at, *_, fields in run.of("hello") if at > since] == [FIRST]
    assert run.cluster.residue() == []


def test_a_node_off_the_network_is_missed_for_its_silence_and_comes_back():
    run = Run(budget=400).until("steady")
    since = run.world.now
    run.cluster.having(Network).disconnect(FIRST, True)
    run.past(6.0)
    [(lost, *_, fields)] = run.of("disconnected", FIRST)
    assert 2.4 < lost - since < 3.7
    assert "nothing heard" in fields["reason"]
    run.cluster.having(Network).disconnect(FIRST, False)
    run.past(4.0)
    assert FIRST in [fields["learner"] for at, *_, fields in run.of("hello") if at > since]
    run.end()


def test_links_that_restart_take_all_connections_with_them_but_not_a_cut():
    run = Run(budget=300).until("steady")
    run.cluster.disable_link(FIRST)
    since = run.world.now
    down = run.cluster.having(LinkServer).restart_links()
    run.past(down / 2)
    assert run.site.sound(SECOND, 0, 0, False) == Sounding("refused")
    run.past(2.0)
    assert run.of("disconnected", SECOND)
    assert [fields["learner"] for at, *_, fields in run.of("hello") if at > since] == [SECOND]
    assert run.site.sound(FIRST, 0, 0, False) == Sounding("refused")


def test_links_that_are_about_to_be_there_again_are_not_left_cut_off():
    run = Run(budget=300).until("steady")
    run.cluster.disable_link(FIRST)
    run.cluster.having(LinkServer).restart_links()
    assert [words for words in run.cluster.residue() if "partitioned" in words] == [f"{FIRST} is partitioned"]


@pytest.mark.parametrize(("toxic", "result"), [
    (Toxic("latency", "upstream", {"latency": 200}), "answered"),
    (Toxic("latency", "upstream", {"latency": 3000}), "silent"),
    (Toxic("bandwidth", "upstream", {"rate": 0}), "silent"),
    (Toxic("bandwidth", "downstream", {"rate": 1}), "answered"),
    (Toxic("timeout", "downstream", {"timeout": 0}), "silent"),
    (Toxic("timeout", "upstream", {"timeout": 300}), "closed"),
    (Toxic("reset_peer", "upstream", {"timeout": 0}), "reset"),
    (Toxic("reset_peer", "upstream", {"timeout": 5000}), "silent"),
    (Toxic("limit_data", "downstream", {"bytes": 10}), "closed")])
def test_a_probe_finds_what_a_toxic_does_within_the_time_that_it_has(toxic, result):
    run = Run().until("steady")
    run.cluster.degrade(FIRST, [toxic])
    found = run.site.sound(FIRST, 5000, 0, False)
    assert found.end == result
    assert found.seconds <= (1.0 if result == "silent" else 6.0)


def test_a_probe_finds_a_link_that_is_down_or_leads_nowhere():
    run = Run(budget=300).until("steady")
    assert run.site.sound(FIRST, 0, 0, False).end == "answered"
    run.cluster.having(Network).disconnect(FIRST, True)
    assert run.site.sound(FIRST, 0, 0, False).end == "silent"
    run.cluster.disable_link(FIRST)
    assert run.site.sound(FIRST, 0, 0, False).end == "refused"
    run.cluster.pause(COORDINATOR)
    assert run.site.sound(SECOND, 0, 0, False).end == "silent"


def test_a_probe_finds_nobody_where_a_syncer_was_killed_while_it_stood_still():
    run = Run().until("steady")
    run.cluster.pause(COORDINATOR)
    run.cluster.kill(COORDINATOR, None)
    run.past(0.1)
    assert run.site.sound(SECOND, 0, 0, False).end == "closed"


# -- clocks ------------------------------------------------------------------------------------------------------------

def test_a_clock_that_jumps_leaves_the_tape_in_the_time_of_the_world():
    run = Run(budget=200).until("steady")
    run.cluster.having(Clocks).jump_clock(FIRST, 7.0)
    run.cluster.having(Clocks).jump_clock(COORDINATOR, 11.0)
    run.past(3.0)
    for at, *_, fields in run.of("step"):
        assert at - 0.1 < fields["began"] < at
    for at, *_, fields in run.of("merge"):
        assert fields["opened"] <= fields["closed"] <= at
        assert all(fields["opened"] <= part.arrived <= at for part in fields["contributions"])
    run.end()


def test_a_learner_whose_clock_jumps_does_not_wait_for_its_pace():
    run = Run(budget=200, step_time="1s").until("steady")
    run.until("step", FIRST)
    since = run.world.now
    run.cluster.having(Clocks).jump_clock(FIRST, 5.0)
    run.until("step", FIRST)
    assert run.world.now - since < 0.1
