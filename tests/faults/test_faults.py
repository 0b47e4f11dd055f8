"""Faults against a cluster that only writes down what is asked of it."""

import pytest
from pydantic import TypeAdapter

from faults import FAULTS, AnyFault, Hit

ADAPTER = TypeAdapter(AnyFault)


class Recorder:
    """A cluster that does nothing but remember, with links that behave as they are told."""

    def __init__(self):
        self.calls = []
        self.toxics = {}
        self.down = set()

    def kill(self, node, restart_after):
        self.calls.append(("kill", node, restart_after))
        return -9

    def throttle(self, node, factor):
        self.calls.append(("throttle", node, factor))

    def degrade(self, link, toxics):
        self.toxics.setdefault(link, {}).update({toxic.name: toxic for toxic in toxics})

    def restore(self, link, toxics):
        for toxic in toxics:
            self.toxics.get(link, {}).pop(toxic.name, None)

    def cut(self, link, cut):
        (self.down.add if cut else self.down.discard)(link)

    def probe(self, link, reply_bytes):
        """What a real link would take."""
        if link in self.down:
            raise ConnectionRefusedError(link)
        toxics = self.toxics.get(link, {})
        delay = sum(toxic.attributes["latency"] / 1e3 for toxic in toxics.values() if toxic.type == "latency")
        rate = [toxic.attributes["rate"] * 1e3 for toxic in toxics.values() if toxic.type == "bandwidth"]
        return 0.001 + delay + (reply_bytes / rate[0] if rate else 0)


@pytest.fixture
def cluster():
    return Recorder()


@pytest.fixture
def hit(cluster):
    return Hit(cluster, cluster.probe)


def fault(**settings):
    return ADAPTER.validate_python({"at": "1s", **settings})


def test_every_kind_is_registered_under_the_key_that_names_it():
    assert set(FAULTS) == {"kill", "straggler", "latency", "partition"}


def test_a_kill_leaves_the_restart_to_the_cluster(cluster, hit):
    felt = fault(kind="kill", targets=["learner-1", "learner-2"], restart_after="3s").inject(hit)
    assert cluster.calls == [("kill", "learner-1", 3.0), ("kill", "learner-2", 3.0)]
    assert felt == {"ok": True, "exit_status": "SIGKILL, SIGKILL"}


def test_a_kill_that_ended_otherwise_was_not_felt(cluster, hit):
    cluster.kill = lambda node, restart_after: 0
    assert fault(kind="kill", targets="learner-1").inject(hit)["ok"] is False


def test_a_straggler_is_throttled_and_let_go(cluster, hit):
    one = fault(kind="straggler", targets="learner-2", factor=0.25, **{"for": "5s"})
    one.inject(hit)
    one.undo(hit)
    assert cluster.calls == [("throttle", "learner-2", 0.25), ("throttle", "learner-2", None)]


def test_latency_is_put_on_both_directions_and_measured(cluster, hit):
    one = fault(kind="latency", targets="learner-3", delay="20ms", jitter="5ms", rate="1MB/s", **{"for": "5s"})
    felt = one.inject(hit)
    assert sorted(cluster.toxics["learner-3"]) == ["bandwidth_downstream", "bandwidth_upstream", "latency_downstream",
                                                   "latency_upstream"]
    assert felt["ok"] is True
    assert felt["delay_s"] == pytest.approx(0.02)
    assert felt["rate_bytes_per_s"] == pytest.approx(1e6, rel=0.01)
    one.undo(hit)
    assert cluster.toxics["learner-3"] == {}


@pytest.mark.parametrize("lost", ["latency", "bandwidth"])
def test_a_toxic_that_does_nothing_is_not_felt(cluster, hit, lost):
    degrade = cluster.degrade
    cluster.degrade = lambda link, toxics: degrade(link, [toxic for toxic in toxics if toxic.type != lost])
    one = fault(kind="latency", targets="learner-3", delay="20ms", rate="1MB/s", **{"for": "5s"})
    assert one.inject(hit)["ok"] is False


def test_a_partition_is_felt_when_no_probe_gets_through(cluster, hit):
    one = fault(kind="partition", targets=["learner-1", "learner-2"], **{"for": "3s"})
    assert one.inject(hit) == {"ok": True}
    assert one.undo(hit) == {"back": True}
    cluster.cut = lambda link, cut: None
    assert one.inject(hit) == {"ok": False}


@pytest.mark.parametrize("settings", [
    {"kind": "straggler", "for": "1s"}, {"kind": "latency", "for": "1s", "rate": "1MB/s"},
    {"kind": "partition", "for": "1s"}, {"kind": "kill"}])
def test_an_undo_is_harmless_twice_and_without_the_fault(cluster, hit, settings):
    one = fault(targets="learner-1", **settings)
    one.undo(hit)
    one.undo(hit)
    assert not cluster.down
    assert not cluster.toxics.get("learner-1")


@pytest.mark.parametrize("settings", [
    {"kind": "kill", "restart_after": "3s"}, {"kind": "kill"}, {"kind": "straggler", "for": "1s"},
    {"kind": "latency", "for": "1s"}, {"kind": "partition", "for": "1s"}])
def test_every_fault_says_in_words_what_it_does_and_when(settings):
    one = fault(targets=["learner-1"], **settings)
    assert "learner-1" in one.words()
    assert one.trigger_words() == "at 1.0 s"
    assert one.downtime() >= 0
