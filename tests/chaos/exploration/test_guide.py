"""Where exploration looks first."""

import random

import pytest

from benchmarks.measure.planted import BASE
from diloco_chaos.chaos.exploration.generate import known, with_faults
from diloco_chaos.chaos.exploration.guide import Knowledge, draw

KINDS = known(None)
DRAWS = 300


def schedules(knowledge, most=6):
    return [draw(BASE, random.Random(number), KINDS, most, knowledge) for number in range(DRAWS)]


def waits(fault):
    return fault.get("when", {})


@pytest.mark.parametrize("most", [1, 2, 6])
def test_every_schedule_makes_sense_and_is_no_longer_than_asked_for(most):
    everything = Knowledge([("kill", "syncer committed")], [("zombie", "ends @ syncer greeting")],
                           [([{"kill": "syncer", "at": "4s", "restart_after": "1s"}], 1.0)])
    for _, faults in schedules(everything, most):
        assert len(faults) <= most
        assert with_faults(BASE, faults) is not None


def test_moments_that_were_not_hit_yet_are_aimed_at():
    def held(knowledge):
        return sum(any("kill" in fault and waits(fault).get("failpoint") == "commit.before_broadcast"
                       for fault in faults) for _, faults in schedules(knowledge))
    assert held(Knowledge(never=[("kill", "syncer committed")])) > DRAWS / 6 > 5 * held(Knowledge())


def test_faults_in_a_row_are_aimed_at_and_told():
    row = ("zombie", "ends @ syncer greeting")
    found = schedules(Knowledge(rows=[row]))
    aimed = [faults for aim, faults in found if aim == row]
    assert len(aimed) > DRAWS / 4
    assert all(aim in (None, row) for aim, _ in found)
    as_meant = [faults for faults in aimed if "zombie" in faults[0]
                and any(waits(fault).get("event") == "hello" and fault.get(kind) == "syncer"
                        for fault in faults[1:] for kind in fault)]
    assert len(as_meant) > len(aimed) / 2


def test_what_was_the_first_to_bring_something_about_is_changed_the_seldom_more_often():
    often = [{"pause": "learner-1", "at": "2s", "for": "500ms"}]
    seldom = [{"truncate": "syncer", "at": "3s", "restart_after": "1s", "files": 1}]
    found = [faults for _, faults in schedules(Knowledge(first=[(often, 0.1), (seldom, 0.9)]))]
    beside = [sum(one[0] in faults for faults in found) for one in (often, seldom)]
    assert 0 < beside[0] < beside[1] / 3
    assert sum(len(faults) > 1 and faults[0] == seldom[0] and "after" in faults[1] for faults in found) > 5


def test_near_a_fault_of_a_domain_others_hit_it_too_and_wait_for_its_nodes():
    racks = BASE.model_copy(update={"domains": {"rack-1": ("learner-1", "learner-2")}})
    first = [{"kill": "domain rack-1", "at": "2s", "restart_after": "1s"}]
    found = [draw(racks, random.Random(number), KINDS, 6, Knowledge(first=[(first, 1.0)]))[1]
             for number in range(DRAWS)]
    changed = [faults[1] for faults in found if len(faults) > 1 and faults[0] == first[0]]
    assert any("domain rack-1" in fault.values() for fault in changed)
    assert any(waits(fault).get("node") == "learner-1" for fault in changed)
    assert not any("domain" in str(waits(fault)) for fault in changed)


def test_without_knowledge_all_is_chance():
    assert all(aim is None for aim, _ in schedules(Knowledge()))
