"""What went into merges is the same, whether it is kept in columns or not."""

from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.record.tape.parts import Parts, PartTable
from recorded_events import a_part, an_event

PARTS = st.lists(st.builds(a_part, learner=st.sampled_from("abc"), incarnation=st.integers(0, 3),
                           first=st.integers(0, 1 << 40), weight=st.floats(0, 9), digest=st.text(max_size=3),
                           members=st.none() | st.integers(0, 9)), max_size=4)


@given(st.lists(st.lists(PARTS, max_size=3), max_size=3))
def test_every_merge_keeps_its_parts(blocks):
    merges = [[an_event(1.0, "syncer", 0, "merge", {"contributions": list(parts)}) for parts in block]
              for block in blocks]
    table = PartTable()
    for block in merges:
        table.take_over(block)
    table.done()
    assert [[list(merge.contributions) for merge in block] for block in merges] == blocks


def test_parts_in_columns_are_a_sequence_like_any_other():
    merge = an_event(1.0, "syncer", 0, "merge", {"contributions": [a_part(learner="a"), a_part(learner="b")]})
    table = PartTable()
    table.take_over([merge])
    table.done()
    assert isinstance(merge.contributions, Parts)
    assert merge.contributions == [a_part(learner="a"), a_part(learner="b")]
    assert merge.contributions != [a_part(learner="a")]
    assert len(merge.contributions) == 2
    assert merge.contributions[1] == a_part(learner="b")
    assert merge.contributions[:1] == [a_part(learner="a")]
