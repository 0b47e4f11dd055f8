"""Places by name, from whichever package provides them: what one can't do is refused with a sentence, and with the
names of those that can."""

from __future__ import annotations

import subprocess
import sys

import pytest

from diloco_chaos.harness.base.registries import ProviderError
from diloco_chaos.harness.places.compose.place import Compose
from diloco_chaos.harness.places.kubernetes.place import Kubernetes
from diloco_chaos.harness.places.kubernetes.settings import KubernetesSettings
from diloco_chaos.harness.places.local.place import Local
from diloco_chaos.harness.places.registry import (
    options,
    place_named,
    places,
    refusal,
    refused_parts,
    unusable,
)
from diloco_chaos.harness.places.simulated.place import Simulated
from diloco_chaos.harness.places.slurm.place import Slurm
from diloco_chaos.harness.places.slurm.settings import SlurmSettings
from diloco_chaos.harness.trainers.core.programs import Program, Service
from packages import installed

ENTRY = "[diloco_chaos.backends]\nacme = acme_places:Acme\n"
ACME = """
    from diloco_chaos import Place
    from diloco_chaos.harness.places.base import EVERYWHERE

    class Acme(Place):
        name = "acme"
        nodes = "boards"
        can = EVERYWHERE | {"restart_engine"}
        unable = "a board can't do that"
        cannot = {"disconnect": "a board has no network"}
        alone = {"restart_engine": "only boards and containers have an engine"}

        def site(self, run, record, undo_log):
            raise NotImplementedError
"""


@pytest.fixture
def made(monkeypatch):
    """A place with its usual settings, by its class; no engine is asked for."""
    monkeypatch.setattr("diloco_chaos.harness.places.compose.engine.DockerEngine",
                        lambda: type("E", (), {"close": id})())
    monkeypatch.delenv("DILOCO_CHAOS_ENGINE_RESTART", raising=False)
    monkeypatch.setattr("diloco_chaos.harness.places.compose.place.Compose.__init__", lambda self: None)
    return lambda place: (place(KubernetesSettings(context="c")) if place is Kubernetes else
                          place(SlurmSettings()) if place is Slurm else place())


@pytest.mark.parametrize(("place", "ability", "words"), [
    (Local, "exhaust_memory", "processes alone can't do that: run it with --on compose, kubernetes or simulated"),
    (Local, "disconnect", "processes alone can't do that: run it with --on compose or simulated"),
    (Local, "restart_engine", "processes alone can't do that: run it with --on compose"),
    (Local, "lose_power", "only a simulation can do that: run it with --on simulated"),
    (Local, "requeue", "only Slurm has a queue: run it with --on slurm"),
    (Local, "node_partition", "only a cluster of machines has that: run it with --on kubernetes or slurm"),
    (Simulated, "restart_engine", "there is no engine in a simulation: run it with --on compose"),
    (Simulated, "evict", "only Kubernetes has pods: run it with --on kubernetes"),
    (Simulated, "signal_process", "the processes of a node can be told apart on this machine only: leave --on out, "
                                  "which is --on local"),
    (Compose, "restart_engine", "nobody said how to restart the engine: set DILOCO_CHAOS_ENGINE_RESTART to a command "
                                "that does"),
    (Compose, "drain_node", "only Kubernetes has pods: run it with --on kubernetes"),
    (Kubernetes, "node_power_loss", "only you can do that to your machines: say how in `commands` of --place FILE"),
    (Kubernetes, "lose_unsynced", "what a pod has not synced is known by names that only the pod knows: leave --on "
                                  "out, which is --on local"),
    (Slurm, "hang", "no library is preloaded into processes there: run it with --on compose, kubernetes, local or "
                    "simulated"),
    (Slurm, "cuda", "no library is preloaded into processes there: run it with --on compose, kubernetes or local"),
    (Simulated, "cuda", "no library is preloaded into processes there: run it with --on compose, kubernetes or local"),
    (Simulated, "lose_unsynced", "a library is preloaded into processes on this machine only: leave --on out, which is "
                                 "--on local"),
    (Kubernetes, "jump_clock", "only a simulation has a clock for each node: run it with --on simulated"),
    (Kubernetes, "disconnect", "nobody can take a pod off its network without ruling the machine: partition the link, "
                               "or say how a machine is cut off (node_partition), or run it with --on compose or "
                               "simulated"),
    (Slurm, "disconnect", "a job can't be made to do that: run it with --on compose or simulated"),
    (Slurm, "restart_links", "the links are beside the harness, as on local: run it with --on compose, kubernetes or "
                             "simulated"),
    (Slurm, "restart_engine", "there is no engine under jobs: see requeue and restart_control_plane, or run it with "
                              "--on compose")])
def test_what_a_place_can_not_do_is_told_with_the_places_that_can(made, place, ability, words):
    assert refusal(made(place), {ability}) == words


def test_a_fault_that_needs_two_things_goes_where_both_are(made):
    assert refusal(made(Local), {"exhaust_memory", "lose_power"}) == (
        "only a simulation can do that: run it with --on simulated")
    assert refusal(made(Local), {"exhaust_memory", "requeue"}) == "processes alone can't do that"


def test_a_place_of_another_package_says_what_it_can_and_can_not_do_in_its_own_words(tmp_path, made):
    with installed(tmp_path, "acme-places", ENTRY, acme_places=ACME):
        acme = place_named("acme")()
        assert refusal(acme, {"disconnect"}) == "a board has no network: run it with --on compose or simulated"
        assert refusal(acme, {"jump_clock"}) == "only a simulation can do that: run it with --on simulated"
        assert refusal(acme, {"fill_disk"}) == (
            "a board can't do that: run it with --on compose, kubernetes or simulated")
        assert refusal(made(Local), {"restart_engine"}) == (
            "only boards and containers have an engine: run it with --on compose or acme")


@pytest.mark.parametrize(("place", "program", "told"), [
    (Slurm, Program("x", image="mine"), ["image: jobs run what is on their machines: leave it out, or run it with --on "
                                         "compose or kubernetes"]),
    (Slurm, Program("x", meets=("y",)), ["peers: caught: what catches connections is on one machine, and can't be "
                                         "brought into jobs: name the peers in the command, or run it with --on "
                                         "compose or local"]),
    (Kubernetes, Program("x", service=Service("f", "n")), ["service: a compose file says nothing to a Kubernetes: "
                                                           "write `image: NAME`, or run it with --on compose"]),
    (Kubernetes, Program("x", image="mine"), []), (Local, Program("x", image="mine", meets=("y",)), [])])
def test_what_a_command_can_not_have_is_told_with_the_places_that_take_it(made, place, program, told):
    assert refused_parts(made(place), program) == told


def test_ours_come_first_and_one_that_can_not_be_loaded_hinders_none(tmp_path):
    both = ENTRY + "broken = acme_places:Nothing\nseven = acme_places:SEVEN\nunfinished = acme_places:Unfinished\n"
    more = ACME + "\n    SEVEN = 7\n\n    class Unfinished(Place):\n        name = 'unfinished'\n        nodes = 'n'\n"
    with installed(tmp_path, "acme-places", both, acme_places=more):
        assert [place.name for place in places()] == ["compose", "kubernetes", "local", "simulated", "slurm", "acme"]
        assert unusable() == [
            "seven of acme-places 1.2 is no backend: an entry point of diloco_chaos.backends names a subclass of "
            "diloco_chaos.Place whose name is 'seven'",
            "unfinished of acme-places 1.2 is no backend: a place says its can and unable"]
        with pytest.raises(ProviderError, match=r"broken of acme-places 1.2 can't be loaded: AttributeError"):
            place_named("broken")
        with pytest.raises(ProviderError, match=r"seven of acme-places 1.2 is no backend"):
            place_named("seven")


def test_two_packages_with_a_place_of_one_name_are_told_where_it_is_asked_for(tmp_path):
    with installed(tmp_path / "one", "acme-one", ENTRY, acme_places=ACME), \
            installed(tmp_path / "two", "acme-two", ENTRY):
        with pytest.raises(ProviderError, match=r"the backend 'acme' comes from two packages, acme-one 1.2 and "
                                                r"acme-two 1.2: uninstall one of them"):
            place_named("acme")
        assert place_named("local") is Local
        assert [place.name for place in places()].count("acme") == 1


def test_an_option_that_two_places_take_is_there_once():
    assert [option.name for option in options()] == ["toxiproxy", "toxiproxy_port", "place", "context", "yes",
                                                       "start_method"]


def test_looking_at_all_places_imports_nothing_that_only_a_run_needs():
    code = ("import sys; from diloco_chaos.harness.places.registry import options, places; options(); "
            "[place.undos() for place in places()]; "
            "print(sorted({'docker', 'kubernetes', 'requests', 'numpy', 'torch', 'ruamel'} & sys.modules.keys()))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
