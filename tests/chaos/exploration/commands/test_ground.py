"""What is drawn for a trainer of commands: what its nodes and the place allow."""

import random

import pytest

from diloco_chaos.chaos.exploration.commands.ground import Ground, aims
from diloco_chaos.chaos.exploration.generate import ByChance
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.harness.places.local.place import Local

LINKED = ("nodes: {hub: {listens: true, run: ls}, w: {worker: true, count: 2, run: 'ls {hub}', "
          "state: '{run}/state/{name}'}}, noticed: lost")
BARE = "nodes: {w: {worker: true, count: 2, run: ls}}"


def scenario(trainer, faults=""):
    return parse(f"diloco_chaos: 1\nname: x\ntrainer: {{kind: commands, {trainer}, progress: "
                 f"[{{node: w, written: true}}]}}\n{faults}")


def kinds(found):
    return {kind for kind, _ in found}


def test_links_are_hit_only_where_there_are_some_and_files_where_it_is_known_where_they_are():
    linked, bare = (aims(scenario(trainer), Local.can, None) for trainer in (LINKED, BARE))
    assert {("partition", "w-1.hub"), ("io", "w-2"), ("corrupt", "w-1"), ("hang", "hub")} <= {*linked}
    assert ("io", "hub") not in linked
    assert {"kill", "pause", "hang"} <= kinds(bare)
    assert not {"partition", "latency", "io", "corrupt", "delete"} & kinds(bare)


def test_nothing_is_drawn_that_commands_or_the_place_do_not_have():
    assert not {"poison", "lie", "corrupt_memory", "full_disk", "power_loss"} & kinds(
        aims(scenario(LINKED), Local.can, None))
    assert not {"io", "hang"} & kinds(aims(scenario(LINKED), frozenset(), None))


def test_a_device_is_hit_only_where_the_scenario_does_so_or_it_is_asked_for():
    own = scenario(BARE, "faults: [{cuda: w-1, error: ecc, at: 2s, for: 1s}]")
    assert "cuda" in kinds(aims(own, Local.can, None))
    assert "cuda" not in kinds(aims(scenario(BARE), Local.can, None))
    assert kinds(aims(scenario(BARE), Local.can, ["cuda"])) == {"cuda"}


@pytest.mark.parametrize("trainer", [LINKED, BARE])
def test_what_is_drawn_by_chance_can_be_and_comes_within_the_run(trainer):
    bare = scenario(trainer)
    ground = Ground(bare, Local.can, aims(bare, Local.can, None), 4.0, 100, {"w-1": ["round #"]}, 4000)
    chooser = ByChance(random.Random(1))
    faults = [ground.by_chance(chooser, ()) for _ in range(60)]
    assert all(map(ground.possible, ([fault] for fault in faults)))
    assert {"at", "when"} == {key for fault in faults for key in fault} & {"at", "when", "after"}
    assert {fault["at"] for fault in faults if "at" in fault} <= set(ground.times)
    assert all(600 <= int(time.removesuffix("ms")) <= 2400 for time in ground.times)


def test_a_second_fault_may_come_at_a_phase_of_the_recovery_that_somebody_tells_of():
    chooser = ByChance(random.Random(1))
    ground = Ground(scenario(LINKED), Local.can, [("kill", "w-1")])
    told, untold = ({each.phase(chooser, 1)["after"]["phase"] for _ in range(99)}
                    for each in (ground, Ground(scenario(BARE), Local.can, [("kill", "w-1")])))
    assert told - untold == {"noticed"}
    assert untold == {"begun", "restarted", "first_round", "over"}
