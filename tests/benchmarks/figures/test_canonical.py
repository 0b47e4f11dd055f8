"""The canonical runs stand for every mode and codec, and what is broken in them is observed."""

import pytest

from benchmarks.figures.canonical import RUNS, perform
from diloco_chaos.harness.record.tape.events import Healed, Injected, Verified
from diloco_chaos.harness.trainer.config.cluster_config import MODES

BROKEN = [name for name, run in RUNS.items() if run.faults and not run.torch]


def test_there_is_one_for_every_mode_undisturbed_and_one_with_faults():
    calm = {run.plan.cluster.mode for run in RUNS.values() if not run.faults and not run.torch}
    assert calm == {*MODES, "synchronous"}
    assert {RUNS[name].plan.cluster.mode for name in BROKEN} == set(MODES)


def test_there_is_one_for_every_codec():
    codecs = {(run.plan.cluster.gradients, run.plan.cluster.broadcasts, run.plan.cluster.error_feedback)
              for run in RUNS.values()}
    assert codecs >= {(name, name, False) for name in ("float32", "bfloat16", "int8", "int4")}
    assert ("int4", "int4", True) in codecs


@pytest.mark.parametrize("name", BROKEN)
def test_every_fault_comes_and_is_undone_before_training_is_over(name):
    tape = perform(name).stage.tape()
    planned = {fault.id for fault in RUNS[name].plan.faults}
    over = next(event.t for event in tape.events if event.event == "finished")
    assert {event.fault for event in tape.of(Injected)} == planned
    assert {event.fault for event in tape.of(Healed, Verified) if event.t < over} <= planned
    assert all(event.t < over for event in tape.of(Injected))
