"""What counts as interference, and what doesn't."""

from __future__ import annotations

import pytest

from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.evidence.interference import describe, interference, seconds_within, stopped_for
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.record.tape.reading import Tape
from recorded_events import an_event

QUIET = {"seconds": 1.0, "cores": 2, "idle": 0.6, "ours": 1.3, "others": 0.05, "stolen": 0.05, "late": 0.01, "cpu": 0.4,
         "io": 0.02, "memory": 0.0}
FILLED = "{full_disk: syncer, at: 5s, for: 4s}"
STARVED = "{out_of_memory: learner-2, at: 5s, restart_after: 1s}"


def history(*samples, faults="", events=()):
    """Of one sample a second from 1 s on."""
    plan = freeze(parse(f"diloco_chaos: 1\nname: mine\nfaults: [{faults}]\n"), 0)
    told = [an_event(float(t), "harness", 0, "machine", QUIET | sample) for t, sample in enumerate(samples, 1)]
    return History(plan, Tape(sorted([*told, *events], key=lambda event: event.t)))


@pytest.mark.parametrize(("sample", "why"), [
    ({"others": 0.9, "idle": 0.1}, "other processes had its processors"),
    ({"stolen": 0.3}, "the host of this virtual machine kept its processors"),
    ({"late": 0.7}, "nothing on it ran, the harness neither"),
    ({"late": 3.7, "idle": 0.4}, "nothing on it ran, the harness neither"),
    ({"late": 3.7, "idle": 1.7}, "the run was stopped"),
    ({"io": 0.8}, "its disk kept it waiting"),
    ({"io": 0.49}, "its disk kept it waiting"),  # a commit that took a second
    ({"io": 0.05, "sync": 0.9}, "its disk kept it waiting"),
    ({"memory": 0.4}, "it was short of memory")])
def test_who_keeps_the_run_from_working_is_found(sample, why):
    found = interference(history({}, sample, sample, {}, {}, {}))
    assert [(one.start, one.end, one.why) for one in found] == [(1.0, 3.0, why)]


@pytest.mark.parametrize("sample", [
    {"ours": 2.0, "others": 0.0, "idle": 0.0, "cpu": 1.0},  # a node of the run burns all processors
    {"ours": 0.4, "others": 1.0, "idle": 0.55},  # there is room for both
    {"cpu": 0.9},  # learners wait for one another
    {"late": 0.1}], ids=["its own nodes", "room for both", "its own queue", "a hiccup"])
def test_what_the_run_itself_does_and_what_hinders_nobody_is_none(sample):
    assert interference(history({}, sample, {})) == []


def test_a_disk_that_is_always_slow_excuses_nothing():
    assert interference(history(*[{"io": 0.7, "sync": 0.4}] * 9)) == []


def test_a_disk_that_stands_still_is_one_although_it_always_has_much_to_do():
    """Others had filled it a second before: hardly anything moves while a commit waits for what they wrote."""
    usual = {"io": 0.7, "sync": 0.01, "disk_ours": 1.0, "disk_all": 1.5}
    [found] = interference(history(*[usual] * 4, usual | {"io": 0.98, "sync": 1.0, "disk_ours": 0.1}, usual))
    assert (found.start, found.end, found.why) == (4.0, 5.0, "its disk kept it waiting")
    assert found.numbers().endswith("98% of the time waiting for a disk, which took 1.0 s to store a byte")


@pytest.mark.parametrize(("fault", "sample"), [(FILLED, {"io": 0.9}), (STARVED, {"memory": 0.5})])
def test_what_a_fault_of_the_run_does_to_the_machine_is_none(fault, sample):
    begun = an_event(5.0, "harness", 0, "injecting", {"fault": "f1", "kind": "", "targets": [], "description": ""})
    over = an_event(9.0, "harness", 0, "healed", {"fault": "f1", "observed": {}})
    quiet = [{}] * 6
    assert interference(history(*quiet, sample, *quiet, faults=fault, events=[begun, over])) == []
    assert interference(history(*quiet, *quiet, sample, faults=fault, events=[begun, over]))


WRITES = {"io": 0.9, "sync": 0.8, "disk_ours": 210.0, "disk_all": 230.0}


@pytest.mark.parametrize("samples", [
    [WRITES],
    [WRITES | {"disk_all": 0.0}, WRITES | {"disk_ours": 0.0}]], ids=["at once", "what is written now is stored later"])
def test_a_node_that_writes_without_end_is_none(samples):
    assert interference(history({}, {}, {}, {}, *samples, {})) == []


@pytest.mark.parametrize("sample", [{"disk_ours": 9.0}, {"disk_all": 900.0}, {"disk_ours": 0.0, "disk_all": 0.0}],
                         ids=["little", "others more", "nobody knows"])
def test_a_disk_that_others_keep_busy_is_one_while_the_run_writes_too(sample):
    assert interference(history({}, {}, {}, {}, WRITES | sample, {}))


def test_it_is_the_runs_own_writing_of_these_seconds_that_counts():
    assert interference(history(WRITES, {}, {}, {}, {}, {}, {}, WRITES | {"disk_ours": 1.0}))


@pytest.mark.parametrize(("sample", "own"), [
    ({"memory_left": 0.8}, True), ({"memory_left": 0.02, "memory_ours": 0.7}, True),
    ({"memory_left": 0.02, "memory_ours": 0.1}, False)], ids=["its own limit", "it has most", "others have most"])
def test_memory_that_the_run_itself_has_used_up_is_none(sample, own):
    assert (interference(history({}, {"memory": 0.5} | sample, {})) == []) is own


def test_a_sample_that_a_node_recorded_says_nothing():
    forged = an_event(3.0, "learner-1", 0, "machine", QUIET | {"late": 9.0})
    assert interference(history({}, {}, events=[forged])) == []


def test_seconds_and_words_are_of_the_time_that_is_asked_about():
    found = interference(history({}, {"late": 0.7}, {"late": 0.7}, {"stolen": 0.5}))
    assert seconds_within(found, 1.5, 9.0) == pytest.approx(2.5)
    assert describe(found, 1.5, 9.0) == ("for 1.5 s nothing on it ran, the harness neither, for 1.0 s the host of this "
                                         "virtual machine kept its processors")


def test_how_long_a_run_was_stopped_is_known_and_being_late_on_a_busy_machine_is_no_stop():
    stopped = history({}, {"late": 18.4, "idle": 1.9, "seconds": 1.0}, {}, {"late": 2.0, "idle": 0.1})
    assert stopped_for(stopped, 0.0, 30.0) == pytest.approx(18.4)
    assert stopped_for(stopped, 3.0, 30.0) == 0.0


BUSY = {"others": 0.9, "idle": 0.0}


def test_others_are_in_the_way_for_as_long_as_the_run_waited_for_a_processor():
    found = interference(history({}, *[BUSY | {"waited": 0.4}] * 5, {}))
    assert [(one.start, one.end, one.why) for one in found] == [(1.0, 6.0, "this run waited for a processor")]
    assert seconds_within(found, 0.0, 9.0) == pytest.approx(2.0)
    assert seconds_within(found, 1.5, 3.5) == pytest.approx(0.8)
    assert describe(found, 0.0, 9.0) == "this run waited 2.0 s for a processor (run delay)"
    assert found[0].numbers().startswith("2.0 s of run delay; of 2 processors this run used 1.3, others 0.9")


@pytest.mark.parametrize("waited", [0.0, 0.007, 0.04])
def test_others_who_keep_the_processors_busy_while_the_run_sleeps_are_none(waited):
    assert interference(history({}, *[BUSY | {"waited": waited}] * 33, {})) == []


def test_a_run_that_waits_for_itself_is_none():
    assert interference(history({}, {"ours": 2.0, "idle": 0.0, "waited": 0.9}, {})) == []


def test_a_wait_is_told_when_it_is_over_and_counts_from_when_it_began():
    found = interference(history(*[BUSY | {"waited": 0.0}] * 4, BUSY | {"waited": 3.0, "late": 0.0}, {}))
    assert [(one.start, one.end) for one in found] == [(2.0, 5.0)]
    assert seconds_within(found, 2.0, 5.0) == pytest.approx(3.0)
    assert seconds_within(found, 3.0, 4.0) == pytest.approx(1.0)


def test_no_more_is_excused_than_there_was():
    twice = interference(history(BUSY | {"waited": 1.0}, {}, BUSY | {"waited": 3.0}))
    assert seconds_within(twice, 0.0, 3.0) == 3.0


def test_what_waited_is_no_matter_where_the_host_or_a_disk_was_in_the_way():
    assert [one.why for one in interference(history({}, {"stolen": 0.5, "waited": 0.0}))] == [
        "the host of this virtual machine kept its processors"]
    assert [one.why for one in interference(history({}, {}, {}, BUSY | {"waited": 0.0, "io": 0.9}))] == [
        "its disk kept it waiting"]


@pytest.mark.parametrize(("sample", "seconds"), [
    ({"stolen": 0.3, "waited": 0.0}, 0.6), ({"stolen": 0.3, "waited": 0.2}, 1.0), ({"stolen": 0.3}, 2.0)],
    ids=["what it kept", "and what others had", "no figure of the run"])
def test_a_host_is_in_the_way_for_no_longer_than_it_kept_processors(sample, seconds):
    assert seconds_within(interference(history({}, sample, sample, {})), 0.0, 9.0) == pytest.approx(seconds)


def test_machines_are_looked_at_one_by_one():
    busy = {"others": 0.9, "idle": 0.1}
    plan = freeze(parse("diloco_chaos: 1\nname: mine\n"), 0)
    samples = {machine: QUIET | {"machine": machine} | (busy if machine == "b" else {}) for machine in "abc"}
    told = [an_event(t + 0.1 * number, "harness", 0, "machine", samples[machine])
            for t in (1.0, 2.0, 3.0) for number, machine in enumerate("abc")]
    found, = interference(History(plan, Tape(told)))
    assert (found.start, found.end) == (pytest.approx(0.1), pytest.approx(3.1))
    assert {sample.machine for sample in found.samples} == {"b"}
