"""A check of another package runs where a scenario names it, with a bound of its own, and decides like ours."""

import pytest

from diloco_chaos import freeze, load, simulate
from diloco_chaos.chaos.checks.builtin import CHECKS as BUILT_IN
from diloco_chaos.chaos.registry import CHECKS
from diloco_chaos.chaos.scenario.bounds import Bounds
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.problems import ScenarioError
from diloco_chaos.chaos.scenario.schema import schema
from diloco_chaos.harness.base.registries import ProviderError
from packages import installed

SMALL = ("diloco_chaos: 1\nname: mine\ncluster: {learners: 2, model: quadratic, budget: 60 steps}\nchecks:\n"
         "  uptime: {at_least: 50%}\n")
ENOUGH = """
    from pydantic import BaseModel
    from diloco_chaos import Finding, check

    class Merges(BaseModel):
        at_least: int

    @check(Merges)
    def enough_merges(history, bound):
        return Finding(len(history.merges) >= bound.at_least, str(len(history.merges)), f">= {bound.at_least}")

    @check()
    def always_there(history):
        return Finding(True, "there", "there")
"""
ENTRY = "[diloco_chaos.checks]\nacme = acme_checks:%s\n"


@pytest.fixture
def acme(tmp_path):
    source = ENOUGH + "\n    BOTH = enough_merges, always_there\n"
    with installed(tmp_path, "acme-checks", ENTRY % "BOTH", acme_checks=source):
        yield


def verdicts(text):
    return {one.name: one.verdict for one in simulate(freeze(parse(text), 0)).judgement.checks}


def test_every_check_of_ours_is_there_in_the_order_of_the_report():
    assert list(CHECKS) == [check.name for check in BUILT_IN]
    assert CHECKS.foreign() == {}


def test_the_bounds_of_scenarios_are_those_of_the_checks():
    bounded = {check.name for check in BUILT_IN if check.bound is not None}
    assert set(Bounds.model_fields) - {"outages", "switched_off"} == bounded


def test_it_does_not_run_where_nobody_names_it(acme):
    assert not {"enough_merges", "always_there"} & verdicts(SMALL).keys()


@pytest.mark.parametrize(("least", "verdict"), [(1, "passed"), (10_000, "failed")])
def test_it_decides_by_the_bound_that_the_scenario_gives(acme, least, verdict):
    found = verdicts(f"{SMALL}  enough_merges: {{at_least: {least}}}\n  always_there:\n")
    assert (found["enough_merges"], found["always_there"]) == (verdict, "passed")


@pytest.mark.parametrize(("said", "message"), [
    ("enough_merges: {}", "at_least is missing"),
    ("enough_merges: {at_least: many}", "at_least"), ("enogh_merges: {at_least: 3}", "did you mean 'enough_merges'"),
    ("always_there: {x: 1}", "unknown key 'x'")])
def test_what_is_wrong_about_it_is_told_where_it_stands(acme, said, message):
    with pytest.raises(ScenarioError) as caught:
        parse(f"{SMALL}  {said}\n")
    (problem,) = caught.value.problems
    assert message in problem.message
    assert problem.line == 6


def test_all_problems_of_a_file_are_told_at_once(acme):
    with pytest.raises(ScenarioError) as caught:
        parse(f"{SMALL}  enough_merges: {{at_least: x}}\n  no_such_check: {{}}\n  goodput: {{at_least: lots}}\n")
    assert [problem.line for problem in caught.value.problems] == [6, 7, 8]


def test_editors_know_its_bound(acme):
    found = schema()
    assert "enough_merges" in found["$defs"]["Bounds"]["properties"]


def test_two_packages_with_a_check_of_one_name_are_told(tmp_path):
    source = ENOUGH.replace("enough_merges", "uptime")
    with installed(tmp_path, "acme-checks", ENTRY % "uptime", acme_checks=source), \
            pytest.raises(ProviderError, match=r"'uptime' comes from two packages"):
        len(CHECKS)


def test_what_is_no_check_is_told(tmp_path):
    with installed(tmp_path, "acme-checks", ENTRY % "len", acme_checks="len = len"), \
            pytest.raises(ProviderError, match="with the decorator"):
        len(CHECKS)


def test_the_library_takes_scenarios_of_other_packages(tmp_path):
    (tmp_path / "acme-storm.yaml").write_text("diloco_chaos: 1\nname: acme-storm\nextends: base\n")
    with installed(tmp_path, "acme-scenarios", "[diloco_chaos.scenarios]\nacme = acme_scenarios\n", acme_scenarios=""):
        assert load("acme-storm")[1] == tmp_path / "acme-storm.yaml"
