"""What a fleet may be."""

import pytest
from pydantic import ValidationError

from diloco_chaos.harness.fleet.fleet import Fleet


@pytest.mark.parametrize(("given", "why"), [
    ({"chips": 0}, "greater than or equal to 1"), ({"chips": "many"}, "write it like 4096, 150k or 1.2M"),
    ({"chips": "1.5"}, "is not a count"), ({"chips": 100}, "a slice of 256 chips, and 100 chips in all"),
    ({"chips": 1024, "learners": 5}, "5 learners, and 4 slices of 256 chips: a learner needs one at least"),
    ({"quorum": 9}, "quorum 9 of 8 learners"), ({"repair": -1}, "a duration can't be negative"),
    ({"repair": 5}, "has no unit"), ({"mtbf": 0}, "such chips never work"),
    ({"repair": 0}, "nothing is repaired in no time"), ({"shape": 0}, "greater than or equal"),
    ({"restart_shape": 0.2}, "0 (always as long), or 0.3 and more"),
    ({"slice_chips": 1, "chips": "2M"}, "more than the 1000000 that are simulated"),
    ({"checkpoint_cost": "3s"}, "means nothing without checkpoint_every"),
    ({"straggler_speed": 2.0}, "less than or equal to 1"), ({"colour": 1}, "Extra inputs")])
def test_what_can_not_be_is_refused_with_a_sentence(given, why):
    with pytest.raises(ValidationError) as refused:
        Fleet.model_validate(given)
    assert why in str(refused.value)


def test_all_that_can_not_be_is_told_at_once():
    with pytest.raises(ValidationError) as refused:
        Fleet.model_validate({"chips": 1024, "learners": 9, "quorum": 10, "mtbf": 0})
    for why in ("9 learners", "quorum 10", "mtbf 0s"):
        assert why in str(refused.value)


def test_a_slice_fails_as_often_as_its_chips_do():
    fleet = Fleet.model_validate({"chips": 1000, "slice_chips": 100, "learners": 2, "mtbf": "100h", "repair": "15min",
                                  "grow_within": 0})
    assert (fleet.slices, fleet.slice_mtbf) == (10, 3600)
    assert fleet.in_service == pytest.approx(0.8)
    assert fleet.interruptions_per_s == pytest.approx(10 / 4500)


def test_a_slice_that_is_back_waits_for_those_that_return_with_it():
    # A group loses a slice in 100 s: three returns share a growth, one has waited for 200 s, two for 100 s on average.
    fleet = Fleet.model_validate({"mode": "elastic_data_parallel", "chips": 100, "slice_chips": 1, "mtbf": "9999s",
                                  "repair": "1s", "grow_within": "200s"})
    assert fleet.growths == pytest.approx(1 / 3)
    assert fleet.waits_s == pytest.approx((200 + 2 * 100) / 3)
    assert fleet.in_service == pytest.approx(9999 / (10_000 + 400 / 3))


def test_with_a_spare_at_any_time_nobody_is_away():
    fleet = Fleet.model_validate({"mode": "data_parallel", "repair": "15min"})
    assert (fleet.away_s, fleet.in_service) == (0, 1)
    assert Fleet.model_validate({"mode": "data_parallel", "repair": "15min", "spares": 3}).away_s == 900


def test_a_fleet_is_written_and_read_again():
    fleet = Fleet.model_validate({"mode": "elastic_data_parallel", "shape": 0.7, "spread": "1%", "restart": "1.5h"})
    assert Fleet.model_validate_json(fleet.model_dump_json()) == fleet
