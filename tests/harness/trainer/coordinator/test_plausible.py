"""What a learner says is held against what is possible; whatever is possible is believed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.coordinator.plausible import LearnerOrigin, of_hello, of_report
from diloco_chaos.harness.trainer.protocol.messages import Hello, Report

CONFIG = TrainerConfig(model="quadratic", fragments=4, step_time="100ms", variance=0.1)
EACH = CONFIG.tokens_per_step_of("learner-1")
AT, VERSIONS = 50.0, [9, 9, 9, 8]
ORIGIN = LearnerOrigin(AT, 400, 300 * EACH, 420)


def report(steps=10, **other):
    """So many steps after its hello."""
    return replace(Report(step=400 + steps, tokens=(300 + steps) * EACH, position=420 + steps, took=0.1, fragments=[
        (9, 3, 3 * EACH), (9, 0, 0), (-1, 0, 0), (8, 8, 8 * EACH)]), **other)


def of(message, now=AT + 1.0, origin=ORIGIN):
    return of_report(message, "learner-1", origin, VERSIONS, CONFIG, now)


@given(st.floats(0, 500), st.floats(0, 3))
def test_an_honest_learner_is_believed_however_long_its_reports_were_under_way(seconds, late):
    steps = int((seconds + late) / (CONFIG.step_time * 0.9))  # at its quickest, its hello was under way as long
    assert of(report(steps), AT + seconds) == ""


def test_one_that_has_just_begun_is_believed_where_it_began_before_it_was_sent_where_training_is():
    fresh = LearnerOrigin(AT, 400, 0, 50)
    assert of(Report(step=398, tokens=3 * EACH, position=53, fragments=[(8, 0, 0)] * 4), origin=fresh) == ""
    assert of(Report(step=405, tokens=5 * EACH, position=55, fragments=[(8, 0, 0)] * 4), origin=fresh) == ""


@pytest.mark.parametrize(("wrong", "words"), [
    ({"step": 10**12}, "step 1000000000000: at most"), ({"step": 400 + 110}, "at most"),
    ({"tokens": 10**15}, "tokens by step 410"), ({"tokens": 311 * EACH}, "tokens by step 410"),
    ({"position": 10**9}, "of its shard: at most"),
    ({"fragments": [(10, 0, 0), *[(8, 0, 0)] * 3]}, "version 10 of fragment 0: the newest is 9"),
    ({"fragments": [*[(8, 0, 0)] * 3, (-2, 0, 0)]}, "version -2 of fragment 3"),
    ({"fragments": [(9, 1000, 1000 * EACH), *[(8, 0, 0)] * 3]}, "1000 steps"),
    ({"fragments": [(9, 3, 4 * EACH), *[(8, 0, 0)] * 3]}, "3 steps of"),
    ({"fragments": []}, "another model")])
def test_what_is_impossible_is_told(wrong, words):
    assert words in of(report(**wrong))


def hello(**other):
    return replace(Hello(token="", node="learner-1", incarnation=0, step=400, tokens=300 * EACH, position=420,
                         versions=[9] * 4, steps=[3] * 4), **other)


def said(message, now=AT):
    return of_hello(message, CONFIG, now, 395, 415)


def test_one_that_trained_on_while_somebody_else_spoke_in_its_name_is_believed():
    assert said(hello(position=415 + 100)) == ""


def test_a_hello_of_a_new_process_or_of_one_that_comes_back_is_believed():
    assert said(hello()) == ""
    assert said(hello(step=0, tokens=0, position=0, versions=[-1] * 4, steps=[0] * 4)) == ""


@pytest.mark.parametrize(("wrong", "words"), [
    ({"step": 10**12}, "step 1000000000000"), ({"tokens": 10**15}, "tokens: at most"),
    ({"position": 10**9}, "of its shard: at most"), ({"steps": [0, 0, 0, 10**6]}, "1000000 steps since it received")])
def test_an_impossible_hello_is_told(wrong, words):
    assert words in said(hello(**wrong))
