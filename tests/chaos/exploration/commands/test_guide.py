"""What a search learns from runs, and the faults that it adds."""

import random

import pytest

from diloco_chaos.chaos.exploration.commands.ground import Ground, aims
from diloco_chaos.chaos.exploration.commands.guide import Lessons, draw
from diloco_chaos.chaos.exploration.corpus import TriedSchedule
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.harness.places.local.place import Local

SCENARIO = parse("diloco_chaos: 1\nname: x\ntrainer: {kind: commands, nodes: {w: {worker: true, count: 2, run: ls}}, "
                 "progress: [{node: w, written: true}]}\n")
KILL, PAUSE = {"kill": "w-1", "at": "1s"}, {"pause": "w-2", "at": "1s", "for": "1s"}


def tried(*faults, traces=(), lines=()):
    return TriedSchedule(number=0, faults=faults, outcome="finished", traces=("w says round #", *traces), lines=lines)


@pytest.fixture
def lessons():
    known = Lessons()
    known.begin(tried(lines=(("w-1", "round #"),)))
    return known


def test_the_shortest_schedule_that_brings_something_about_is_built_on(lessons):
    lessons.learn(tried(KILL, PAUSE, traces=("w says lost #",), lines=(("w-2", "lost #"), ("w-1", "round #"))))
    assert [list(entry.faults) for entry, _ in lessons.entries] == [[KILL, PAUSE]]
    lessons.learn(tried(KILL, traces=("w says lost #",), lines=(("w-2", "lost #"),)))
    lessons.learn(tried(KILL, traces=("w says lost #",)))
    assert [(list(entry.faults), list(entry.lines)) for entry, _ in lessons.entries] == [([KILL], [("w-2", "lost #")])]


def test_what_is_there_without_faults_is_nothing_to_build_on(lessons):
    lessons.learn(tried(PAUSE))
    assert lessons.entries == []


def test_faults_that_bring_nothing_new_become_rare_and_never_go(lessons):
    for _ in range(20):
        lessons.learn(tried(PAUSE))
    lessons.learn(tried(KILL, traces=("w says lost #",)))
    assert lessons.promise("kill") > 10 * lessons.promise("pause") > 0


def test_a_fault_is_added_at_a_line_that_only_faults_bring_about(lessons):
    lessons.learn(tried(KILL, traces=("w says lost #",), lines=(("w-2", "lost #"),)))
    ground = Ground(SCENARIO, Local.can, aims(SCENARIO, Local.can, None))
    drawn = [draw(ground, random.Random(number), 2, lessons)[1] for number in range(60)]
    at_the_line = [faults for faults in drawn if (faults[-1].get("when") or {}).get("log") == r"lost \S*"]
    assert len(at_the_line) > 10
    assert all(faults[0] == KILL for faults in at_the_line if len(faults) == 2)


def test_one_fault_at_the_most_is_one_fault(lessons):
    lessons.learn(tried(KILL, traces=("w says lost #",)))
    ground = Ground(SCENARIO, Local.can, aims(SCENARIO, Local.can, None))
    assert {len(draw(ground, random.Random(number), 1, lessons)[1]) for number in range(30)} == {1}
