"""Who took whose place, and was no process of this run."""

from __future__ import annotations

from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.evidence.impersonation import usurpations
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.base.lines import text
from diloco_chaos.harness.record.tape.reading import Tape
from recorded_events import an_event


def spawn(t, incarnation=0):
    return an_event(t, "harness", 0, "spawn", {"target": "learner-1", "incarnation": incarnation})


def hello(t, incarnation=0):
    return an_event(t, "syncer", 0, "hello", {"learner": "learner-1", "incarnation": incarnation})


def disconnected(t, incarnation=0):
    return an_event(t, "learner-1", incarnation, "disconnected", {"reason": "closed", "step": 3})


def found(*events):
    history = History(freeze(parse("diloco_chaos: 1\nname: mine\n"), 0), Tape(list(events)))
    return [text(line) for line in usurpations(history)]


def test_a_learner_that_comes_back_and_one_that_is_started_again_take_nobodys_place():
    assert found(spawn(0.1), hello(0.5), disconnected(2.0), hello(2.1), spawn(5.0, 1), hello(5.5, 1)) == []


def test_a_number_that_was_never_started_is_named_with_whom_it_replaced():
    assert found(spawn(0.1), hello(0.5), hello(3.0, 7)) == [
        "3.00 s: learner-1.7, which this run never started, took the place of learner-1.0"]


def test_one_that_comes_before_the_learner_itself_took_nobodys_place():
    assert found(spawn(0.1), hello(0.2, 9)) == [
        "0.20 s: learner-1.9, which this run never started, took the place of nobody"]


def test_a_second_process_under_the_same_number_is_told_from_the_learners_own_return():
    other = "4.00 s: another process that calls itself learner-1.0 took its place, which learner-1.0 had not left"
    assert found(spawn(0.1), hello(0.5), disconnected(2.0), hello(2.1), hello(4.0)) == [other]
    assert found(spawn(0.1), hello(0.5), hello(4.0), disconnected(4.1), hello(4.2)) == [other]


def test_returns_that_waited_for_a_syncer_that_stood_are_the_learners_own_though_they_are_read_at_once():
    waited = [spawn(0.1), hello(0.5), disconnected(2.0), disconnected(2.6), hello(5.0), hello(5.001)]
    assert found(*waited) == []
    assert [line[:6] for line in found(*waited, hello(5.002))] == ["5.00 s"]
    assert [line[:6] for line in found(*waited[:-1], hello(9.0))] == ["9.00 s"]  # long after: that is somebody else
