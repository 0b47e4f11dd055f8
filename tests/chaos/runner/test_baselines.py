"""What the cache of references has is what was written there, or it is trained again."""

import json
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from diloco_chaos.chaos.evidence.run_folder import RunFolder
from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.runner import baselines, reference_beside
from diloco_chaos.chaos.runner.backends import named
from diloco_chaos.chaos.runner.baselines import NoReferenceError
from diloco_chaos.chaos.runner.run import run_plan
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze, save
from diloco_chaos.harness.record.storage.checkpoint import CheckpointError

PLAN = freeze(parse("diloco_chaos: 1\nname: mine\n"
                    "cluster: {model: quadratic, budget: 80 steps, warm_start: 20 steps, warmup: 4}\n"
                    "checks: {loss_parity: {against_baseline: 5%, against_synchronous: 90%}}\n"), 0)


class Heard(NullAudience):
    def __init__(self):
        self.lines = []

    def say(self, text):
        self.lines.append(text)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the plan, and gives (what was said of references, what came out, the cache)."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache = tmp_path / "cache" / "diloco-chaos" / "references"

    def perform():
        heard = Heard()
        result = run_plan(PLAN, tmp_path / "runs", heard, named("simulated"))
        return [line for line in heard.lines if "reference" in line], result, cache
    perform()
    return perform


def folder(cache, kind):
    return next(path for path in cache.iterdir() if path.name.startswith(kind) and path.is_dir())


def test_what_is_whole_is_taken_from_the_cache(run):
    assert run()[0] == ["synchronous reference: cached", "fault-free reference: cached"]


def lied(path):
    told = json.loads((path / "reference.json").read_text())
    told["reference"]["curve"][-1]["loss"] = 9.9
    (path / "reference.json").write_text(json.dumps(told))


def cut_off(path):
    text = (path / "reference.json").read_text()
    (path / "reference.json").write_text(text[:len(text) // 2])


def earlier(path):
    told = json.loads((path / "reference.json").read_text())
    (path / "reference.json").write_text(json.dumps(told["reference"]))


def other_start(path):
    data = bytearray((path / "warm.safetensors").read_bytes())
    data[-1] ^= 1
    (path / "warm.safetensors").write_bytes(data)


@pytest.mark.parametrize(("damage", "why"), [
    (lied, "it is not what was written"), (cut_off, "it has no curve that can be read"),
    (earlier, "it has no curve that can be read"), (other_start, "it is not what was written")])
def test_what_is_damaged_is_told_and_trained_again(run, damage, why):
    _, before, cache = run()
    damage(folder(cache, "synchronous"))
    said, after, _ = run()
    assert said[0] == f"synchronous reference: what the cache has is damaged ({why}): training it again"
    assert said[1] == "fault-free reference: cached"
    assert after.history.references == before.history.references
    assert after.judgement == before.judgement
    assert run()[0][0] == "synchronous reference: cached"


def test_a_cache_that_cant_be_written_can_be_read(run, monkeypatch):
    monkeypatch.setattr(baselines, "_locked", lambda path: pytest.fail("there is nothing to write"))
    assert run()[0] == ["synchronous reference: cached", "fault-free reference: cached"]


def test_a_cache_that_cant_be_written_is_named_where_something_is_missing(run, monkeypatch):
    _, _, cache = run()

    def forbidden(path):
        raise PermissionError(13, "Permission denied", str(path))
    lied(folder(cache, "fault-free"))
    monkeypatch.setattr(baselines, "_locked", forbidden)
    with pytest.raises(NoReferenceError, match="can't be kept there: Permission denied; set XDG_CACHE_HOME"):
        run()


def test_who_waited_for_another_harness_takes_what_that_one_has_trained(run, monkeypatch):
    _, _, cache = run()
    whole = (folder(cache, "fault-free") / "reference.json").read_text()
    lied(folder(cache, "fault-free"))

    def waited(path):
        (folder(cache, "fault-free") / "reference.json").write_text(whole)
        return nullcontext()
    monkeypatch.setattr(baselines, "_locked", waited)
    monkeypatch.setattr(baselines.References, "_train", lambda *_: pytest.fail("the other one has"))
    run()


def test_a_process_that_has_torch_evaluates_itself_and_keeps_the_number_of_its_threads(tmp_path, monkeypatch):
    import torch

    def evaluate(path, tell):
        torch.set_num_threads(before + 1)
        (path / "curve.json").write_text('{"curve": []}')
        tell(1, 1)
    before, heard = torch.get_num_threads(), []
    monkeypatch.setattr(baselines, "evaluate", evaluate)
    save(PLAN, tmp_path / "plan.json")
    assert baselines.loss_curve(RunFolder(tmp_path), lambda *counts: heard.append(counts)) == ()
    assert (torch.get_num_threads(), heard) == (before, [(1, 1)])


def test_snapshots_that_cant_be_evaluated_are_no_reference(tmp_path, monkeypatch):
    def evaluate(path, tell):
        raise CheckpointError("000.safetensors: its digest is another")
    monkeypatch.setattr(baselines, "evaluate", evaluate)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(get_num_threads=lambda: 1, set_num_threads=print))
    save(PLAN, tmp_path / "plan.json")
    with pytest.raises(NoReferenceError, match=r"could not be evaluated: 000\.safetensors: its digest"):
        baselines.loss_curve(RunFolder(tmp_path))


SMALL = freeze(parse("diloco_chaos: 1\nname: mine\n"
                     "cluster: {model: quadratic, budget: 80 steps, warm_start: 20 steps, warmup: 4, step_time: 20ms}\n"
                     "checks: {loss_parity: {against_baseline: 5%, against_synchronous: 90%}}\n"), 0)


@pytest.fixture
def real(tmp_path, monkeypatch):
    """Runs a plan in processes; (what was said of references, the cache)."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def perform():
        heard = Heard()
        run_plan(SMALL, tmp_path / "runs", heard)
        return [line for line in heard.lines if "reference" in line], tmp_path / "cache" / "diloco-chaos" / "references"
    return perform


def test_two_references_that_are_missing_are_trained_side_by_side_and_taken_from_the_cache_then(real):
    cached = ["synchronous reference: cached", "fault-free reference: cached"]
    said, cache = real()
    assert said == ["synchronous and fault-free reference: training them once, side by side", *cached]
    assert sorted(path.name.partition("-")[0] for path in cache.iterdir() if path.is_dir()) == ["fault", "synchronous"]
    assert real()[0] == cached


def test_a_synchronous_reference_that_fails_beside_the_other_is_told_with_its_reason(real, monkeypatch):
    monkeypatch.setattr(reference_beside, "__name__", "no_such_module")
    with pytest.raises(NoReferenceError, match="No module named no_such_module"):
        real()


def test_who_is_interrupted_leaves_none_of_two_references_half_made(real, monkeypatch, tmp_path):
    def interrupted(*_):
        raise KeyboardInterrupt
    monkeypatch.setattr(baselines.References, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        real()
    assert list((tmp_path / "cache" / "diloco-chaos" / "references").glob("*.work")) == []
