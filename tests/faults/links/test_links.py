"""Faults of links: put on in the right directions, observed through probes, taken off."""

import dataclasses

import pytest
from pydantic import ValidationError

from diloco_chaos.chaos.runner.backends import named
from diloco_chaos.chaos.runner.simulate import simulate
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.faults.links.base import _probable, _sample
from diloco_chaos.harness.links.probe import Sounding
from diloco_chaos.harness.record.tape.events import Observed

KINDS = {
    "latency": ({"delay": "20ms", "jitter": "5ms", "rate": "1MB/s"}, "delay_s", 0.02),
    "bandwidth": ({"rate": "2MB/s"}, "rate_bytes_per_s", 2e6),
    "slow_close": ({"delay": "200ms"}, "close_s", 0.4),
    "timeout": ({}, "silent_s", 1.0),
    "reset": ({"reset_after": "30ms"}, "reset_s", 0.03),
    "slicer": ({"size": 1000, "delay": "2ms"}, "pause_s", 0.002),
    "limit_data": ({"size": 4000}, "bytes", 4000),
}


def on_link(fault, kind, **more):
    return fault(kind=kind, targets="learner-3", **{"for": "5s"}, **KINDS[kind][0], **more)


@pytest.mark.parametrize("kind", KINDS)
def test_a_toxic_is_put_on_both_directions_felt_and_taken_off(cluster, hit, fault, kind):
    one = on_link(fault, kind)
    one.inject(hit)
    types = {(toxic.type, toxic.stream) for toxic in cluster.toxics["learner-3"].values()}
    assert {(one.toxic, "upstream"), (one.toxic, "downstream")} <= types
    observed = one.observe(hit)
    assert observed["ok"] is True, observed
    assert observed[one.measures] == pytest.approx(KINDS[kind][2], rel=0.1)
    one.undo(hit)
    assert cluster.toxics["learner-3"] == {}
    assert one.observe_undone(hit) == {"back": True}


@pytest.mark.parametrize("direction", ["upstream", "downstream"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_toxic_can_be_put_on_one_direction_and_is_felt_there(cluster, hit, fault, kind, direction):
    one = on_link(fault, kind, direction=direction)
    one.inject(hit)
    assert {toxic.stream for toxic in cluster.toxics["learner-3"].values()} == {direction}
    observed = one.observe(hit)
    assert observed["ok"] is True, observed


@pytest.mark.parametrize("kind", KINDS)
def test_a_toxic_that_does_nothing_is_not_felt(cluster, hit, fault, kind):
    one = on_link(fault, kind)
    cluster.degrade = lambda link, toxics: None
    one.inject(hit)
    assert one.observe(hit)["ok"] is False


@pytest.mark.parametrize("kind", KINDS)
def test_two_faults_of_one_kind_on_a_link_do_not_undo_each_other(cluster, hit, fault, kind):
    one, other = on_link(fault, kind), on_link(fault, kind)
    one.inject(hit)
    other.inject(dataclasses.replace(hit, id="f2"))
    one.undo(hit)
    assert all(name.startswith("f2-") for name in cluster.toxics["learner-3"])
    assert cluster.toxics["learner-3"]


def test_a_toxic_that_hits_half_of_the_connections_is_felt_by_their_share(cluster, hit, fault):
    one = on_link(fault, "latency", toxicity=0.5)
    one.inject(hit)
    assert {toxic.toxicity for toxic in cluster.toxics["learner-3"].values()} == {0.5}
    assert one.observe(hit)["ok"] is False  # every single one was hit: that is not what was asked for
    through, turns = cluster.probe, iter(range(1000))
    quiet = cluster.__class__().probe
    sometimes = dataclasses.replace(hit, probe=lambda link, *more, **options: (
        through if next(turns) % 2 else quiet)(link, *more, **options))
    observed = one.observe(sometimes)
    assert observed["ok"] is True
    assert observed["hit"] == "8 of 16"


@pytest.mark.parametrize("kind", KINDS)
def test_all_toxics_of_a_fault_are_drawn_together_for_its_directions(cluster, hit, fault, kind):
    on_link(fault, kind, toxicity=0.3).inject(hit)
    assert {(toxic.draw, toxic.ways, toxic.toxicity) for toxic in cluster.toxics["learner-3"].values()} == {
        (hit.id, 2, 0.3)}


@pytest.mark.parametrize(("share", "hits", "ok"), [(0.05, 7, True), (0.05, 0, False), (0.05, 18, False),
                                                   (0.3, 6, True), (0.3, 0, False), (0.3, 14, False)])
def test_a_share_is_felt_where_so_many_hits_are_probable(share, hits, ok):
    assert _probable(hits, _sample(share), share) is ok


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.95])
def test_so_many_probes_are_made_that_hardly_ever_none_is_hit(share):
    assert (1 - share) ** _sample(share) <= 1e-3


def test_where_directions_are_drawn_apart_a_probe_of_one_is_hit_as_seldom_as_that_one(cluster, hit, fault):
    thin, far = (on_link(fault, kind, toxicity=0.5) for kind in ("bandwidth", "latency"))
    assert thin._share_hit(hit) == far._share_hit(hit) == 0.5
    cluster.once = False
    assert thin._share_hit(hit) == pytest.approx(1 - 0.5 ** 0.5)
    assert far._share_hit(hit) == 0.5, "what is late one way is late"


def test_a_probe_that_was_late_one_way_tells_of_that_way(fault):
    far = fault(kind="latency", targets="learner-3", delay="20ms", toxicity=0.5, **{"for": "3s"})
    assert far.measured(Sounding("answered", 0.021), 0.001) == pytest.approx(0.02)
    assert far.measured(Sounding("answered", 0.041), 0.001) == pytest.approx(0.02)


def test_how_connections_from_before_a_reset_ended_is_told(fault):
    reset = fault(kind="reset", targets="learner-3", **{"for": "3s"})
    told = Told({"reset_s": 0.001, "ok": True, "connections_before": 2.0})
    assert reset.took_effect(None, told).observed == "broken after 1.0 ms; 2 from before ended without a reset"


class Told:
    """Implements `Injection`, as far as it is asked."""

    def __init__(self, observed):
        self.observed = observed


def test_the_syncer_as_a_target_means_all_links(cluster, hit, fault):
    one = fault(kind="partition", targets="syncer", **{"for": "3s"})
    one.inject(hit)
    assert cluster.down == {"learner-1", "learner-2", "learner-3"}
    one.undo(hit)
    assert not cluster.down


def test_of_many_links_one_that_did_not_feel_it_is_told(cluster, hit, fault):
    one = fault(kind="latency", targets="syncer", delay="20ms", **{"for": "3s"})
    one.inject(hit)
    cluster.toxics["learner-1"].clear()
    observed = one.observe(hit)
    assert observed["ok"] is False
    assert observed["delay_s"] == pytest.approx(0)


def test_a_partition_is_felt_when_no_probe_gets_through(cluster, hit, fault):
    one = fault(kind="partition", targets=["learner-1", "learner-2"], **{"for": "3s"})
    one.inject(hit)
    assert one.observe(hit)["ok"] is True
    one.undo(hit)
    assert one.observe_undone(hit) == {"back": True}
    assert one.observe(hit)["ok"] is False


def test_a_partition_one_way_swallows_what_goes_there_and_leaves_the_link_up(cluster, hit, fault):
    one = fault(kind="partition", targets="learner-1", direction="upstream", **{"for": "3s"})
    one.inject(hit)
    assert not cluster.down
    assert [(toxic.type, toxic.stream) for toxic in cluster.toxics["learner-1"].values()] == [("timeout", "upstream")]
    assert one.observe(hit)["ok"] is True
    one.undo(hit)
    assert not cluster.toxics["learner-1"]


def test_a_profile_sets_what_is_not_said_otherwise(fault):
    far = fault(kind="latency", targets="learner-1", profile="transatlantic", **{"for": "3s"})
    assert (far.delay, far.jitter, far.rate) == (0.045, 0.002, 30e6)
    farther = fault(kind="latency", targets="learner-1", profile="transatlantic", delay="60ms", **{"for": "3s"})
    assert (farther.delay, farther.jitter) == (0.06, 0.002)
    assert "transatlantic" in far.describe()
    assert fault(**far.model_dump(mode="json", by_alias=True)) == far


@pytest.mark.parametrize("settings", [{"kind": "partition", "toxicity": 0.5}, {"kind": "slicer", "variation": 20000},
                                      {"kind": "latency", "profile": "lunar"}, {"kind": "timeout", "toxicity": 0}])
def test_settings_that_make_no_sense_are_refused(fault, settings):
    with pytest.raises(ValueError):
        fault(targets="learner-1", **{"for": "3s"}, **settings)


# -- a rate that links share -------------------------------------------------------------------------------------------

SHARED = """diloco_chaos: 1
name: shared
cluster: {model: quadratic, learners: 4, budget: 200}
faults: [{bandwidth: learners, rate: 200kB/s, shared: true, at: 1s, for: 4s}]
checks: {outages: excused, self_healing: {within: 60s}, no_global_stall: {max_gap: 60s}}
"""


def test_a_rate_that_links_share_is_felt_by_all_of_them_and_over_afterwards():
    done = simulate(freeze(parse(SHARED), 0))
    assert done.outcome.kind == "finished"
    [effect] = [verdict for verdict in done.judgement.checks if verdict.name == "faults_verified"]
    assert effect.verdict == "passed", effect
    [observed] = [event.observed for event in done.history.tape.of(Observed)]
    assert 30e3 < observed["rate_bytes_per_s"] <= 1.5 * 200e3


def test_a_rate_that_links_share_is_for_a_simulation():
    [why] = named("local").refusals(freeze(parse(SHARED), 0))
    assert why == "bandwidth: only a simulation can do that: run it with --on simulated"


def test_a_rate_that_links_share_concerns_every_connection(fault):
    with pytest.raises(ValidationError, match="leave toxicity out"):
        fault(kind="bandwidth", targets="learner-3", shared=True, toxicity=0.5, **{"for": "5s"})


def test_a_rate_that_links_share_says_so(fault):
    words = fault(kind="bandwidth", targets="learner-3", shared=True, rate="2MB/s", **{"for": "5s"}).what()
    assert words == "limited to 2 MB/s all together"
