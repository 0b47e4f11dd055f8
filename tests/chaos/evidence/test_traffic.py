"""Bytes by direction and purpose: what fewer bits save is seen on the wire."""

import json
from collections import Counter

import pytest
from typer.testing import CliRunner

from diloco_chaos.chaos.cli import application
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.evidence.traffic import Crossed, crossed
from diloco_chaos.chaos.exploration.generate import plan_of
from diloco_chaos.chaos.exploration.strategies import scenario
from diloco_chaos.chaos.runner.simulate import simulate
from diloco_chaos.harness.record.tape.events import Traffic
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig


def run(*faults, **cluster):
    return simulate(plan_of(scenario(**{"learners": 2, "budget": "60 steps", "step_time": "60ms"} | cluster),
                            list(faults), 0))


@pytest.fixture(scope="module")
def large():
    """A real model's fragments, so that frames are more than their headers."""
    return {precision: run(model="micro", corpus="markov", batch=1, fragments=4, gradients=precision,
                           broadcasts=precision).history for precision in ("float32", "bfloat16", "int8", "int4")}


@pytest.mark.parametrize(("precision", "times"), [("bfloat16", 2), ("int8", 32 / 8.25), ("int4", 32 / 4.25)])
def test_answers_and_broadcasts_shrink_by_as_much_as_their_values(large, precision, times):
    whole, fewer = crossed(large["float32"]), crossed(large[precision])
    ratio = whole.received["outer_gradient"] / fewer.received["outer_gradient"]
    assert 0.75 * times < ratio <= times  # the frames' heads stay
    size = sum(fragment.size for fragment in TrainerConfig(model="micro", fragments=4).fragment_table())
    first = 2 * 4 * size  # to both learners, as float32
    saved = (whole.sent["broadcast"] - first) / (fewer.sent["broadcast"] - first)
    assert 0.75 * times < saved <= times
    assert whole.received["report"] == pytest.approx(fewer.received["report"], rel=0.1)


@pytest.mark.parametrize("mode", ["decoupled", "data_parallel"])
def test_what_it_takes_to_begin_can_be_told_apart(mode):
    history = run(mode=mode).history
    begun, *_, ended = history.tape.of(Traffic)[1 if mode == "decoupled" else 0:]
    assert begun.t == history.zero
    assert sum(ended.sent.values()) > sum(begun.sent.values()) > 0


def test_every_incarnation_of_the_syncer_counts():
    history = run({"kill": "syncer", "at": "1s", "restart_after": "300ms"}).history
    last = {event.inc: event for event in history.tape.of(Traffic)}
    assert set(last) == {0, 1}
    assert crossed(history).total == sum(sum(way.values()) for event in last.values()
                                         for way in (event.sent, event.received))


def test_what_a_syncer_did_not_live_to_tell_is_not_held_against_the_tokens_of_that_time():
    history = run({"kill": "syncer", "at": "9s", "restart_after": "300ms"}, budget="400 steps").history
    quiet, killed = crossed(run(budget="400 steps").history), crossed(history)
    assert killed.tokens < history.accounting.processed
    assert killed.a_token == pytest.approx(quiet.a_token, rel=0.1)
    assert quiet.tokens == history.accounting.processed


def test_the_report_and_the_document_tell_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text("diloco_chaos: 1\nname: s\ncluster: {model: quadratic, budget: 40}\n")
    shown = CliRunner().invoke(application(), ["run", "s.yaml", "--on", "simulated", "--verbose"]).stdout
    wire = shown[shown.index("Wire"):]
    assert "bytes a token" in wire
    assert "broadcast" in wire
    done = CliRunner().invoke(application(), ["run", "s.yaml", "--on", "simulated", "--json"])
    told = json.loads(done.stdout)["bytes"]
    assert told["received"]["outer_gradient"] > 0 < told["sent"]["broadcast"]


def test_a_run_that_told_nothing_crossed_nothing():
    history = run().history
    assert crossed(History(history.plan, Tape([]), [])).total == 0


def test_what_the_harness_asks_through_the_links_is_told_but_is_no_traffic_of_training():
    asked = Crossed(Counter(answer=100, probe=40), Counter(broadcast=60, echo=4000), tokens=16)
    assert (asked.total, asked.a_token) == (160, 10)
    assert "echo" in asked.purposes
