"""Storms are drawn by the seed alone: independent failures, failures with a history, and those of a trace."""

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.chaos.scenario.problems import ScenarioError
from diloco_chaos.faults import AnyEntry, AnyFault

ADAPTER, SINGLE = TypeAdapter(AnyEntry), TypeAdapter(AnyFault)
LEARNERS = [f"learner-{number}" for number in range(1, 7)]
HISTORY = {"kind": "storm", "targets": LEARNERS, "at": "1s", "for": "500s", "mtbf": "100s", "most_down": 6}


def parts(seed=0, **settings):
    whole = ADAPTER.validate_python(settings)
    return [SINGLE.validate_python(part) for part in whole.parts("f1", random.Random(seed))]


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


def test_failures_with_a_history_come_as_often_as_was_asked_for_and_last_as_long():
    process = {"lemons": 1.0, "burst": "20%", "repair_shape": 0.6}
    found = [one for seed in range(40) for one in parts(seed, **HISTORY, process=process, repair="3s")]
    assert len(found) / 40 == pytest.approx(6 * 500 / 103, rel=0.12)  # some come while a process still starts
    assert all(one.kind == "kill" for one in found)
    assert sum(one.restart_after for one in found) / len(found) == pytest.approx(3.0, rel=0.15)


def test_some_targets_are_worse_than_others():
    worst = [max(Counter(one.targets[0] for one in parts(seed, **HISTORY, process={"lemons": 0.3})).values())
             for seed in range(10)]
    alike = [max(Counter(one.targets[0] for one in parts(seed, **HISTORY, process={})).values()) for seed in range(10)]
    assert sum(worst) > 1.4 * sum(alike)


def test_where_not_all_may_be_down_no_target_is_hit_for_all_others(trace_of_pairs):
    process = {"burst": "60%"}
    for settings in ({"mtbf": "20s", "process": process}, {"trace": trace_of_pairs, "speed": 8640.0}):
        hit = Counter(one.targets[0] for seed in range(60) for one in parts(
            seed, kind="storm", targets=LEARNERS[:2], at="0s", **{"for": "60s"}, **settings))
        assert min(hit.values()) > 0.4 * sum(hit.values())


@pytest.fixture
def trace_of_pairs(tmp_path):
    """Two nodes that always fail together."""
    (tmp_path / "pairs.csv").write_text("\n".join(["node,start,end", *(
        f"n{node},{day},{day + 0.05}" for day in range(1, 8) for node in (0, 1))]))
    return str(tmp_path / "pairs.csv")


def test_several_fail_at_one_moment_unless_a_spacing_is_asked_for():
    process = {"burst": "60%", "burst_size": 3.0}
    found = [one.at for one in parts(1, **HISTORY, process=process)]
    assert max(Counter(found).values()) > 1
    apart = [one.at for one in parts(1, **HISTORY, process=process, spacing="500ms")]
    assert min(later - earlier for earlier, later in pairwise(apart)) >= 0.499


def test_what_happens_may_say_itself_how_long_it_lasts():
    found = parts(2, **HISTORY, process={"relapse": "30%"}, repair="1s",
                  of=[{"pause": {}}, {"kill": {"restart_after": "250ms"}}, {"corrupt_memory": {}}])
    lasts = {kind: {one.expected_duration() for one in found if one.kind == kind} for kind in ("pause", "kill")}
    assert len(lasts["pause"]) > 3
    assert lasts["kill"] == {0.25}


@pytest.fixture
def trace(tmp_path):
    """A week of eight nodes: each is away for a tenth of a day, one after the other."""
    lines = ["node,start,end,class", *(f"n{node},{node * 0.8},{node * 0.8 + 0.1},{kind}" for node, kind in enumerate(
        ["GPU", "NIC", "GPU", "Power Supply", "Parameter Plane Cable", "GPU", "File System", "GPU"])), "n0,6.9,7,GPU"]
    (tmp_path / "faults.csv").write_text("\n".join(lines))
    return str(tmp_path / "faults.csv")


def replayed(trace, **settings):
    return parts(3, **{"kind": "storm", "targets": LEARNERS, "at": "2s", "for": "70s", "trace": trace, "begin": "0s",
                       "speed": 8640.0, "most_down": 6} | settings)


def test_a_trace_comes_over_the_targets_so_many_times_as_fast(trace):
    found = replayed(trace)
    assert [one.at for one in found] == [2.0, 10.0, 18.0, 26.0, 34.0, 42.0, 50.0, 58.0, 71.0]
    assert [one.targets[0] for one in found[:8]] == [*LEARNERS, *LEARNERS[:2]]
    assert [one.kind for one in found] == ["kill", "partition", "kill", "kill", "partition", *["kill"] * 4]
    assert [one.expected_duration() for one in found] == [1.0] * 9


def test_a_table_says_what_happens_for_a_class_and_nothing_lasts_longer_than_was_asked_for(trace):
    found = replayed(trace, longest="600ms", classes={"GPU": "pause", "File System": {"straggler": {"factor": 0.5}}})
    assert [one.kind for one in found] == ["pause", "partition", "pause", "kill", "partition", "pause", "straggler",
                                           "pause", "pause"]
    assert {one.expected_duration() for one in found} == {0.6}


def test_a_trace_begins_anywhere_and_after_its_end_again(trace):
    whole = {round(one.at - 2, 1) for one in replayed(trace, begin="7d")}
    assert whole == {round(one.at - 2, 1) for one in replayed(trace)}
    starts = {tuple(one.at for one in parts(seed, kind="storm", targets=LEARNERS, at="0s", trace=trace, speed=8640.0,
                                            **{"for": "30s"})) for seed in range(5)}
    assert len(starts) == 5


def test_a_trace_may_lie_beside_the_scenario(trace, tmp_path):
    (tmp_path / "mine.yaml").write_text("""diloco_chaos: 1
name: mine
faults:
  - {storm: learners, at: 1s, for: 10s, trace: faults.csv, speed: 8640}
""")
    scenario, _ = load(str(tmp_path / "mine.yaml"))
    assert scenario.faults[0].trace == trace


def test_a_name_that_no_file_can_have_is_no_trace(tmp_path):
    (tmp_path / "mine.yaml").write_text(f"""diloco_chaos: 1
name: mine
faults:
  - {{storm: learners, at: 1s, for: 10s, trace: {"x" * 300}.csv}}
""")
    with pytest.raises(ScenarioError, match="name a CSV or JSON file with outages"):
        load(str(tmp_path / "mine.yaml"))


@pytest.mark.parametrize(("settings", "message"), [
    ({"speed": 3.0}, "speed: it is of a trace: name one"),
    ({"repair": "2s"}, "repair: it is of a process: name one"),
    ({"process": {}, "per": "cluster"}, "per: a process is one of nodes"),
    ({"process": {"relapse": "95%", "relapse_within": "10min"}}, "process: nodes that fail once in 100.0 s"),
    ({"trace": "/nowhere.csv"}, "trace: /nowhere.csv: No such file"),
])
def test_what_contradicts_itself_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        parts(**HISTORY | settings)


@pytest.mark.parametrize(("settings", "message"), [
    ({"mtbf": "3s", "of": [{"kill": {}}]}, "mtbf: the trace says it: leave out one of them; of: the trace says it"),
    ({"classes": {"NICs": "kill"}}, "no outage of the trace is of class 'NICs'; did you mean 'NIC'"),
    ({"classes": {"GPU": "kil"}}, "classes, GPU: 'kil' is no single fault"),
    ({"classes": {"GPU": {"kill": {}, "pause": {}}}}, "classes, GPU: one kind each, not 2"),
    ({"classes": {"GPU": {"pause": {"factor": 1}}}}, "classes, GPU: pause: factor"),
    ({"speed": 1e8}, "a storm of about .* failures; 200 are the most"),
])
def test_a_storm_that_its_trace_contradicts_is_refused(trace, settings, message):
    with pytest.raises(ValueError, match=message):
        replayed(trace, **settings)
