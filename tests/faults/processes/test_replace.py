"""A node that another one takes the place of: what is asked of the cluster, and what can't be asked."""

import pytest

from diloco_chaos.harness.places.base import NodeSpec


def test_the_one_is_ended_for_good_and_the_other_is_started(cluster, hit, fault):
    one = fault(kind="replace", targets="w-2", **{"with": "w-5"})
    one.inject(hit)
    assert cluster.calls == [("retire", "w-2"), ("join", NodeSpec("w-5", ()))]
    assert (one.joining(), one.expected_duration()) == (("w-5",), None)
    assert one.describe() == "w-5 takes the place of w-2"


@pytest.mark.parametrize("settings", [
    {"targets": "w-2"}, {"targets": ["w-1", "w-2"], "with": "w-5"}, {"targets": "w-2", "with": "w-2"}])
def test_one_takes_the_place_of_one_other(fault, settings):
    with pytest.raises(ValueError, match=r"in its place|its own place"):
        fault(kind="replace", **settings)
