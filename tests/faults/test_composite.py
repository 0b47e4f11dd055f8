"""Composites are taken apart into single faults, by the seed alone."""

import random

from pydantic import TypeAdapter

from diloco_chaos.faults import AnyEntry, AnyFault

ADAPTER, SINGLE = TypeAdapter(AnyEntry), TypeAdapter(AnyFault)
LEARNERS = [f"learner-{number}" for number in range(1, 7)]


def parts(seed=0, **settings):
    whole = ADAPTER.validate_python(settings)
    return [SINGLE.validate_python(part) for part in whole.parts("f1", random.Random(seed))]


def test_a_flapping_link_is_a_row_of_partitions_each_after_the_one_before():
    found = parts(kind="flapping", targets="learner-2", at="5s", down="400ms", up="600ms", **{"for": "3s"})
    assert [one.kind for one in found] == ["partition"] * 3
    assert found[0].at == 5.0
    assert [(one.after.fault, one.after.wait) for one in found[1:]] == [("f1.1", 0.6), ("f1.2", 0.6)]
    assert all(one.duration == 0.4 for one in found)


def test_a_crash_loop_is_a_row_of_kills_each_soon_after_the_start():
    found = parts(kind="crash_loop", targets="learner-2", when={"node": "learner-2", "event": "step"}, times=3,
                  restart_after="500ms", alive="800ms")
    assert [one.kind for one in found] == ["kill"] * 3
    assert found[0].when.event == "step"
    assert [one.after.wait for one in found[1:]] == [0.8, 0.8]
    assert all(one.restart_after == 0.5 for one in found)
