"""What the studies of other learners and other models hold against what."""

import json
import sys
from collections import Counter

import pytest

from benchmarks.tuning import training, tune, variants
from benchmarks.tuning.variants import Row, Study, studied
from diloco_chaos.chaos.evidence.baseline import LossPoint
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig

STUDIES = variants.studies()


def line(*losses, step_s=1.0):
    return [LossPoint(number=number, processed=100 * number, merged=100 * number, t=5 + step_s * number, loss=loss)
            for number, loss in enumerate(losses)]


@pytest.mark.parametrize("name", STUDIES)
def test_every_training_of_a_study_can_be_run(name):
    for row in STUDIES[name].rows.values():
        for alternative in row.alternatives:
            setting = row.setting | alternative
            faults = setting.pop("faults", ())
            assert setting.pop("side") in tune.SIDES
            training.planned(TrainerConfig(**setting), faults=faults)


@pytest.mark.parametrize("name", sorted(set(STUDIES) - {"sizes"}))
def test_the_rows_of_a_study_process_as_many_tokens(name):
    settings = [{key: value for key, value in row.setting.items() if key not in ("side", "faults")}
                for row in STUDIES[name].rows.values()]
    assert len({TrainerConfig(**setting).budget_tokens for setting in settings}) == 1


def test_other_sizes_process_as_many_tokens_for_each_parameter():
    tokens = {row.setting["model"]: TrainerConfig(**{key: value for key, value in row.setting.items() if key != "side"})
              for study in ("sizes", "large") for row in STUDIES[study].rows.values()}
    shares = [config.budget_tokens / sum(fragment.size for fragment in config.fragment_table())
              for config in tokens.values()]
    assert max(shares) < 1.02 * min(shares)


@pytest.mark.parametrize("name", STUDIES)
def test_what_is_held_against_each_other_has_as_many_trials(name):
    study = STUDIES[name]
    first = next(iter(study.rows))
    for row, other in study.against.items():
        assert len(study.rows[row].alternatives) == len(study.rows[other].alternatives)
    if not study.against and len(study.rows[first].alternatives) > 1:
        assert Counter(len(row.alternatives) for row in study.rows.values()).keys() == {
            len(study.rows[first].alternatives)}


def test_only_the_best_alternative_is_reported_and_it_is_chosen_on_other_seeds_and_windows():
    asked = []

    def curves(jobs):
        asked.extend(jobs)
        return [line(3.0, 2.0 + json.loads(job.setting).get("lr", 0) + job.seed / 1000) for job in jobs]

    study = Study("", {"theirs": Row({"side": "synchronous"}),
                       "mine": Row({"side": "decoupled"}, [{"lr": 0.5}, {"lr": 0.25}, {"lr": 1.0}])})
    found = studied(study, curves, seeds=2)
    assert found["mine"]["chosen"] == {"lr": 0.25}
    assert found["mine"]["gap"]["values"] == [0.125, pytest.approx(0.12494, abs=1e-5)]
    tried = [job for job in asked if job.held_out == "tuning"]
    assert {job.seed for job in tried} == {tune.SEED}
    assert len(tried) == 3
    assert {job.seed for job in asked if job.held_out == "reported"} == {0, 1}


def test_time_to_the_same_loss_is_that_to_the_loss_of_whoever_ends_higher():
    slow, quick = line(3.0, 2.5, 2.0), line(3.0, 2.6, 2.2, step_s=0.5)
    study = Study("", {"slow": Row({"side": "a"}), "quick": Row({"side": "b"})})
    found = studied(study, lambda jobs: [slow if "a" in job.setting.split(":")[1] else quick for job in jobs], seeds=1)
    assert found["quick"]["time_to_same_loss"]["mean"] == pytest.approx(1.0 / 1.6)
    assert found["quick"]["seconds"]["mean"] == 1.0


def test_what_was_trained_is_not_trained_again(tmp_path, monkeypatch, capsys):
    setting = {"side": "synchronous", "model": "micro", "corpus": "markov", "batch": 2, "budget": 20,
               "fragments": 4}
    monkeypatch.setattr(variants, "RESULTS", tmp_path / "variants.jsonl")
    monkeypatch.setattr(variants, "studies", lambda: {"short": Study("short", {"only": Row(setting)})})
    monkeypatch.setattr(sys, "argv", ["variants", "--jobs", "1", "--seeds", "1"])
    variants.main()
    once = variants.RESULTS.read_text()
    variants.main()
    assert variants.RESULTS.read_text() == once
    assert len(variants.results()) == len(once.splitlines()) == 1
    out = capsys.readouterr().out
    assert json.loads(out.splitlines()[-1])["short"]["only"]["gap"]["mean"] == 0.0


def test_a_study_that_there_is_not_is_named_with_those_that_there_are(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["variants", "--only", "size"])
    with pytest.raises(SystemExit) as ended:
        variants.main()
    assert ended.value.code == 2
    assert "--only: there is no size; choose from learners" in capsys.readouterr().err
