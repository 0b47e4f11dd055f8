"""Byzantine faults: what is sent in a learner's name, and when."""

import pytest


def test_poison_is_sent_while_it_is_felt_in_each_targets_name(cluster, hit, fault):
    one = fault(kind="poison", targets=["learner-1", "learner-2"], content="shape", count=4)
    assert one.inject(hit) == {}
    assert one.observe(hit) == {"sent": 8}
    assert cluster.calls == [("poison", "learner-1", "shape", 4), ("poison", "learner-2", "shape", 4)]


def test_only_what_a_learner_could_never_send_is_poison(fault):
    with pytest.raises(ValueError):
        fault(kind="poison", targets="learner-1", content="kindness")


@pytest.mark.parametrize("about", ["step", "tokens", "position", "version"])
def test_a_lie_is_told_while_it_is_felt_in_each_targets_name(cluster, hit, fault, about):
    one = fault(kind="lie", targets=["learner-1", "learner-2"], about=about)
    assert one.inject(hit) == {}
    assert one.observe(hit) == {"sent": 6}
    assert cluster.calls == [("poison", name, about, 3) for name in ("learner-1", "learner-2")]
