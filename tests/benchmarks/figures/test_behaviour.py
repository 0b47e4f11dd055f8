"""A digest changes with what the trainer does, and with nothing else."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.figures import behaviour
from benchmarks.figures.behaviour import COURSE, comparable, digests, without_build
from benchmarks.figures.canonical import RUNS
from diloco_chaos.chaos.runner import virtual_runtime
from diloco_chaos.chaos.runner.virtual_runtime import VirtualStage
from diloco_chaos.harness.base import tensors
from diloco_chaos.harness.record.tape.events import Custom
from diloco_chaos.harness.simulation.world import World
from diloco_chaos.harness.trainer.algorithm import outer_optimizer
from diloco_chaos.harness.trainer.algorithm.codec import Codec
from diloco_chaos.harness.trainer.coordinator import fragment_state
from diloco_chaos.harness.trainer.protocol import messages

NAMES = ("decoupled", "bfloat16", "int8", "int4", "int4.feedback", "data_parallel")
USED = {("bfloat16", False): {"bfloat16"}, ("int8", False): {"int8"}, ("int4", False): {"int4"},
        ("int4", True): {"int4.feedback"}}


def made(names):
    return {what: digest for name in names for what, digest in digests(name).items()}


@pytest.fixture(scope="module")
def before():
    return made((*NAMES, "decoupled.kills"))


def changed(before, names=NAMES):
    return {what for what, digest in made(names).items() if before[what] != digest}


def test_a_run_has_the_same_digest_twice_and_in_another_process_under_another_hash_seed(before):
    script = ("import json; from benchmarks.figures.behaviour import digests; "
              "print(json.dumps(digests('decoupled.kills')))")
    other = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True,
                           env=os.environ | {"PYTHONHASHSEED": "77"})
    assert digests("decoupled.kills") == json.loads(other.stdout)
    assert digests("decoupled.kills").items() <= before.items()


def test_all_runs_differ(before):
    whole = [digest for what, digest in before.items() if not what.endswith(COURSE)]
    assert len(set(whole)) == len(whole)


@pytest.mark.parametrize("codec", USED, ids=lambda codec: f"{codec[0]}{' with feedback' * codec[1]}")
def test_another_arithmetic_of_a_codec_changes_only_the_runs_that_use_it(codec, before, monkeypatch):
    unpack = Codec.unpack

    def other(self, payload, shapes):
        found = unpack(self, payload, shapes)
        if (self.precision, self.feedback) != codec:
            return found
        return {name: array * np.float32(1 + 1e-6) for name, array in found.items()}
    monkeypatch.setattr(Codec, "unpack", other)
    assert changed(before) == USED[codec]


def test_another_outer_step_changes_every_run_that_has_one_but_no_course(before, monkeypatch):
    nesterov = outer_optimizer.nesterov
    monkeypatch.setattr(outer_optimizer, "nesterov", lambda value, momentum, gradient, step: nesterov(
        value, momentum, gradient, step._replace(lr=step.lr * 1.001)))
    assert changed(before) == set(NAMES) - {"data_parallel"}


def test_other_names_words_and_digests_change_none(before, monkeypatch, request):
    for kind in (messages.OuterGradient, messages.Broadcast, messages.Hello):
        request.addfinalizer(partial(setattr, kind, "__name__", kind.__name__))
        kind.__name__ = "Renamed"
    monkeypatch.setattr(tensors, "hashlib", SimpleNamespace(
        blake2b=lambda digest_size: hashlib.blake2b(digest_size=digest_size, key=b"another digest")))
    monkeypatch.setattr(virtual_runtime, "World", lambda seed: World(f"the plan has one more setting than in {seed}"))
    note = VirtualStage._note

    def more(self, node, incarnation, event):
        note(self, node, incarnation, Custom(kind="news", fields={"of": event.event}))
        if hasattr(event, "reason"):
            event.reason = "in other words"
        note(self, node, incarnation, event)
    monkeypatch.setattr(VirtualStage, "_note", more)
    assert changed(before, ("decoupled.kills", "int4", "data_parallel")) == set()


def test_other_weights_in_a_merge_change_what_comes_of_it(monkeypatch):
    before, weight = made(("unequal",)), fragment_state.token_weight
    monkeypatch.setattr(fragment_state, "token_weight", lambda tokens, steps: steps * weight(tokens, steps))
    assert "unequal" in changed(before, ("unequal",))


def test_a_merge_without_a_grace_window_changes_the_course_too(monkeypatch):
    before = made(("unequal",))
    canonical = RUNS["unequal"]
    monkeypatch.setitem(RUNS, "unequal", replace(canonical, settings=canonical.settings | {"grace": 0.0}))
    assert changed(before, ("unequal",)) == {"unequal", "unequal/course"}


def test_digests_of_two_builds_of_torch_are_not_compared():
    assert not comparable("torch 2.6 AVX2: aa", "torch 2.7 AVX2: aa")
    assert comparable("torch 2.6 AVX2: aa", "torch 2.6 AVX2: bb")
    assert comparable("aa", "bb")


def test_the_build_of_torch_can_be_left_out_of_a_digest():
    assert without_build("torch 2.6 AVX2: aa") == without_build("aa") == "aa"


def test_a_run_on_the_real_model_says_which_build_of_torch_made_it():
    found = digests("model.synchronous")
    assert found["model.synchronous"].startswith(f"{behaviour.torch_build()}: ")
    assert ":" not in found["model.synchronous/course"]
