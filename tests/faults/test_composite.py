"""Composites are taken apart into single faults, by the seed alone."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from diloco_chaos.faults import AnyEntry, AnyFault

ADAPTER, SINGLE = TypeAdapter(AnyEntry), TypeAdapter(AnyFault)
LEARNERS = [f"learner-{number}" for number in range(1, 7)]


def parts(seed=0, **settings):
    whole = ADAPTER.validate_python(settings)
    return [SINGLE.validate_python(part) for part in whole.parts("f1", random.Random(seed))]


def test_a_flapping_link_is_a_row_of_partitions_each_after_the_one_before():
    found = parts(kind="flapping", targets="learner-2", at="5s", down="400ms", up="600ms", **{"for": "3s"})
    assert [one.kind for one in found] == ["partition"] * 3
    assert found[0].at == 5.0
    assert [(one.after.fault, one.after.wait) for one in found[1:]] == [("f1.1", 0.6), ("f1.2", 0.6)]
    assert all(one.duration == 0.4 for one in found)


def test_a_crash_loop_is_a_row_of_kills_each_soon_after_the_start():
    found = parts(kind="crash_loop", targets="learner-2", when={"node": "learner-2", "event": "step"}, times=3,
                  restart_after="500ms", alive="800ms")
    assert [one.kind for one in found] == ["kill"] * 3
    assert found[0].when.event == "step"
    assert [one.after.wait for one in found[1:]] == [0.8, 0.8]
    assert all(one.restart_after == 0.5 for one in found)


def test_the_same_seed_brings_the_same_storm_and_another_one_another():
    storm = {"kind": "storm", "targets": LEARNERS, "at": "1s", "for": "60s", "mtbf": "20s"}
    assert parts(3, **storm) == parts(3, **storm)
    assert parts(3, **storm) != parts(4, **storm)


@given(st.integers(0, 2**32), st.floats(3, 60), st.sampled_from(["node", "cluster"]), st.integers(1, 6),
       st.floats(0, 5))
def test_a_storm_keeps_its_spacing_and_never_has_too_many_down(seed, mtbf, per, most, spacing):
    found = parts(seed, kind="storm", targets=LEARNERS, at="2s", mtbf=f"{mtbf!r}s", per=per, most_down=most,
                  spacing=f"{spacing!r}s", of=[{"kill": {"restart_after": "2s"}}, {"pause": {"for": "1s"}}],
                  **{"for": "60s"})
    times = [one.at for one in found]
    assert times == sorted(times)
    assert all(2.0 <= at < 62.001 for at in times)
    assert all(later - earlier >= spacing - 0.0011 for earlier, later in pairwise(times))
    for one in found:
        down = [other for other in found if other.at <= one.at < other.at + other.expected_duration()]
        assert len(down) <= most
        assert sum(one.targets == other.targets for other in down) == 1


RACKS = {"rack-1": (*LEARNERS[:2],), "rack-2": (*LEARNERS[2:4],), "beyond": (LEARNERS[4], "syncer")}
STORM = {"kind": "storm", "targets": LEARNERS, "at": "1s", "for": "300s", "mtbf": "100s", "domains": RACKS}


@given(st.integers(0, 2**32), st.floats(0, 1), st.sampled_from(["node", "cluster"]), st.integers(1, 6))
def test_a_storm_takes_single_nodes_or_whole_domains_and_never_too_many(seed, whole, per, most):
    found = parts(seed, **STORM | {"mtbf": "20s", "for": "60s", "per": per}, most_down=most, whole_domains=whole)
    for one in found:
        assert len(one.targets) == 1 or one.targets in (RACKS["rack-1"], RACKS["rack-2"])
        down = [name for other in found if other.at <= one.at < other.at + other.expected_duration()
                for name in other.targets]
        assert len(down) == len(set(down)) <= most


def test_of_a_storms_failures_the_share_that_was_asked_for_takes_whole_domains():
    found = [one for seed in range(40) for one in parts(
        seed, **STORM, spacing="0s", whole_domains="20%", of=[{"pause": {"for": "1ms"}}])]
    in_racks = [one for one in found if set(one.targets) & {*RACKS["rack-1"], *RACKS["rack-2"]}]
    assert 0.15 < sum(len(one.targets) == 2 for one in in_racks) / len(in_racks) < 0.25
    assert len(in_racks) > 400


def test_with_all_of_them_no_node_of_a_domain_fails_alone_and_without_the_setting_a_storm_is_what_it_was():
    assert all(len(one.targets) == 2 for one in parts(3, **STORM, whole_domains=1.0)
               if one.targets[0] not in LEARNERS[4:])
    assert parts(3, **STORM) == parts(3, **STORM | {"domains": {}})


def test_a_storm_comes_as_often_as_its_mean_time_between_failures_says():
    counts = [len(parts(seed, kind="storm", targets=LEARNERS[:1], at="0s", mtbf="10s", spacing="0s", most_down=1,
                        of=[{"pause": {"for": "1ms"}}], **{"for": "1000s"})) for seed in range(30)]
    assert 95 < sum(counts) / 30 < 105  # 100 expected, standard deviation of the mean 1.8


@pytest.mark.parametrize(("of", "message"), [
    ([{"kil": {}}], "no single fault"), ([{"storm": {}}], "no single fault"), ([{}], "one kind each"),
    ([{"pause": {}}], "say for how long"), ([{"kill": "learner-1"}], "are a mapping"),
    ([{"kill": {"factor": 1}}], "Extra inputs"),
])
def test_a_storm_of_what_can_not_happen_is_refused(of, message):
    with pytest.raises(ValueError, match=message):
        parts(kind="storm", targets=LEARNERS, at="0s", of=of, **{"for": "10s"})
