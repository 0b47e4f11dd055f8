"""An adversary with a pen: nothing can be taken away or altered so that a broken promise passes or a check crashes."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from diloco_chaos.harness.record.tape.events import KINDS
from forged_runs import ALWAYS
from recorded_events import an_event

# Not shrunk: the forged event is named, and a smaller one would tell no more.
OFTEN = settings(max_examples=50, phases=[Phase.explicit, Phase.reuse, Phase.generate])
SELDOM = settings(OFTEN, max_examples=12)


@OFTEN
@given(data=st.data())
def test_without_any_one_event_no_check_crashes(brief, data):
    gone = data.draw(st.sampled_from(brief.events))
    judgement = brief.without(gone).judged()
    crashed = [verdict for verdict in judgement.checks if verdict.measured == "the check crashed"]
    assert not crashed, (gone, crashed)


@SELDOM
@given(data=st.data())
def test_without_several_kinds_of_events_no_check_crashes(storm, data):
    kinds = sorted({event.event for event in storm.events})
    gone = data.draw(st.sets(st.sampled_from(kinds), min_size=1))
    node = data.draw(st.sampled_from([None, "syncer", "harness", "learner-1"]))
    story = storm.without(lambda event: event.event in gone and node in (None, event.node))
    assert "the check crashed" not in {verdict.measured for verdict in story.judged().checks}


@OFTEN
@given(data=st.data())
def test_without_any_one_other_event_a_step_merged_twice_does_not_pass(brief, data):
    first = brief.all("merge")[4]
    second = next(merge for merge in brief.all("merge", fragment=first.fragment)
                  if merge.version == first.version + 1)
    forged = brief.part(second, first=first.contributions[0].first)
    assert forged.verdict("exactly_once").verdict == "failed"
    twice = [event for event in forged.events if event.event == "merge"
             and (event.fragment, event.version) in ((first.fragment, first.version),
                                                           (second.fragment, second.version))]
    gone = data.draw(st.sampled_from([event for event in forged.events if event not in twice]))
    assert forged.without(gone).verdict("exactly_once").verdict != "passed", gone


@SELDOM
@given(data=st.data())
def test_without_any_one_event_of_the_nodes_what_failed_does_not_pass(storm, data):
    """Losing evidence may take a failure's word away, but never turns it into a pass."""
    story = storm.silent("merge", 16, 18).forged(storm.all("received")[200], digest="0")
    before, culprit = story.describe(), story.one("received", digest="0")
    gone = data.draw(st.sampled_from([event for event in story.events if event is not culprit and event.event in (
        "merge", "received", "outer_gradient", "step", "hello", "lost")]))
    after = story.without(gone).describe()
    assert [name for name, word in before.items() if word == "failed" and after[name] == "passed"] == []


def _merges(story, enough=0.1):
    """Merges whose results were received before the end."""
    return [merge for merge in story.all("merge") if merge.t < story.end - enough]


@pytest.mark.parametrize("field", ["digest", "version", "fragment"])
@OFTEN
@given(data=st.data())
def test_any_merge_whose_result_is_altered_is_found(brief, field, data):
    merge = data.draw(st.sampled_from(_merges(brief)))
    old = getattr(merge, field)
    new = (old[:-1] + ("0" if old[-1] != "0" else "1") if field == "digest" else
           data.draw(st.integers(0, 20 if field == "version" else 3).filter(lambda value: value != old)))
    assert "passed" not in _words(brief.forged(merge, **{field: new}), "replica_consistency")


@pytest.mark.parametrize("field", ["weight", "steps", "tokens"])
@OFTEN
@given(data=st.data())
def test_any_counter_of_any_contribution_that_is_altered_is_found(brief, field, data):
    merge = data.draw(st.sampled_from(brief.all("merge")))
    index = data.draw(st.integers(0, len(merge.contributions) - 1))
    old = getattr(merge.contributions[index], field)
    new = data.draw(st.integers(0, 10_000).filter(lambda value: value != old))
    assert _words(brief.part(merge, index, **{field: new}), "weights_correct") == ["failed"]


@pytest.mark.parametrize("field", ["first", "last", "base"])
@OFTEN
@given(data=st.data())
def test_any_place_of_any_contribution_that_is_altered_is_found(brief, field, data):
    merge = data.draw(st.sampled_from(brief.all("merge")))
    index = data.draw(st.integers(0, len(merge.contributions) - 1))
    old = getattr(merge.contributions[index], field)
    new = data.draw(st.integers(0, 200).filter(lambda value: value != old))
    assert "failed" in brief.part(merge, index, **{field: new}).describe().values()


@OFTEN
@given(data=st.data())
def test_any_contribution_whose_bytes_are_not_what_the_learner_sent_is_found(brief, data):
    merge = data.draw(st.sampled_from(brief.all("merge")))
    index = data.draw(st.integers(0, len(merge.contributions) - 1))
    assert "failed" in brief.part(merge, index, digest=lambda digest: digest[::-1]).describe().values()


@OFTEN
@given(data=st.data())
def test_a_contribution_under_another_name_or_number_is_found(brief, data):
    merge = data.draw(st.sampled_from(brief.all("merge")))
    index = data.draw(st.integers(0, len(merge.contributions) - 1))
    changes = data.draw(st.one_of(
        st.fixed_dictionaries({"incarnation": st.integers(1, 5)}),
        st.fixed_dictionaries({"learner": st.sampled_from(["learner-9", "syncer", ""])}),
        st.fixed_dictionaries({"learner": st.just(merge.contributions[index - 1].learner)})))
    if changes == {"learner": merge.contributions[index].learner}:
        return
    assert "failed" in brief.part(merge, index, **changes).describe().values()


@OFTEN
@given(data=st.data())
def test_any_receipt_of_other_bytes_is_found(brief, data):
    receipt = data.draw(st.sampled_from([event for event in brief.all("received") if event.t <= brief.end]))
    assert _words(brief.forged(receipt, digest="0" * 32), "replica_consistency") == ["failed"]


@OFTEN
@given(data=st.data())
def test_a_merge_reported_twice_is_found_whatever_the_second_report_says(brief, data):
    merge = data.draw(st.sampled_from(brief.all("merge")))
    later = data.draw(st.floats(0, 3, allow_nan=False))
    changes = data.draw(st.fixed_dictionaries({}, optional={"digest": st.just("0" * 32), "round": st.integers(1, 99)}))
    story = brief.said(min(merge.t + later, brief.end), "syncer", "merge", **dict(merge.payload()) | changes)
    assert "failed" in story.describe().values()


@OFTEN
@given(node=st.sampled_from(["syncer", "learner-1", "learner-3", "harness"]), t=st.floats(0, 2.4, allow_nan=False))
def test_a_tape_that_is_cut_off_anywhere_passes_nothing_and_breaks_no_promise(brief, node, t):
    judgement = brief.torn_at(t, node).judged()
    assert judgement.gaps
    assert judgement.exit_code != 0
    assert "passed" not in {verdict.verdict for verdict in judgement.checks}
    assert "failed" not in {verdict.verdict for verdict in judgement.checks if verdict.name in ALWAYS}
    assert "the check crashed" not in {verdict.measured for verdict in judgement.checks}


@OFTEN
@given(t=st.floats(-5, 20, allow_nan=False), node=st.sampled_from(["learner-1", "syncer", "harness", "stranger"]),
       name=st.sampled_from(["started", "failpoint", "upload", "noise"]))
def test_an_event_that_no_check_knows_changes_nothing(brief, t, node, name):
    # docs/evidence.md promises that a trainer may record more than the contract asks for.
    extra = an_event(min(max(t, 0.0), brief.end), node, 0, name, {} if name in KINDS else {"x": 1})
    assert brief.plus(extra).describe() == brief.describe()


def _words(story, name):
    return [story.verdict(name).verdict]
