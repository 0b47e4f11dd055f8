"""Runs of before: what got slower since, and what can be no baseline."""

import json
import re

import pytest

from diloco_chaos.chaos.report.comparison.baseline import BaselineError, baseline_of, must_be_same, slower
from diloco_chaos.chaos.report.comparison.measured import way_of
from diloco_chaos.chaos.report.comparison.perform import held_against
from diloco_chaos.chaos.report.comparison.saved import document
from diloco_chaos.chaos.report.comparison.variants import faults_of, settings_of
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from two_ways import compared, quick_and_slow, run

SCENARIO = """
diloco_chaos: 1
name: job
cluster: {model: quadratic, learners: 3, budget: 150 steps}
faults:
  - {kill: learner-1, at: 2s, restart_after: 2s}
"""


@pytest.fixture
def plan():
    return freeze(parse(SCENARIO), 0)


def kept(folder, runs, **more):
    """A comparison's file, whose first way has these runs."""
    comparison = compared(runs, runs)
    content = json.loads(json.dumps(document(comparison)))
    content["ways"] = [way | {"trainer": "decoupled-diloco", "unit": "steps"} | more for way in content["ways"]]
    (folder / "compare.json").write_text(json.dumps(content))
    return folder


def test_a_phase_that_got_slower_by_more_than_noise_and_share_has_a_sentence():
    before, after = (way.runs for way in quick_and_slow().ways[::-1])
    (pairing,) = compared(before, after).pairings
    (line,) = slower(pairing, 0.2)
    assert line.startswith("noticed got slower: 60.0 s after the fault, 5.0 s in the baseline (+55.0 s, 95% interval ")
    assert slower(pairing, 20.0) == []


def test_what_got_quicker_and_what_only_noise_moved_has_none():
    assert slower(quick_and_slow().pairings[0], 0.2) == []


def test_a_phase_that_does_not_end_any_more_has_a_sentence():
    ends, never = ([run(seed, {"noticed": said}) for seed in range(8)] for said in (1.0, "never"))
    assert slower(compared(ends, never).pairings[0], 0.2) == [
        "noticed at all: 0 of 8 runs, 8 of 8 in the baseline: less often by more than chance"]


def test_a_file_of_an_earlier_comparison_is_a_baseline(tmp_path, plan):
    folder = kept(tmp_path, [run(seed, {"noticed": 1.0}) for seed in (3, 1, 2)])
    way = baseline_of(folder, plan, "job.yaml", "local", [])
    assert (way.name, way.baseline, [each.seed for each in way.runs]) == ("baseline", True, [1, 2, 3])
    assert baseline_of(folder / "compare.json", plan, "job.yaml", "local", [1, 3]).runs == [way.runs[0], way.runs[2]]


@pytest.mark.parametrize(("runs", "more", "seeds", "message"), [
    ((0, 1), {"scenario": "other"}, [],
     "is of scenario other, not of job: make one with `diloco-chaos run job.yaml --repeat 5 "),
    ((0, 1), {"trainer": "commands"}, [],
     "was made with trainer commands, not with decoupled-diloco: make one with "),
    ((0, 1), {"unit": "rounds"}, [], "counts lost work in rounds, and job.yaml in steps: make one with `"),
    ((0,), {}, [], "has one run only, which tells nothing of the noise: make one with "),
    ((0, 1), {}, [1, 7], "has no run of seed 7: it has 0 and 1; "),
    ((0, 1), {"baseline": True}, [], "none of its ways has runs of its own")])
def test_what_is_no_baseline_gets_a_sentence(tmp_path, plan, runs, more, seeds, message):
    folder = kept(tmp_path, [run(seed, {}) for seed in runs], **more)
    with pytest.raises(BaselineError) as error:
        baseline_of(folder, plan, "job.yaml", "local", seeds)
    assert message in str(error.value)


@pytest.mark.parametrize(("content", "why"), [
    (b"", "it is empty"), (b" \n", "it is empty"), (b"{\n ways", "line 2 is no JSON"), (b"\xff\xfe", "it is no text"),
    (b"{}", "it has no 'ways'"), (b'{"ways": []}', "it has no 'place'"), (b"[]", "its JSON is something else"),
    (b'{"ways": 1}', "its JSON is something else"), (b'{"ways": [{}]}', "ways: name: Field required")])
def test_a_file_that_is_no_comparison_gets_a_sentence(tmp_path, plan, content, why):
    (tmp_path / "compare.json").write_bytes(content)
    with pytest.raises(BaselineError) as error:
        baseline_of(tmp_path, plan, "job.yaml", "local", [])
    assert f"no comparison: {why}; `diloco-chaos compare` writes one as compare.json" in str(error.value)


def test_runs_that_never_began_to_train_are_no_baseline(tmp_path, plan):
    dead = [run(seed, {}).model_copy(update={"figures": {"longest stall": None}, "verdict": "FAILED",
                                             "why": "no_unplanned_exit"}) for seed in range(3)]
    with pytest.raises(BaselineError, match=r"began to train, .*: seed 0: no_unplanned_exit; make "):
        baseline_of(kept(tmp_path, dead), plan, "job.yaml", "local", [])
    one = [*dead, run(3, {})]
    assert len(baseline_of(kept(tmp_path, one), plan, "job.yaml", "local", []).runs) == 4


def test_settings_that_differ_from_the_baselines_are_told(tmp_path, plan):
    runs = [run(seed, {"noticed": 1.0}) for seed in range(2)]
    folder = kept(tmp_path, runs, settings=settings_of(plan) | {"cluster.quorum": 2, "deadline": 7})
    before = baseline_of(folder, plan, "job.yaml", "local", [])
    comparison = held_against(before, [way_of("now", plan, runs)], 0.2, "local", 0)
    assert comparison.pairings[0].second.says == ["cluster.quorum 2 → 1", "deadline 7 → 120.0s"]
    old = baseline_of(kept(tmp_path, runs, settings={}), plan, "job.yaml", "local", [])
    assert held_against(old, [way_of("now", plan, runs)], 0.2, "local", 0).pairings[0].second.says == []


def test_no_folder_and_one_without_runs_get_a_sentence(tmp_path, plan):
    with pytest.raises(BaselineError, match=re.escape(
            "no such folder: make one with `diloco-chaos run 'my job.yaml' --repeat 5 --on simulated --runs-dir ")):
        baseline_of(tmp_path / "nowhere", plan, "my job.yaml", "simulated", [])
    with pytest.raises(BaselineError, match=r"no such file: make one with .* --runs-dir baseline`, and"):
        baseline_of(tmp_path / "compare.json", plan, "job.yaml", "local", [])
    with pytest.raises(BaselineError, match="has no runs, and none of scenario job"):
        baseline_of(tmp_path, plan, "job.yaml", "local", [])


def test_other_faults_than_the_baselines_are_not_compared(tmp_path, plan):
    own = run(0, {}).model_copy(update={"faults": faults_of(plan)})
    way = baseline_of(kept(tmp_path, [own, own.model_copy(update={"seed": 1})]), plan, "job.yaml", "local", [])
    must_be_same(tmp_path, way, [plan, plan])
    other = freeze(parse(SCENARIO.replace("at: 2s", "at: 3s")), 0)
    with pytest.raises(BaselineError, match="and seed 0 can't be compared: they have other faults: "):
        must_be_same(tmp_path, way, [other, other])
