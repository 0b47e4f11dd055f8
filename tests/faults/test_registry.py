"""A fault of another package is a fault like ours: in scenarios, plans and explorations, and missed by its name."""

import json

import pytest

from diloco_chaos.chaos.exploration.generate import drawable
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze, load, save
from diloco_chaos.chaos.scenario.problems import ScenarioError
from diloco_chaos.chaos.scenario.schema import schema
from diloco_chaos.faults import FAULTS
from diloco_chaos.harness.base.registries import ProviderError
from packages import installed

HEAD = "diloco_chaos: 1\nname: mine\nfaults:\n"
HICCUP = """
    from typing import Literal
    from diloco_chaos import Drawn, Fault

    class Hiccup(Fault):
        reversible = False
        drawn = Drawn(500)
        kind: Literal["hiccup"] = "hiccup"
        times: int = 3

        def inject(self, hit):
            return {"ok": True, "times": self.times}

        def describe(self):
            return f"{self.targets[0]} hiccups"
"""
ENTRY = "[diloco_chaos.faults]\nacme = acme_faults\n"
OURS = "  - {hiccup: learner-1, at: 2s, times: 5}\n"


@pytest.fixture
def acme(tmp_path):
    with installed(tmp_path / "site", "acme-faults", ENTRY, acme_faults=HICCUP):
        yield


def test_every_kind_of_ours_comes_from_our_own_package():
    assert {FAULTS.provider(kind).split()[0] for kind in FAULTS} == {"diloco-chaos"}
    assert FAULTS.broken() == []


def test_it_may_be_named_in_a_scenario_and_is_frozen_with_its_settings(acme):
    plan = freeze(parse(HEAD + OURS), 0)
    assert plan.faults[0].fault.describe() == "learner-1 hiccups"
    assert plan.model_dump(mode="json")["faults"][0]["fault"]["times"] == 5


def test_a_plan_records_who_provided_what(acme, tmp_path):
    save(freeze(parse(HEAD + OURS + "  - {kill: learner-2, at: 4s}\n"), 0), tmp_path / "plan.json")
    providers = json.loads((tmp_path / "plan.json").read_text())["providers"]
    assert providers["fault hiccup"] == "acme-faults 1.2"
    assert providers["fault kill"].startswith("diloco-chaos ")
    assert load(tmp_path / "plan.json").faults[0].fault.kind == "hiccup"


def test_a_plan_whose_provider_is_missing_says_what_to_install(tmp_path):
    path = tmp_path / "plan.json"
    with installed(tmp_path / "site", "acme-faults", ENTRY, acme_faults=HICCUP):
        save(freeze(parse(HEAD + OURS), 0), path)
    with pytest.raises(ScenarioError) as caught:
        load(path)
    assert [one.message for one in caught.value.problems] == [
        "the fault 'hiccup' came from acme-faults 1.2, which is not installed: install it"]


def test_a_wrong_key_of_it_is_told_with_the_nearest(acme):
    with pytest.raises(ScenarioError, match="unknown key 'tims'; did you mean 'times'"):
        parse(HEAD + "  - {hiccup: learner-1, at: 2s, tims: 5}\n")


def test_editors_and_explorations_know_it(acme):
    assert "times" in schema()["$defs"]["fault_hiccup"]["properties"]
    assert "hiccup" in drawable()


def test_a_kind_that_is_missed_is_told_with_the_provider_that_cannot_be_loaded(tmp_path):
    with installed(tmp_path, "acme-faults", ENTRY, acme_faults="import no_such_driver"), \
            pytest.raises(ScenarioError, match=r"no fault 'hiccup'.*acme of acme-faults 1.2 can't be loaded: "
                                               "ModuleNotFoundError: No module named 'no_such_driver'"):
        parse(HEAD + OURS)


def test_two_packages_with_a_fault_of_one_name_are_told(tmp_path):
    with installed(tmp_path, "acme-faults", ENTRY, acme_faults=HICCUP.replace("hiccup", "kill")), \
            pytest.raises(ProviderError, match=r"'kill' comes from two packages, diloco-chaos .* and acme-faults 1.2"):
        len(FAULTS)


def test_a_module_without_a_fault_is_told(tmp_path):
    with installed(tmp_path, "acme-faults", ENTRY, acme_faults="x = 1"), \
            pytest.raises(ProviderError, match=r"acme of acme-faults 1.2 provides no fault"):
        len(FAULTS)
