"""Members of a round have the same weights after it, by the digests that they tell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.chaos.checks.base import Unknown
from diloco_chaos.chaos.evidence.baseline import Reference
from diloco_chaos.chaos.registry import CHECKS
from diloco_chaos.harness.base.lines import text
from diloco_chaos.harness.record.tape.events import Step
from told_runs import told_run

VALUE = r"(?P<digest>.*)"


def told(*rounds, checks="{}", shared=True, workers=2):
    """A run in which (worker, incarnation, round, digest) were told, a tenth of a second apart."""
    steps = [Step(step=number, tokens=0, began=0.0, digest=digest).stamped(index / 10, worker, inc)
             for index, (worker, inc, number, digest) in enumerate(rounds)]
    return told_run(steps, VALUE, checks, shared, workers)


def agree(*rounds, **settings):
    return CHECKS["digests_agree"](told(*rounds, **settings))


def together(first, *digests, inc=0, workers=2):
    return [(f"w-{worker}", inc, number, digest) for number, digest in enumerate(digests, first)
            for worker in range(1, workers + 1)]


def test_members_that_tell_one_digest_of_each_round_hold():
    finding = agree(*together(1, "a", "b", "c"))
    assert (finding.holds, finding.measured) == (True, "0 of 3 rounds differ")


def test_who_tells_another_digest_than_most_is_named():
    finding = agree(*together(1, "a", workers=3), ("w-1", 0, 2, "b"), ("w-2", 0, 2, "x"), ("w-3", 0, 2, "b"), workers=3)
    assert (finding.holds, finding.measured) == (False, "1 of 2 rounds differ, from round 2 on")
    assert list(map(text, finding.evidence)) == [
        "round 2: w-1.0 told the digest b at 0.30 s, and w-2.0 told x at 0.40 s"]


def test_ranks_of_one_node_are_members_too():
    assert not agree(("w-1", 0, 1, "a"), ("w-1", 0, 1, "b"), ("w-1", 0, 2, "c"), ("w-1", 0, 2, "c"), workers=1).holds


def test_the_others_may_make_the_last_round_of_a_process_that_dies_without_it():
    died = [*together(1, "a"), ("w-1", 0, 2, "b"), ("w-2", 0, 2, "c"), ("w-2", 0, 3, "d")]
    assert agree(*died, *together(4, "e", inc=1)).holds


def test_where_all_rounds_differ_it_says_what_to_tell():
    finding = agree(("w-1", 0, 1, "a"), ("w-2", 0, 1, "b"))
    assert "of no shard of it" in text(finding.evidence[-1])


@pytest.mark.parametrize(("rounds", "settings"), [
    ([("w-1", 0, 1, None), ("w-2", 0, 1, None)], {}),
    ([("w-1", 0, 1, "a"), ("w-2", 0, 1, "b")], {"shared": False}),
    ([("w-1", 0, 1, "a"), ("w-2", 0, 2, "b")], {})])
def test_without_two_digests_of_a_round_it_is_left_out_and_not_known_where_it_is_asked_for(rounds, settings):
    assert agree(*rounds, **settings) is None
    with pytest.raises(Unknown, match="no two workers told a digest of one round"):
        agree(*rounds, **settings, checks="{digests_agree: {}}")


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=20), st.integers(2, 4), st.data())
def test_a_single_digest_that_differs_is_found_wherever_it_is(digests, workers, data):
    rounds = together(1, *digests, workers=workers)
    assert agree(*rounds, workers=workers).holds
    wrong = data.draw(st.integers(0, len(rounds) - 1))
    rounds[wrong] = (*rounds[wrong][:3], "x")
    assert not agree(*rounds, workers=workers).holds


# -- made again, and as if nothing had happened ------------------------------------------------------------------------

def alone(inc, first, digests):
    return [("w-1", inc, number, digest) for number, digest in enumerate(digests, first)]


def test_a_round_that_is_made_again_has_the_same_digest_again():
    before = alone(0, 1, "abc")
    same = CHECKS["rounds_repeat"](told(*before, *alone(1, 2, "bcd"), workers=1))
    assert same.measured == "0 of 2 differ (rounds 2 to 3)"
    finding = CHECKS["rounds_repeat"](told(*before, *alone(1, 2, "bxy"), workers=1))
    assert (finding.holds, finding.measured) == (False, "1 of 2 differ (rounds 2 to 3)")
    assert text(finding.evidence[0]) == "round 3: w-1.0 told the digest c at 0.20 s, and w-1.1 told x at 0.40 s"


def test_with_a_tolerance_digests_are_not_compared():
    history = told(*alone(0, 1, "abc"), *alone(1, 2, "bxy"), checks="{rounds_repeat: {tolerance: 1%}}", workers=1)
    assert CHECKS["rounds_repeat"](history).holds


def test_a_run_is_held_against_the_digests_of_the_same_nodes_without_faults():
    history = told(*alone(0, 1, "abc"), *alone(1, 2, "bxd"), checks="{same_as_uninterrupted: {}}", workers=1)
    history.references = {"fault-free": Reference(kind="fault-free", key="k", wall=1.0, curve=(), digests={
        "w-1": tuple((number, (digest,)) for number, digest in enumerate("abcd", 1))})}
    finding = CHECKS["same_as_uninterrupted"](history)
    assert (finding.holds, finding.measured) == (False, "1 of 4 differ, from round 3 on")
    assert text(finding.evidence[0]) == "round 3: w-1.1 told the digest x at 0.40 s, and without faults it was c"
