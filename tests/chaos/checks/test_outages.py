"""While a whole run is down, and is started again, nothing is held against it; everything before and after is."""

import pytest
from msgspec import structs

CUT = {"run": "before", "checkpoint": 3}


def gone_on(story, start):
    """The run had been ended, and its clock went on here."""
    return story.said(start, "harness", "continued", **CUT)


@pytest.fixture
def down(calm):
    """Nothing was merged from 3 s to 6 s."""
    return calm.silent("merge", 3, 6)


@pytest.mark.parametrize(("outages", "start", "end", "left"), [
    ([], 1, 9, [(1, 9)]),
    ([(3, 5)], 1, 9, [(1, 3), (5, 9)]),
    ([(3, 5), (6, 7)], 1, 9, [(1, 3), (5, 6), (7, 9)]),
    ([(3, 5)], 4, 9, [(5, 9)]),
    ([(3, 5)], 1, 4, [(1, 3)]),
    ([(3, 5)], 5, 9, [(5, 9)]),
    ([(3, 5)], 1, 3, [(1, 3)]),
    ([(1, 5)], 1, 9, [(5, 9)]),
    ([(3, 5)], 6, 6, [(6, 6)]),
])
def test_a_window_is_what_is_left_of_it(calm, outages, start, end, left):
    history = calm.history()
    history.__dict__["outages"] = outages
    assert history.awake(start, end) == left


@pytest.mark.parametrize("check", ["no_global_stall", "uptime"])
def test_being_down_is_no_stall(down, check):
    assert down.verdict(check).verdict == "failed"
    story = gone_on(down, down.history().merges_between(0, 3)[-1].t + 1e-6)
    assert story.verdict(check).verdict == "passed"


def test_a_fragment_has_its_turn_in_the_time_in_which_it_was_up(down):
    assert down.verdict("fragments_in_turn").verdict == "failed"
    story = gone_on(down, down.history().merges_between(0, 3)[-1].t + 1e-6)
    assert story.verdict("fragments_in_turn").verdict == "passed"


def test_goodput_is_that_of_the_time_in_which_it_was_up(calm, down):
    value = [float(story.verdict("goodput").measured.split("%")[0]) for story in (calm, down, gone_on(down, 3.0))]
    assert value[1] < value[0] - 20
    assert value[2] == pytest.approx(value[0], abs=8)  # what was not merged before it, and made just before it was up


def test_a_stall_before_it_or_after_it_is_one_nevertheless(calm, down):
    assert gone_on(down, 5.0).verdict("no_global_stall").verdict == "failed"  # nothing went on for two seconds before
    after = gone_on(down.silent("merge", 6.3, 8.5), 3.0)
    stall = after.verdict("no_global_stall")
    assert stall.verdict == "failed"
    begin, end = (float(word) for word in stall.evidence[0].replace("s", "").split() if word[0].isdigit())
    assert 6.0 < begin < 6.4
    assert 8.4 < end < 8.8
    assert after.verdict("uptime").verdict == "failed"


def test_it_is_up_again_with_the_first_merge_after_all_its_learners_train(down):
    story = gone_on(down, 3.0)
    assert story.history().outages == [(3.0, story.history().merges_between(3, 99)[0].t)]
    story = story.said(3.1, "harness", "spawn", target="learner-2", incarnation=0)
    assert story.history().outages == [(3.0, story.history().end)]
    story = story.said(7.0, "learner-2", "ready")
    assert story.history().outages == [(3.0, story.history().merges_between(7.0, 99)[0].t)]


def test_what_was_merged_after_the_syncers_part_of_the_checkpoint_is_void_and_no_stall(calm):
    """Learners make their parts later, and what the syncer merged until then is off the tape."""
    late = gone_on(calm.silent("merge", 2, 6), 4.0)
    assert late.verdict("no_global_stall").verdict == "failed"
    cut = late.history().merges_between(0, 2)[-1].t + 1e-6
    told = late.said(cut, "syncer", "checkpoint_begun", checkpoint=3, step=40, nodes=["learner-1"])
    assert told.history().outages == [(cut, told.history().merges_between(6, 99)[0].t)]
    for name in ("no_global_stall", "uptime", "fragments_in_turn"):
        assert told.verdict(name).verdict == "passed"
    another = late.said(cut, "syncer", "checkpoint_begun", checkpoint=2, step=40, nodes=["learner-1"])
    assert another.verdict("no_global_stall").verdict == "failed"


def test_a_machine_that_was_down_was_not_busy(calm):
    still = calm.silent(("merge", "step"), 3, 6)
    assert "too busy" in still.judged().inconclusive
    assert gone_on(still, 3.0).judged().inconclusive == ""


def test_a_fault_while_all_were_down_tells_nothing_of_bystanders(storm):
    span = storm.history().spans[0]
    bystander = next(name for name in storm.plan.cluster.names if name not in span.planned.fault.targets)
    hit = storm.silent("step", span.injected, span.injected + 2, node=bystander)
    assert hit.verdict("blast_radius").verdict == "failed"
    assert gone_on(hit, span.injected + 0.01).verdict("blast_radius").verdict == "passed"


def test_whoever_was_starting_when_all_were_ended_is_back_with_its_successor(storm):
    spawn = next(event for event in storm.all("spawn", "harness")
                 if event.incarnation == 1 and event.target != "syncer")
    name = spawn.target

    def second(parts):
        return [structs.replace(part, incarnation=2) if (part.learner, part.incarnation) == (name, 1) else part
                for part in parts]
    hello = storm.one("hello", "syncer", learner=name, incarnation=1)
    told = gone_on(storm, spawn.t + 0.1).said(spawn.t + 0.2, "harness", "spawn", target=name, incarnation=2)
    told = told.forged(hello, incarnation=2).forged("merge", contributions=second)
    words = told.verdict("reintegration").evidence
    assert any(f"{name}.2 started" in line for line in words)
    assert not any(f"{name}.1 started" in line for line in words)


def down_for(story, start, end):
    """The run went on at `start`, and its last learner trained again at `end`."""
    return gone_on(story, start).said(start + 0.01, "harness", "spawn", target="learner-2", incarnation=0).said(
        end, "learner-2", "ready")


def seconds(text):
    number, unit, *_ = text.split()
    return float(number) / {"s": 1, "ms": 1000}[unit]


def rate(verdict):
    """Merges a second before the first fault."""
    (line,) = [line for line in verdict.evidence if line.startswith("before: ")]
    return float(line.split()[1])


def test_a_rate_of_merges_is_that_of_the_time_in_which_it_was_up(storm):
    first = storm.history().first_fault
    story = down_for(storm, first - 2.0, first - 0.2)
    assert rate(story.verdict("self_healing")) == pytest.approx(rate(storm.verdict("self_healing")), rel=0.2)


def test_a_fault_right_after_it_has_nothing_before_it_to_be_held_against(storm):
    zero, first = storm.history().zero, storm.history().first_fault
    story = down_for(storm, zero + 0.2, first - 0.2)
    assert "too soon" in story.verdict("self_healing").evidence[0]


def test_healing_takes_as_long_as_it_was_up_and_has_not_healed_because_it_was_down(storm):
    last = max(span.ended or span.injected for span in storm.history().spans)
    still = storm.silent("merge", last, last + 4.0)
    assert still.verdict("self_healing").measured.startswith(("4.", "3."))
    assert 0.9 < seconds(down_for(still, last + 1.0, last + 3.0).verdict("self_healing").measured) < 1.5


def test_a_process_that_was_started_with_all_others_is_back_as_soon_as_it_could_be(storm):
    (span,) = [span for span in storm.history().spans if span.planned.fault.kind == "kill"]
    story = down_for(storm, span.ended - 0.1, span.ended + 0.5)
    ((_, up),) = story.history().outages
    before, after = (seconds(each.verdict("reintegration").measured) for each in (storm, story))
    assert up > span.ended + 0.5
    assert after == pytest.approx(max(0.0, before - (up - span.ended)), abs=0.06)
    assert after < before


def test_a_fault_that_all_were_down_before_the_end_of_tells_nothing_of_bystanders(storm):
    span = storm.history().spans[0]
    bystander = next(name for name in storm.plan.cluster.names if name not in span.planned.fault.targets)
    end = span.injected + 2.0
    hit = storm.silent("step", end - 1.0, end, node=bystander).silent("merge", end - 1.0, end)
    assert hit.verdict("blast_radius").verdict == "failed"
    assert gone_on(hit, end - 1.0).verdict("blast_radius").verdict == "passed"
