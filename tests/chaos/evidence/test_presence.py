"""Who was there at each moment, by what the event log tells."""

from itertools import pairwise

import pytest

from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.evidence.presence import Presence
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.record.tape.reading import Tape
from recorded_events import an_event

TEXT = """diloco_chaos: 1
name: x
cluster: {learners: 2, budget: 500}
faults:
  - {kill: learner-1, at: 4s, restart_after: 2s}
  - {partition: learner-2, at: 9s, for: 4s}
  - {kill: syncer, at: 20s, restart_after: 1s}
"""


def harness(t, event, **fields):
    return an_event(t, "harness", 0, event, fields)


def syncer(t, event, incarnation=0, **fields):
    return an_event(t, "syncer", incarnation, event, fields)


def hello(t, learner, incarnation=0):
    return syncer(t, "hello", learner=learner, incarnation=incarnation)


def merge(t, *learners, incarnation=0):
    return syncer(t, "merge", incarnation, contributions=[{"learner": one, "incarnation": 0} for one in learners])


def spawned(t, node, incarnation=0):
    return harness(t, "spawn", target=node, incarnation=incarnation)


def gone(t, node, incarnation=0):
    return harness(t, "exit", target=node, incarnation=incarnation, status=-9, killed=True)


def fault(name, began, healed=None):
    told = [harness(began, "injecting", fault=name, kind="", targets=[], description=""),
            harness(began, "injected", fault=name, observed={})]
    return told + ([harness(healed, "healed", fault=name, observed={})] if healed else [])


@pytest.fixture
def presence():
    """A learner dies at 5 s, is back at 7, recovers from 8 to 9; one is cut off from 10 to 14, missed from 12 to 15;
    the syncer is away from 21 to 23."""
    events = [
        *(spawned(0.1, node) for node in ("syncer", "learner-1", "learner-2")),
        hello(0.5, "learner-1"), hello(0.5, "learner-2"), syncer(0.9, "steady", step=1),
        merge(0.9, "learner-1", "learner-2"),
        *fault("f1", 5.0), gone(5.1, "learner-1"), syncer(5.2, "lost", learner="learner-1"),
        spawned(7.0, "learner-1", 1), hello(8.0, "learner-1", 1), merge(8.5, "learner-2"), merge(9.0, "learner-1"),
        *fault("f2", 10.0, 14.0), syncer(12.0, "lost", learner="learner-2"), hello(15.0, "learner-2"),
        merge(16.0, "learner-1", "learner-2"),
        *fault("f3", 21.0), gone(21.0, "syncer"), spawned(22.0, "syncer", 1), syncer(23.0, "resumed", 1),
        syncer(30.0, "finished", 1, step=9), an_event(30.1, "learner-1", 1, "exit", {})]
    return Presence(History(freeze(parse(TEXT), 0), Tape(sorted(events, key=lambda event: event.t))))


@pytest.mark.parametrize(("t", "absent"), [
    (3.0, []),
    (6.0, [("learner-1", "gone", 5.1, 9.0, ("f1",))]),
    (7.5, [("learner-1", "starting", 5.1, 9.0, ("f1",))]),
    (8.7, [("learner-1", "recovering", 5.1, 9.0, ("f1",))]),
    (9.5, []),
    (11.0, [("learner-2", "partitioned", 10.0, 14.0, ("f2",))]),
    (13.0, [("learner-2", "partitioned", 10.0, 16.0, ("f2",))]),
    (14.5, [("learner-2", "not connected", 10.0, 16.0, ("f2",))]),
    (15.5, [("learner-2", "recovering", 10.0, 16.0, ("f2",))]),
    (18.0, []),
    (21.5, [("syncer", "gone", 21.0, 23.0, ("f3",))]),
    (22.5, [("syncer", "starting", 21.0, 23.0, ("f3",))]),
    (25.0, []),
])
def test_who_was_away_is_told_with_from_when_to_when_and_by_which_fault(presence, t, absent):
    [moment] = presence.moments(t, t + 0.01)
    assert [(one.node, one.state, one.since, one.until, tuple(span.id for span in one.faults))
            for one in moment.absent] == absent


def test_moments_follow_each_other_without_a_gap(presence):
    moments = list(presence.moments(4.0, 25.0))
    assert (moments[0].start, moments[-1].end) == (4.0, 25.0)
    assert all(before.end == after.start for before, after in pairwise(moments))
    assert {one.start for one in moments} >= {5.1, 7.0, 8.0, 9.0, 10.0, 12.0, 14.0, 15.0, 16.0, 21.0, 22.0, 23.0}


def test_where_no_node_coordinates_only_workers_are_missed():
    text = """diloco_chaos: 1
name: x
trainer: {kind: commands, rounds: 9, nodes: {w: {run: python3 -c 1, worker: true, count: 2}},
          progress: [{node: w, log: '(?P<round>[0-9]+)'}]}
"""
    events = [spawned(0.1, "w-1"), spawned(0.1, "w-2"), an_event(1.0, "w-1", 0, "step", {})]
    there = Presence(History(freeze(parse(text), 0), Tape(events)))
    assert [[one.node for one in moment.absent] for moment in there.moments(0.5, 1.5)] == [["w-1", "w-2"], ["w-2"]]
