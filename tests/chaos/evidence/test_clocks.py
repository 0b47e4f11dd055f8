"""Times of different machines are compared no better than their clocks are known."""

from __future__ import annotations

import pytest

from diloco_chaos.chaos.evidence.clocks import WRITTEN_S, clocks
from diloco_chaos.harness.record.tape.reading import Tape
from recorded_events import an_event


def tape(*told):
    return Tape([an_event(float(t), "harness", 0, "clock", {"target": target, "incarnation": 0, "ahead": ahead,
                                                         "error": error})
                 for t, (target, ahead, error) in enumerate(told)])


def test_on_one_machine_there_is_one_clock():
    assert clocks(Tape()).apart == 0
    assert clocks(Tape()).tolerance == WRITTEN_S


def test_two_nodes_are_apart_by_what_both_are_wrong_by():
    found = clocks(tape(("a", 0.001, 0.002), ("b", -0.01, 0.002), ("c", 0.0, 0.001), ("a", 0.002, 0.001)))
    assert found.worst == (("b", pytest.approx(0.012)), ("a", pytest.approx(0.003)))
    assert found.apart == pytest.approx(0.015)
    assert found.words() == "b's to 12 ms and a's to 3 ms"
