"""Whether the algorithm kept its promises, whatever was broken."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from msgspec import structs

from diloco_chaos.chaos.evidence.accounting.token_accounting import closing_intervals
from forged_runs import ALWAYS

PROMISES = ["exactly_once", "replica_consistency", "weights_correct", "quorum_respected", "staleness_bounded"]


@pytest.mark.parametrize("run", ["calm", "brief", "paper", "storm", "reborn"])
@pytest.mark.parametrize("name", PROMISES)
def test_every_promise_holds_in_a_real_run_whatever_was_broken(request, run, name):
    verdict = request.getfixturevalue(run).verdict(name)
    assert verdict.verdict == "passed", verdict


@pytest.mark.parametrize("name", sorted(set(PROMISES) - {"replica_consistency"}))
def test_without_merges_nothing_is_known(calm, name):
    verdict = calm.without("merge").verdict(name)
    assert verdict.verdict == "unknown"
    assert "no merges" in verdict.evidence[0]


def test_the_promises_are_judged_always():
    assert set(PROMISES) <= ALWAYS


# -- exactly_once --------------------------------------------------------------------------------------------------

def test_a_step_merged_twice_is_named(calm):
    first, second = _two_of_a_fragment(calm)
    old, new = first.contributions[0], second.contributions[0]
    verdict = calm.part(second, first=old.first).verdict("exactly_once")
    assert verdict.verdict == "failed"
    assert verdict.measured.startswith("1 violations")
    assert verdict.evidence == [
        f"fragment {second.fragment} version {second.version}: learner-1.0 steps {old.first}-{new.last} "
        f"merged again (steps {old.first}-{old.last} were merged before)"]


def test_a_single_step_in_two_merges_is_one_too_many(calm):
    _, second = _two_of_a_fragment(calm)
    assert "merged again" in calm.part(second, first=lambda step: step - 1).verdict("exactly_once").evidence[0]


def test_a_merge_that_was_recorded_twice_is_a_merge_that_took_place_twice(calm):
    merge = calm.all("merge")[20]
    verdict = calm.said(merge.t + 0.001, "syncer", "merge", **dict(merge.payload())).verdict("exactly_once")
    assert verdict.verdict == "failed"
    assert verdict.measured.startswith(f"{len(merge.contributions)} violations")


def test_the_same_step_numbers_of_two_learners_are_not_the_same_steps(calm):
    assert {event.step for event in calm.all("step", "learner-1")} >= set(range(1, 140))
    assert {event.step for event in calm.all("step", "learner-2")} >= set(range(1, 140))
    assert calm.verdict("exactly_once").verdict == "passed"
    swapped = calm.forged("merge", contributions=lambda parts: [structs.replace(part, learner="learner-2")
                                                                for part in parts])
    assert "merged again" in " ".join(swapped.verdict("exactly_once").evidence)


def test_a_step_that_nobody_took_is_named(calm):
    merge = calm.all("merge")[-1]
    verdict = calm.part(merge, last=9999).verdict("exactly_once")
    assert verdict.verdict == "failed"
    assert "of these steps are on the learner's tape" in verdict.evidence[0]


def test_a_contribution_from_nowhere_is_named(calm):
    verdict = calm.part(calm.all("merge")[20], learner="learner-9").verdict("exactly_once")
    assert verdict.verdict == "failed"
    assert "learner-9.0" in verdict.evidence[0]


def test_steps_merged_from_a_learner_after_its_death_are_named(storm):
    late = next(merge for merge in storm.all("merge") if merge.t > 5)
    dead = max(event.step for event in storm.all("step", "learner-1") if event.inc == 0)
    story = storm.part(late, learner="learner-1", incarnation=0, first=dead + 1, last=dead + 2)
    verdict = story.verdict("exactly_once")
    assert verdict.verdict == "failed"
    assert f"learner-1.0 steps {dead + 1}-{dead + 2}: only 0 of these steps are on" in " ".join(verdict.evidence)


def test_a_merged_step_that_is_not_on_the_learners_tape_is_named(calm):
    step = calm.one("step", "learner-2", step=50)
    verdict = calm.without(step).verdict("exactly_once")
    assert verdict.verdict == "failed"
    assert "learner-2.0" in verdict.evidence[0]
    assert "of these steps are on the learner's tape" in verdict.evidence[0]


def test_a_step_without_a_fate_is_named(calm):
    receipt = next(event for event in calm.all("received", "learner-2") if event.closed == 8)
    verdict = calm.forged(receipt, closed=9).verdict("exactly_once")
    assert verdict.verdict == "failed"
    assert verdict.evidence == [f"fragment {receipt.fragment}, learner-2.0: version {receipt.version} closed 9 "
                                f"steps, but 8 had no fate"]


def test_a_step_that_two_processes_of_one_incarnation_took_is_named(calm):
    # Two learners under one number: whoever wrote it first, these tokens were processed twice.
    step = calm.one("step", "learner-2", step=50)
    story = calm.said(step.t + 0.02, "learner-2", "step", **dict(step.payload()))
    assert story.verdict("exactly_once").verdict == "failed"


def test_a_batch_that_both_incarnations_trained_on_and_both_had_merged_is_named(storm):
    # The new process begins its shard again: other step numbers, the same tokens. The design leases data once.
    begun = min(event.position for event in storm.all("step", "learner-1") if event.inc == 1)
    story = storm.forged(lambda event: event.event == "step" and (event.node, event.inc) == ("learner-1", 1),
                         position=lambda position: position - begun)
    assert story.verdict("exactly_once").verdict == "failed"


def test_fates_are_unknown_where_a_merge_is_missing_from_the_syncers_tape(calm):
    # Versions 1, 2, 4: whatever went into version 3 is said to be lost on the way, and could be merged again unseen.
    merge = calm.all("merge")[40]
    assert calm.without(merge).verdict("exactly_once").verdict == "unknown"


def test_a_step_merged_again_in_place_of_a_merge_that_is_missing_does_not_pass(calm):
    first, second = _two_of_a_fragment(calm)
    story = calm.part(second, first=first.contributions[0].first).without(first)
    assert story.verdict("exactly_once").verdict != "passed"


def test_fates_are_unknown_where_a_learner_left_no_tape_at_all(calm):
    # Its file is gone: that it was merged from is no proof that the syncer invented it.
    story = calm.without(lambda event: event.node == "learner-3")
    assert story.verdict("exactly_once").verdict == "unknown"


def test_fates_are_unknown_without_steps(calm):
    verdict = calm.without("step").verdict("exactly_once")
    assert verdict.verdict == "unknown"
    assert verdict.evidence == ["there are no steps or no merges on the tape"]


# -- replica_consistency -------------------------------------------------------------------------------------------

def test_a_receiver_that_applied_other_bytes_is_named(calm):
    receipt = calm.all("received", "learner-3")[30]
    verdict = calm.forged(receipt, digest="0" * 32).verdict("replica_consistency")
    assert verdict.verdict == "failed"
    assert verdict.measured == f"1 of {len([e for e in calm.all('received') if e.t <= calm.end])} receipts differ"
    assert verdict.evidence == [f"learner-3.0 applied other bytes for fragment {receipt.fragment} version "
                                f"{receipt.version} at {receipt.t:.2f} s"]


def test_a_version_with_two_contents_is_named(calm):
    merge = calm.all("merge")[20]
    story = calm.said(merge.t + 0.001, "syncer", "merge", **dict(merge.payload()) | {"digest": "0" * 32})
    verdict = story.verdict("replica_consistency")
    assert verdict.verdict == "failed"
    assert f"fragment {merge.fragment} version {merge.version} has two contents" in verdict.evidence


def test_a_version_that_came_back_with_another_content_after_a_restart_is_named(reborn):
    story = reborn.forged("resumed", digests=lambda digests: ["0" * 32, *digests[1:]])
    verdict = story.verdict("replica_consistency")
    assert verdict.verdict == "failed"
    assert verdict.evidence[0].startswith("fragment 0 version ")
    assert verdict.evidence[0].endswith("has two contents")


def test_a_restart_that_forgot_a_commit_is_named(reborn):
    story = reborn.forged("resumed", versions=lambda versions: [versions[0] - 1, *versions[1:]],
                          digests=lambda digests: [_digest_before(reborn), *digests[1:]])
    verdict = story.verdict("replica_consistency")
    assert verdict.verdict == "failed"
    assert any("fragment 0 went back from version" in line for line in verdict.evidence)


def test_a_restart_that_forgot_its_momentum_is_named_though_every_value_is_the_same(reborn):
    story = reborn.forged("resumed", states=lambda states: ["0" * 32, *states[1:]])
    verdict = story.verdict("replica_consistency")
    assert verdict.verdict == "failed"
    assert "fragment 0 version" in verdict.evidence[0]
    assert "has two states: its momentum" in verdict.evidence[0]


def test_merges_in_another_order_than_their_versions_are_named(calm):
    first, second = _two_of_a_fragment(calm)
    verdict = calm.forged(first, t=second.t + 0.0005).verdict("replica_consistency")
    assert verdict.verdict == "failed"
    assert f"fragment {first.fragment} went back from version {second.version} to {first.version}" \
        in verdict.evidence


def test_a_learner_that_went_back_to_an_older_version_is_named(calm):
    mine = [event for event in calm.all("received", "learner-2") if event.fragment == 1]
    verdict = calm.forged(mine[5], later=2.0).verdict("replica_consistency")
    assert verdict.verdict == "failed"
    assert verdict.evidence == [f"learner-2.0 went back to version {mine[5].version} of fragment 1"]


def test_a_new_incarnation_begins_with_nothing_older_than_what_was_there_when_it_came(storm):
    receipt = next(event for event in storm.all("received", "learner-1") if event.inc == 1)
    digest = storm.one("initial").digests[receipt.fragment]
    verdict = storm.forged(receipt, version=0, digest=digest).verdict("replica_consistency")
    assert verdict.verdict == "failed"
    assert verdict.evidence[0].startswith(f"learner-1.1 began with version 0 of fragment {receipt.fragment}, and ")


@pytest.mark.parametrize("missing", ["received", "merge", "initial"])
def test_contents_are_unknown_where_one_side_is_missing(calm, missing):
    assert calm.without(missing).verdict("replica_consistency").verdict == "unknown"


def test_a_version_that_the_syncer_never_recorded_is_unknown(calm):
    merge = calm.all("merge")[20]
    verdict = calm.without(merge).verdict("replica_consistency")
    assert verdict.verdict == "unknown"
    assert verdict.evidence == [f"fragment {merge.fragment} version {merge.version} is not on the syncer's tape"]


def test_a_content_that_the_syncer_has_under_another_number_is_named(calm):
    # Everywhere alike: the syncer's tape agrees with itself.
    def higher(versions):
        return [version + 1 for version in versions]
    story = calm.forged("merge", version=lambda version: version + 1).forged("initial", versions=higher).forged(
        "hello", versions=higher)
    verdict = story.verdict("replica_consistency")
    assert verdict.verdict == "failed"
    assert "version 0" in verdict.evidence[0]
    assert "the syncer tells of it as fragment" in verdict.evidence[0]


def test_a_hello_that_says_less_than_the_merges_before_it_excuses_nobody(storm):
    hello = storm.one("hello", learner="learner-1", incarnation=1)
    mine = [event for event in storm.all("received", "learner-1") if event.inc == 1]
    first = next(event for event in mine if event.fragment == 0)
    older = storm.one("merge", fragment=0, version=first.version - 1)
    story = storm.forged(hello, versions=lambda versions: [0] * len(versions)).forged(
        first, version=older.version, digest=older.digest)
    verdict = story.verdict("replica_consistency")
    assert verdict.verdict == "failed"
    assert "learner-1.1 began with version" in verdict.evidence[0]


# -- weights_correct -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("field", "change"), [("weight", 1.01), ("steps", 2), ("tokens", 0.5)])
def test_a_weight_that_the_learners_own_tape_does_not_give_is_named(calm, field, change):
    merge = calm.all("merge")[20]
    verdict = calm.part(merge, 1, **{field: lambda value: value * change}).verdict("weights_correct")
    assert verdict.verdict == "failed"
    assert verdict.measured.startswith("1 of ")
    where = f"fragment {merge.fragment} version {merge.version}"
    assert verdict.evidence[0].startswith(f"{where}: learner-2 weighed ")


def test_a_weight_that_is_no_number_is_wrong(calm):
    # NaN differs from everything by nothing that is greater than a tolerance.
    assert calm.part(calm.all("merge")[20], 1, weight=math.nan).verdict("weights_correct").verdict == "failed"


def test_a_merge_with_another_outer_step_than_the_plan_has_there_is_named(calm):
    verdict = calm.forged(calm.all("merge")[20], outer=[0.3, 0.5]).verdict("weights_correct")
    assert verdict.verdict == "failed"
    assert "its outer rate and momentum were 0.3, 0.5; the plan has 0.3, 0.8 there" in verdict.evidence[0]


def test_tokens_that_the_learner_did_not_process_do_not_weigh(calm):
    # The syncer was told 128 tokens, but one of the eight steps had half a batch.
    verdict = calm.forged(calm.one("step", "learner-2", step=50), tokens=8).verdict("weights_correct")
    assert verdict.verdict == "failed"
    assert "its tape gives 1800 for 8" in verdict.evidence[0]


def test_steps_that_were_carried_over_count_again_only_as_long_as_the_connection_stands(storm):
    carried = [event for event in storm.all("received") if event.carried]
    assert carried
    assert storm.bounded("{}", on_receipt="overwrite").verdict("weights_correct").verdict == "failed"


def test_what_was_answered_before_a_connection_broke_is_not_carried_on_top_of_a_later_receipt(perform):
    # learner-1 answers, and then nothing gets through until it is too far behind: what it receives closes everything.
    seen = Counter()

    def lose(sender, receiver, message):
        if "learner-1" not in (sender, receiver):
            return False
        seen[message.type] += 1
        seen["lost"] += seen["outer_gradient"] > 10
        return seen["outer_gradient"] > 10 and seen["lost"] < 800

    story = perform(lose, budget=50, max_staleness=1)
    mine = [event for event in story.events if event.node == "learner-1"
            and getattr(event, "fragment", 3) == 3 and event.event in ("outer_gradient", "disconnected", "received")]
    assert any(answer and broken and receipt.step > answer.step
               for receipt, answer, broken in closing_intervals(mine))
    assert story.verdict("weights_correct").verdict == "passed"


@pytest.mark.parametrize("missing", ["outer_gradient", "received"])
def test_what_a_learner_never_answered_by_its_own_tape_was_not_sent_by_it(calm, missing):
    verdict = calm.without(missing).verdict("weights_correct")
    assert verdict.verdict == "failed"
    assert "is not what it sent in round" in verdict.evidence[0]


def test_one_answer_that_is_missing_is_enough(calm):
    merge = calm.all("merge")[20]
    answer = calm.one("outer_gradient", "learner-4", round=merge.round)
    assert calm.without(answer).verdict("weights_correct").verdict == "failed"


def test_weights_are_unknown_where_the_learners_tape_ends_before_its_answer(calm):
    story = calm.without(lambda event: "learner-4" in (event.node, getattr(event, "target", "")) and event.t > 5)
    verdict = story.verdict("weights_correct")  # nobody knows how it ended
    assert verdict.verdict == "unknown"
    assert "the tape of learner-4.0 lacks its answer to round" in verdict.evidence[0]


def test_no_round_after_a_syncers_restart_is_taken_for_one_before_it(reborn):
    # An answer is found by its round's number: were numbers used twice, weights would be held against other answers.
    rounds = [merge.round for merge in reborn.all("merge")]
    assert len(set(rounds)) == len(rounds)
    late = next(merge for merge in reborn.all("merge") if merge.inc == 1)
    assert reborn.part(late, steps=1).verdict("weights_correct").verdict == "failed"


@pytest.mark.parametrize("told", [True, False])
def test_a_learner_that_hears_another_word_of_its_answer_than_the_merges_is_named(storm, told):
    receipt = next(event for event in storm.all("received") if event.arrived is not told and event.version > 1)
    verdict = storm.forged(receipt, arrived=told).verdict("weights_correct")
    assert verdict.verdict == "failed"
    assert verdict.evidence[0].startswith(f"{receipt.node}.{receipt.inc} was told with version {receipt.version} of "
                                          f"fragment {receipt.fragment} that its answer is {'' if told else 'not '}in")


def test_a_learner_that_does_not_say_what_it_heard_of_its_answer_proves_nothing(calm):
    receipt = next(event for event in calm.all("received") if event.arrived)
    assert calm.forged(receipt, arrived=None).verdict("weights_correct").verdict == "passed"


# -- quorum_respected ----------------------------------------------------------------------------------------------

def test_a_merge_below_the_quorum_is_named(calm):
    merge = next(merge for merge in calm.all("merge") if len(merge.contributions) == 4)
    story = calm.forged(merge, contributions=lambda parts: parts[:1]).bounded("{}", quorum=2)
    verdict = story.verdict("quorum_respected")
    assert (verdict.verdict, verdict.measured) == ("failed", "smallest quorum 1")
    assert f"fragment {merge.fragment} version {merge.version} at {merge.t:.2f} s: " \
           f"1 distinct learners in 1 contributions" in verdict.evidence


def test_one_learner_twice_is_no_quorum_of_two(calm):
    merge = calm.all("merge")[20]
    verdict = calm.forged(merge, contributions=lambda parts: [parts[0], parts[0]]).verdict("quorum_respected")
    assert verdict.verdict == "failed"
    assert "1 distinct learners in 2 contributions" in verdict.evidence[0]


def test_a_merge_of_nothing_is_below_any_quorum(calm):
    verdict = calm.forged(calm.all("merge")[20], contributions=[]).verdict("quorum_respected")
    assert (verdict.verdict, verdict.measured) == ("failed", "smallest quorum 0")


def test_a_contribution_before_its_learners_hello_is_named(calm):
    late = calm.one("hello", learner="learner-4")
    verdict = calm.forged(late, t=3.0).verdict("quorum_respected")
    assert verdict.verdict == "failed"
    assert "a contribution from a learner that was not there" in verdict.evidence[0]


def test_a_contribution_of_an_older_incarnation_after_a_newer_ones_hello_is_named(storm):
    merge = next(merge for merge in storm.all("merge") if merge.t > 8)
    verdict = storm.part(merge, 0, incarnation=0).verdict("quorum_respected")
    assert verdict.verdict == "failed"
    assert verdict.evidence == [f"fragment {merge.fragment} version {merge.version} at {merge.t:.2f} s: "
                                f"a contribution from a learner that was not there"]


def test_a_contribution_of_an_incarnation_that_is_yet_to_come_is_named(storm):
    merge = next(merge for merge in storm.all("merge") if merge.t > 2)
    assert "was not there" in storm.part(merge, 0, incarnation=1).verdict("quorum_respected").evidence[0]


@pytest.mark.parametrize(("after", "learner"), [(5.0, "learner-1"), (13.0, "learner-4")], ids=["killed", "cut off"])
def test_a_contribution_that_arrived_from_a_learner_that_was_gone_is_named(storm, after, learner):
    # The syncer had recorded that it lost this learner; no hello since. One that is dead is not live.
    merge = next(merge for merge in storm.all("merge") if merge.t > after)
    part = next(part for before in reversed(storm.all("merge")) if before.t < after - 1
                for part in before.contributions if part.learner == learner)
    story = storm.forged(merge, contributions=lambda parts: [*parts, structs.replace(part, arrived=merge.quorum_at)],
                         asked=lambda asked: [*asked, learner])
    assert story.verdict("quorum_respected").verdict == "failed"


def test_a_contribution_that_nobody_asked_for_is_named(calm):
    merge = calm.all("merge")[20]
    story = calm.forged(merge, asked=lambda asked: [name for name in asked if name != "learner-2"])
    assert story.verdict("quorum_respected").verdict == "failed"


def test_a_contribution_that_arrived_before_it_was_computed_is_named(calm):
    merge = calm.all("merge")[20]
    part = merge.contributions[0]
    story = calm.part(merge, 0, arrived=part.arrived - 0.2).forged(merge, quorum_at=merge.quorum_at)
    verdict = story.verdict("quorum_respected")
    assert verdict.verdict == "failed"
    assert any(f"before {part.learner} had computed it" in words for words in verdict.evidence)


def test_a_merge_that_was_received_before_it_was_closed_is_named(calm):
    receipt = calm.all("received")[-1]
    verdict = calm.forged(receipt, t=receipt.t - 0.5).verdict("quorum_respected")
    assert verdict.verdict == "failed"
    assert any("after it had been received" in words for words in verdict.evidence)


def test_a_step_time_that_no_learner_had_is_named(calm):
    merge = calm.all("merge")[40]
    verdict = calm.forged(merge, step_time=2 * merge.step_time).verdict("quorum_respected")
    assert verdict.verdict == "failed"
    assert any("grace window was computed from steps of" in words for words in verdict.evidence)


def test_a_grace_window_that_the_recorded_times_do_not_give_is_named(calm):
    merge = calm.all("merge")[20]
    verdict = calm.forged(merge, grace=0.5).verdict("quorum_respected")
    assert verdict.verdict == "failed"
    assert "grace was 0.5000 s, the recorded times give 0.0" in verdict.evidence[0]


@pytest.mark.parametrize("field", ["grace", "closed", "step_time", "sync_time", "opened"])
def test_a_time_that_is_no_number_proves_no_grace_window(calm, field):
    merge = next(merge for merge in calm.all("merge") if len(merge.contributions) == 4)
    story = calm.forged(merge, contributions=lambda parts: parts[:3], **{field: math.nan})
    assert story.verdict("quorum_respected").verdict != "passed"


def test_a_round_that_closed_before_its_grace_window_was_over_is_named(calm):
    merge = next(merge for merge in calm.all("merge") if len(merge.contributions) == 4)
    story = calm.forged(merge, contributions=lambda parts: parts[:3],
                        closed=max(part.arrived for part in merge.contributions[:3]))
    verdict = story.verdict("quorum_respected")
    assert verdict.verdict == "failed"
    assert verdict.evidence[0].endswith("closed before the grace window was over, without learner-4")


def test_a_round_may_close_early_when_those_who_are_missing_have_nothing_to_give(calm):
    merge = next(merge for merge in calm.all("merge") if len(merge.contributions) == 4)
    story = calm.forged(merge, contributions=lambda parts: parts[:3], declined=["learner-4"],
                        closed=max(part.arrived for part in merge.contributions[:3]))
    answer = calm.one("outer_gradient", "learner-4", round=merge.round)
    assert story.without(answer).verdict("quorum_respected").verdict == "passed"
    verdict = story.verdict("quorum_respected")
    assert verdict.verdict == "failed"  # it had answered, by its own tape
    assert verdict.evidence[0].endswith("closed before the grace window was over, without learner-4")


def test_who_is_said_to_have_declined_and_answered_is_named(calm):
    merge = next(merge for merge in calm.all("merge") if len(merge.contributions) == 4)
    story = calm.forged(merge, contributions=lambda parts: parts[:3], declined=["learner-4"],
                        asked=lambda asked: asked[:3])
    verdict = story.verdict("quorum_respected")
    assert verdict.verdict == "failed"
    assert verdict.evidence[0].endswith("learner-4 is said to have declined, and it answered")
    refusal = {"learner": "learner-4", "incarnation": 0, "round": merge.round, "fragment": merge.fragment}
    assert story.said(merge.closed, "syncer", "refused", reason="stale", **refusal).verdict(
        "quorum_respected").verdict == "passed"
    assert story.said(merge.closed, "syncer", "refused", reason="late", **refusal).verdict(
        "quorum_respected").verdict == "failed"


def test_a_round_that_was_answered_before_it_was_opened_is_named(calm):
    merge = calm.all("merge")[20]
    opened = min(calm.one("outer_gradient", part.learner, round=merge.round).t for part in merge.contributions)
    late = opened + 0.01 - merge.opened
    verdict = calm.forged(merge, opened=opened + 0.01, grace=lambda grace: grace + late / 2).verdict("quorum_respected")
    assert verdict.verdict == "failed"
    assert any("opened 10 ms after learner-" in words for words in verdict.evidence)


def test_a_sync_time_that_no_broadcast_took_is_named(calm):
    merge = calm.all("merge")[20]
    verdict = calm.forged(merge, sync_time=5.0, grace=0.0).verdict("quorum_respected")
    assert verdict.verdict == "failed"
    assert any("a broadcast that takes 5.0 s" in words for words in verdict.evidence)


def test_a_contribution_that_arrived_after_its_round_was_closed_is_named(calm):
    merge = calm.all("merge")[20]
    verdict = calm.part(merge, 1, arrived=merge.closed + 0.01).verdict("quorum_respected")
    assert verdict.verdict == "failed"
    assert "a contribution arrived after the round was closed" in verdict.evidence[0]


def test_a_contribution_that_arrived_long_after_the_grace_window_is_late_and_not_merged(calm):
    # The window is at most one step (60 ms); this round waited three seconds for its last contribution.
    merge = calm.all("merge")[20]
    story = calm.part(merge, 3, arrived=merge.quorum_at + 3).forged(
        lambda event: event.event == "merge" and event.version == merge.version
        and event.fragment == merge.fragment, closed=merge.quorum_at + 3, later=3.0)
    assert story.verdict("quorum_respected").verdict == "failed"


# -- staleness_bounded ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("age", "word"), [(16, "passed"), (17, "failed")])
def test_a_base_may_be_as_old_as_the_bound_and_no_older(storm, age, word):
    merge = storm.all("merge")[-1]
    verdict = storm.part(merge, base=merge.version - 1 - age).verdict("staleness_bounded")
    assert (verdict.verdict, verdict.measured, verdict.bound) == (word, f"oldest base {age} versions", "≤ 16")
    assert verdict.evidence == [f"learner-1.1 on version {merge.version - 1 - age} into version {merge.version} "
                                f"of fragment {merge.fragment}"]


def test_a_base_that_did_not_exist_yet_is_named(calm):
    merge = calm.all("merge")[20]
    verdict = calm.part(merge, base=merge.version).verdict("staleness_bounded")
    assert verdict.verdict == "failed"
    assert verdict.evidence == [f"learner-1.0 on version {merge.version} into version {merge.version} "
                                f"of fragment {merge.fragment}"]


def test_merges_of_nothing_tell_nothing_about_staleness(calm):
    verdict = calm.forged("merge", contributions=[]).verdict("staleness_bounded")
    assert verdict.verdict == "unknown"
    assert verdict.measured != "the check crashed"


def test_a_merge_that_its_syncer_could_not_tell_of_is_told_by_the_next(reborn):
    lost = _last_before_the_restart(reborn)
    untold = reborn.without(lost)
    assert untold.verdict("exactly_once").verdict == "passed"
    assert untold.history().accounting.fates == reborn.history().accounting.fates

    part = lost.contributions[0]
    again = untold.forged("resumed", contributions=lambda told: [
        [(part.learner, part.incarnation, part.first - 1, part.last)] if fragment == lost.fragment
        else parts for fragment, parts in enumerate(told)])
    assert "merged again" in " ".join(again.verdict("exactly_once").evidence)

    silent = untold.forged("resumed", contributions=[])
    assert silent.verdict("exactly_once").verdict == "unknown"


def _last_before_the_restart(story):
    """The last merge of which the syncer that was killed told."""
    resumed = story.one("resumed")
    return [merge for merge in story.all("merge") if merge.t < resumed.t][-1]


def _two_of_a_fragment(story):
    """Two merges of one fragment, one after the other, in both of which learner-1 comes first."""
    first = story.all("merge")[20]
    second = next(merge for merge in story.all("merge", fragment=first.fragment)
                  if merge.version == first.version + 1)
    assert first.contributions[0].learner == second.contributions[0].learner == "learner-1"
    return first, second


def _digest_before(story):
    """Digest of the version of fragment 0 before the one with which the syncer resumed."""
    version = story.one("resumed").versions[0] - 1
    return story.one("merge", fragment=0, version=version).digest
