"""What a run cost, and whether the experiment itself was sound."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diloco_chaos.chaos.checks.outcome import extra_tokens, first_at, loss_at, relative_gap
from diloco_chaos.chaos.evidence.baseline import LossPoint
from recorded_events import an_event


@pytest.mark.parametrize("name", ["goodput", "loss_parity", "faults_verified", "all_undone"])
def test_a_sound_run_passes(storm, name):
    assert storm.verdict(name).verdict == "passed"


# -- goodput -------------------------------------------------------------------------------------------------------

def test_learner_time_whose_tokens_were_thrown_away_is_no_goodput(calm):
    verdict = calm.unmerged(3, 6).verdict("goodput")
    assert verdict.verdict == "failed"
    assert verdict.measured == "62.8% (predicted 100%)"
    assert verdict.bound == "≥ 90.0%"


def test_one_learner_of_four_that_is_never_merged_from_costs_a_quarter(calm):
    verdict = calm.unmerged(0, 99, "learner-2").verdict("goodput")
    assert verdict.verdict == "failed"
    assert verdict.measured.startswith("73.")


def test_what_is_lost_to_the_overlap_alone_counts_as_goodput(paper):
    assert paper.history().accounting.by_fate["overlap"] > 0
    verdict = paper.verdict("goodput")
    assert verdict.verdict == "passed"
    assert float(verdict.measured.split("%")[0]) > 97


def test_goodput_is_held_against_nine_tenths_of_the_availability_that_the_plan_predicts(storm):
    # The faults are to cost 5 s of learner-1 and half of 4 s of learner-2, beside 21 s of four learners.
    verdict = storm.bounded("{}").verdict("goodput")
    assert verdict.bound == f"≥ {0.9 * 84 / (84 + 7):.1%}"


@pytest.mark.parametrize(("cluster", "allowed"), [
    ({}, "500 ms"), ({"mode": "diloco", "quorum": 4, "grace": 0.0, "overlap": 0}, "2.0 s")])
def test_a_place_where_every_process_starts_slowly_lowers_the_goodput_that_is_asked_for(storm, cluster, allowed):
    # One of four learners is two seconds later than is taken for granted; where all wait for all, everybody is.
    story = storm.bounded("{}", **cluster)
    took = {event.inc: event.t - spawn.t for event in story.all("ready", "learner-1")
            for spawn in story.all("spawn") if (spawn.target, spawn.incarnation) == ("learner-1", event.inc)}
    assert set(took) == {0, 1}
    later = {inc: 5 - s for inc, s in took.items()}

    def late(*lives):
        changed = story
        for life in lives:
            changed = changed.forged(lambda event, life=life: event.event == "ready" and event.node == "learner-1"
                                     and event.inc == life, later=later[life])
        return changed.verdict("goodput")

    usual = story.verdict("goodput").bound
    assert late(0).bound == late(1).bound == usual
    slow = late(0, 1)
    assert float(slow.bound.strip("≥ %")) < float(usual.strip("≥ %"))
    assert any(f"{allowed} of the cluster's time are allowed for it" in line for line in slow.evidence)
    story = storm.bounded("{goodput: {at_least: 99%}}", **cluster)  # what a scenario names is held as it stands
    named = late(0, 1)
    assert named.bound == "≥ 99.0%"
    assert not any("allowed for it" in line for line in named.evidence)


def test_who_waits_for_two_that_start_slowly_at_once_waits_once(storm):
    story = storm.bounded("{}", mode="diloco", quorum=4, grace=0.0, overlap=0)
    (spawn,) = [event for event in story.all("spawn") if (event.target, event.incarnation) == ("learner-1", 1)]
    slow = story.forged(lambda event: event.event == "ready" and (event.node, event.inc) == ("learner-1", 0), later=5)
    slow = slow.forged(lambda event: event.event == "ready" and (event.node, event.inc) == ("learner-1", 1), later=5)
    twice = slow.said(spawn.t + 0.5, "harness", "spawn", target="learner-3", incarnation=1).said(
        spawn.t + 8.0, "learner-3", "ready", inc=1)
    once, both = (float(line.split(" s of the cluster's")[0].split()[-1]) for told in (slow, twice)
                  for line in told.verdict("goodput").evidence if "of the cluster's time are allowed" in line)
    assert 0 < both - once < 0.7  # the second begins half a second later


def test_without_pace_a_step_counts_what_it_computed(calm):
    # A third of the nominal time, so a third of the goodput.
    verdict = calm.bounded("{goodput: {at_least: 40%}}", step_time=0).verdict("goodput")
    assert verdict.verdict == "failed"
    assert verdict.measured.startswith("32.")


def test_goodput_of_no_time_is_unknown(calm):
    verdict = calm.forged("finished", t=calm.zero).verdict("goodput")
    assert verdict.verdict == "unknown"
    assert "no time, or no steps" in verdict.evidence[0]


def test_goodput_without_steps_on_the_tape_is_unknown(calm):
    verdict = calm.without("step").verdict("goodput")
    assert verdict.verdict == "unknown"
    assert "no time, or no steps" in verdict.evidence[0]


# -- loss_parity ---------------------------------------------------------------------------------------------------

def test_a_loss_above_the_twins_margin_fails(calm):
    verdict = _scaled(calm, 1.03).verdict("loss_parity")
    assert verdict.verdict == "failed"
    assert verdict.measured == "fault-free +3.0%, synchronous +3.0%"
    assert verdict.bound == "fault-free ≤ +2.0%, synchronous ≤ +4.0%"


def test_a_loss_above_the_synchronous_margin_fails(calm):
    story = calm.bounded("{loss_parity: {against_synchronous: 4%}}")
    verdict = _scaled(story, 1.05).verdict("loss_parity")
    assert (verdict.verdict, verdict.measured) == ("failed", "synchronous +5.0%")


def test_a_lower_loss_always_holds(calm):
    verdict = _scaled(calm, 0.5).verdict("loss_parity")
    assert (verdict.verdict, verdict.measured) == ("passed", "fault-free -50.0%, synchronous -50.0%")


def test_the_twin_is_asked_at_equal_merged_tokens_and_the_synchronous_run_at_equal_processed_ones(calm):
    # Half of what was processed was merged, so the fault-free run is asked where it stood halfway: at 4.5, not at 3.5.
    final = calm.curve[-1]
    curve = (*calm.curve[:-1], final.model_copy(update={"merged": final.processed // 2, "loss": 4.5}))
    verdict = calm.having(curve=curve).verdict("loss_parity")
    assert verdict.verdict == "failed"
    assert verdict.measured == "fault-free +0.0%, synchronous +28.6%"
    assert verdict.evidence[1] == "fault-free at equal merged tokens 4.5000; at equal processed tokens +28.57%"


def test_a_loss_that_is_no_number_fails(calm):
    verdict = _scaled(calm, math.nan).verdict("loss_parity")
    assert verdict.verdict == "failed"
    assert "nan" in verdict.measured
    assert _scaled(calm, math.inf).verdict("loss_parity").verdict == "failed"


def test_only_the_last_snapshot_counts(calm):
    broken = tuple(point.model_copy(update={"loss": math.nan}) for point in calm.curve[:-1])
    assert calm.having(curve=broken + calm.curve[-1:]).verdict("loss_parity").verdict == "passed"
    assert calm.having(curve=calm.curve[::-1]).verdict("loss_parity").verdict == "passed"


@pytest.mark.parametrize(("curve", "why"), [(slice(0), "no loss of this run is known"),
                                            (slice(5), "training did not reach the end of its budget")])
def test_a_curve_without_its_end_is_unknown(calm, curve, why):
    verdict = calm.having(curve=calm.curve[curve]).verdict("loss_parity")
    assert verdict.verdict == "unknown"
    assert verdict.evidence == [why]


@pytest.mark.parametrize("kind", ["fault-free", "synchronous"])
def test_a_missing_reference_is_unknown(calm, kind):
    others = {key: reference for key, reference in calm.references.items() if key != kind}
    verdict = calm.having(references=others).verdict("loss_parity")
    assert verdict.verdict == "unknown"
    assert verdict.evidence == [f"the {kind} reference is missing"]
    empty = calm.references[kind].model_copy(update={"curve": ()})
    assert calm.having(references=others | {kind: empty}).verdict("loss_parity").verdict == "unknown"


@pytest.mark.parametrize("loss", [math.inf, math.nan, 0.0])
def test_a_reference_that_diverged_proves_nothing(calm, loss):
    # Anything is below an infinite loss, and nothing is below one that is no number. (A run ends a little beyond the
    # last mark: the reports of its last steps come together.)
    final = calm.curve[-1]
    beyond = final.model_copy(update={"processed": final.processed + 48, "merged": final.merged + 48})

    def bad(reference):
        return reference.model_copy(update={"curve": tuple(
            point.model_copy(update={"loss": loss}) for point in reference.curve)})
    story = calm.having(references={kind: bad(reference) for kind, reference in calm.references.items()},
                        curve=(*calm.curve[:-1], beyond))
    assert story.verdict("loss_parity").verdict == "unknown"


def test_a_reference_that_ends_long_before_the_run_does_proves_nothing(calm):
    # Beyond its end a curve keeps its last loss: at the beginning of training that is easy to beat.
    short = {kind: reference.model_copy(update={"curve": reference.curve[:2]})
             for kind, reference in calm.references.items()}
    assert calm.having(references=short).verdict("loss_parity").verdict == "unknown"


def test_a_scenario_without_margins_has_no_use_for_it(calm):
    assert "loss_parity" not in calm.bounded("{}").describe()


def _point(tokens: int, loss: float) -> LossPoint:
    return LossPoint(number=0, processed=tokens, merged=2 * tokens, t=0, loss=loss)


def test_a_curve_is_linear_between_its_snapshots_and_level_beyond_them():
    curve = [_point(300, 3.0), _point(100, 5.0), _point(200, 4.0)]
    assert [loss_at(curve, "processed", tokens) for tokens in (0, 100, 150, 200, 275, 300, 900)] == [
        5.0, 5.0, 4.5, 4.0, 3.25, 3.0, 3.0]
    assert loss_at(curve, "merged", 300) == 4.5


def test_the_gap_is_relative():
    assert relative_gap(_point(150, 4.95), [_point(100, 5.0), _point(200, 4.0)], "processed") == pytest.approx(0.1)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 1000), st.floats(1, 9)), min_size=1, max_size=6), st.integers(-10, 1010))
def test_a_curve_never_leaves_the_losses_that_it_was_made_of(pairs, tokens):
    losses = [loss for _, loss in pairs]
    value = loss_at([_point(place, loss) for place, loss in pairs], "processed", tokens)
    assert min(losses) - 1e-9 <= value <= max(losses) + 1e-9


REFERENCE = [_point(0, 6.0), _point(100, 5.0), _point(200, 4.0)]


@pytest.mark.parametrize(("curve", "extra"), [
    ([_point(200, 5.0)], 1.0), ([_point(200, 4.5)], 1 / 3), ([_point(200, 4.0)], 0.0), ([_point(100, 4.5)], -1 / 3),
    ([_point(200, 6.5)], math.inf)],
    ids=["twice as many", "a third more", "as many", "fewer", "the reference began better"])
def test_extra_tokens_are_counted_from_where_the_reference_was_as_low(curve, extra):
    assert extra_tokens(curve, REFERENCE, "processed") == pytest.approx(extra)


def test_a_run_that_ends_below_its_reference_is_measured_where_it_was_as_low_itself():
    curve = [_point(100, 4.5), _point(200, 3.5)]
    assert extra_tokens(curve, REFERENCE, "processed") == pytest.approx(150 / 200 - 1)
    assert extra_tokens(curve[1:], REFERENCE, "processed") == 0  # of its end alone nobody knows more


def test_a_curve_that_rises_again_counts_where_it_first_was_as_low():
    curve = [_point(100, 5.0), _point(200, 3.0), _point(300, 4.0)]
    assert first_at(curve, "processed", 4.0) == 150
    assert first_at(curve, "processed", 2.0) == 300


@settings(max_examples=50)
@given(st.lists(st.floats(1, 9), min_size=2, max_size=6), st.floats(1, 9))
def test_where_a_curve_first_is_as_low_its_loss_is_that(losses, loss):
    curve = [_point(100 * number, value) for number, value in enumerate(losses)]
    place = first_at(curve, "processed", loss)
    if losses[0] >= loss >= min(losses):
        assert loss_at(curve, "processed", place) == pytest.approx(loss)


# -- faults_verified ---------------------------------------------------------------------------------------------------

def test_what_was_felt_stands_beside_what_was_asked_for(storm):
    assert storm.verdict("faults_verified").evidence == [
        "f1: kill learner-1, back after 2.0 s: exit status SIGKILL",
        "f2: learner-2 at 50% speed for 4.0 s: 50% of nominal speed",
        "f3: learner-3 +12 ms ± 0 ms latency for 3.0 s: 12.0 ms each way",
        "f4: learner-4 partitioned for 2.0 s: nothing came through for 2.0 s"]


def test_a_fault_that_was_not_felt_is_unknown_and_never_failed(storm):
    verdict = storm.forged(storm.one("exit", target="learner-1", incarnation=0), status=0).verdict("faults_verified")
    assert verdict.verdict == "unknown"
    assert verdict.evidence == ["f1: asked for kill learner-1, back after 2.0 s; observed: exit status 0"]


def test_a_straggler_that_kept_its_pace_was_not_felt(storm):
    story = storm.forged(storm.one("injecting", fault="f2"), t=15).forged(storm.one("injected", fault="f2"), t=15)
    verdict = story.forged(storm.one("healed", fault="f2"), t=19).verdict("faults_verified")
    assert verdict.verdict == "unknown"
    assert verdict.evidence == ["f2: asked for learner-2 at 50% speed for 4.0 s; observed: 100% of nominal speed"]


@pytest.mark.parametrize("factor", [0.9, 0.95])
def test_a_slight_straggler_that_kept_its_full_pace_was_not_felt(storm, factor):
    # Between 90% and 100% the tolerance must not reach from what was asked for to nothing at all.
    story = storm.bounded("{}", f"[{{straggler: learner-3, at: 15s, for: 4s, factor: {factor}}}]").without(
        lambda event: event.event in ("injecting", "injected", "healed"))
    story = story.said(15.2, "harness", "injecting", fault="f1").said(
        15.2, "harness", "injected", fault="f1", observed={"ok": True}).said(19.2, "harness", "healed", fault="f1",
                                                                             observed={})
    assert story.verdict("faults_verified").verdict == "unknown"


def test_a_straggler_without_a_pace_is_not_measured(storm):
    assert "no nominal pace" in storm.bounded("{}", step_time=0).verdict("faults_verified").evidence[0]


def test_a_distance_that_the_probes_did_not_see_was_not_felt(storm):
    verdict = _observed(storm, "f3", ok=False, delay_s=0.001).verdict("faults_verified")
    assert verdict.verdict == "unknown"
    assert verdict.evidence[0].endswith("observed: 1.0 ms each way")


def test_a_partition_that_the_syncer_never_noticed_was_not_felt(storm):
    verdict = storm.without(storm.one("lost", learner="learner-4")).verdict("faults_verified")
    assert verdict.verdict == "unknown"
    assert verdict.evidence[0].endswith("observed: the syncer never lost learner-4")


def test_a_partition_through_which_a_learner_came_back_early_was_not_felt(storm):
    back = storm.all("hello", learner="learner-4")[-1]
    verdict = storm.forged(back, t=13.0).verdict("faults_verified")
    assert verdict.verdict == "unknown"
    assert "nothing came through for 812 ms" in verdict.evidence[0]


@pytest.mark.parametrize("fault", ["f1", "f2", "f3", "f4"])
def test_a_fault_that_never_came_was_not_felt(storm, fault):
    verdict = storm.without(storm.one("injecting", fault=fault)).verdict("faults_verified")
    assert verdict.verdict == "unknown"
    assert "never came: at " in verdict.evidence[0]


@pytest.mark.parametrize("fault", ["f1", "f2", "f3", "f4"])
def test_a_fault_whose_injection_was_not_recorded_to_its_end_was_not_felt(storm, fault):
    assert storm.without(storm.one("injected", fault=fault)).verdict("faults_verified").verdict == "unknown"


MID_UPLOAD = "[{kill: learner-1, when: {node: learner-1, failpoint: upload.half, count: 3}, restart_after: 2s}]"


@pytest.mark.parametrize(("passed", "change"), [(0, "`when` of f1: nothing that matches was seen"),
                                                (2, "a longer run")])
def test_a_fault_that_never_came_names_what_to_change(storm, passed, change):
    story = storm.bounded("{}", MID_UPLOAD).without(storm.one("injecting", fault="f1"))
    for number in range(passed):
        story = story.said(2.0 + number, "learner-1", "failpoint_passed", point="upload.half", count=number + 1)
    assert story.verdict("faults_verified").change.startswith(change)


def test_a_kill_in_mid_upload_is_felt_by_half_a_frame(storm):
    story = storm.bounded("{}", MID_UPLOAD)
    assert story.verdict("faults_verified").evidence[0].endswith("but the syncer saw no part of a frame")
    seen = story.said(4.2, "syncer", "partial_frame", peer="learner-1", bytes=512, expected=1024)
    verdict = seen.verdict("faults_verified")
    assert verdict.verdict == "passed"
    assert verdict.evidence[0].endswith("exit status SIGKILL; 512 of 1024 bytes arrived")


@pytest.mark.parametrize(("t", "peer", "arrived"), [(9.0, "learner-1", 512), (4.2, "learner-2", 512),
                                                    (4.2, "learner-1", 0), (4.2, "learner-1", 1024)],
                         ids=["long after", "of another", "nothing", "all of it"])
def test_a_kill_in_mid_upload_is_not_felt_by_any_other_frame(storm, t, peer, arrived):
    story = storm.bounded("{}", MID_UPLOAD).said(t, "syncer", "partial_frame", peer=peer, bytes=arrived, expected=1024)
    assert story.verdict("faults_verified").verdict == "unknown"


def test_a_kill_after_which_the_process_goes_on_was_not_felt(storm):
    # The harness believes in its SIGKILL, but the dead incarnation trains on until the end.
    steps = storm.all("step", "learner-1")
    last = max(event.step for event in steps if event.inc == 0)
    ghost = [an_event(event.t, "learner-1", 0, "step", dict(event.payload()) | {"step": last + number})
             for number, event in enumerate([event for event in steps if event.inc == 1], 1)]
    assert storm.plus(*ghost).verdict("faults_verified").verdict == "unknown"


# -- all_undone ----------------------------------------------------------------------------------------------------

def test_what_is_left_of_a_fault_is_named(storm):
    verdict = storm.forged("residue", left=["toxic latency_upstream on learner-3"]).verdict("all_undone")
    assert (verdict.verdict, verdict.measured) == ("failed", "1 left")
    assert verdict.evidence == ["toxic latency_upstream on learner-3"]


@pytest.mark.parametrize(("fault", "words"), [("f2", "learner-2 at 50% speed"), ("f3", "learner-3 +12 ms"),
                                              ("f4", "learner-4 partitioned")])
def test_a_fault_that_was_never_healed_is_named(storm, fault, words):
    verdict = storm.without(storm.one("healed", fault=fault)).verdict("all_undone")
    assert verdict.verdict == "failed"
    assert verdict.evidence[0].startswith(words)
    assert verdict.evidence[0].endswith("never healed")


def test_a_fault_that_healed_while_nobody_looked_for_residue_is_unknown(storm):
    verdict = storm.without("residue").verdict("all_undone")
    assert verdict.verdict == "unknown"
    assert verdict.evidence == ["the harness did not look for what was left"]


def test_residue_that_could_not_be_looked_for_is_unknown(storm):
    # What the harness writes when the link server no longer answers.
    verdict = storm.forged("residue", unknown="connection refused").verdict("all_undone")
    assert (verdict.verdict, verdict.evidence) == ("unknown", ["not known: connection refused"])
    assert storm.forged("residue", left=["not known on learner-1"]).verdict("all_undone").verdict == "failed"


def test_a_link_that_let_nothing_through_after_it_was_healed_is_not_undone(storm):
    story = storm.forged(storm.one("healed", fault="f4"), observed={"back": False})
    assert story.verdict("all_undone").verdict == "failed"


@pytest.mark.parametrize(("back", "verdict"), [(11.0, "failed"), (16.5, "passed"), (None, "passed")])
def test_a_link_leads_nowhere_while_the_syncer_that_was_killed_is_not_back(storm, back, verdict):
    healed = storm.one("healed", fault="f4")
    story = storm.forged(healed, observed={"back": False}).said(
        8.0, "harness", "exit", target="syncer", incarnation=0, status=-9, killed=True)
    if back is not None:
        story = story.said(back, "syncer", "resumed", versions=[], digests=[], step=0, processed=0)
    assert story.verdict("all_undone").verdict == verdict, healed.t


def test_even_without_faults_somebody_has_to_look(calm):
    assert calm.verdict("all_undone").verdict == "passed"
    assert calm.without("residue").verdict("all_undone").verdict == "unknown"


def _scaled(story, factor):
    final = story.curve[-1]
    loss = story.references["fault-free"].curve[-1].loss * factor
    return story.having(curve=(*story.curve[:-1], final.model_copy(update={"loss": loss})))


def _observed(story, fault, **observed):
    return story.forged(story.one("injected", fault=fault), observed=observed)
