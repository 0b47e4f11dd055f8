"""A check that is switched off, and one whose bound can't fail."""

import pytest

from diloco_chaos.chaos.checks import judge
from diloco_chaos.chaos.registry import CHECKS
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.chaos.scenario.problems import ScenarioError


def bounds(checks):
    return freeze(parse(f"diloco_chaos: 1\nname: x\nchecks: {checks}\n"), 0).checks


@pytest.mark.parametrize("off", ["off", "false"])
@pytest.mark.parametrize("name", sorted({*CHECKS} - {"faults_verified", "all_undone"}))
def test_any_check_that_the_others_do_not_rest_on_can_be_switched_off(brief, name, off):
    story = brief.bounded(checks=f"{{{name}: {off}}}")
    assert story.history().plan.checks.switched_off == (name,)
    assert name not in story.describe()


@pytest.mark.parametrize("name", ["faults_verified", "all_undone"])
def test_what_the_others_rest_on_stays(name):
    with pytest.raises(ScenarioError, match=f"{name} can't be switched off: what the other checks say rests on it"):
        bounds(f"{{{name}: off}}")


def test_a_plan_that_switches_nothing_off_says_nothing_of_it():
    assert "switched_off" not in bounds("{uptime: {at_least: 50%}}").model_dump(mode="json")


@pytest.mark.parametrize(("name", "bound", "free"), [
    ("blast_radius", "{at_least: 0%}", True), ("blast_radius", "{at_least: 1%}", False),
    ("goodput", "{at_least: 0%}", True), ("goodput", "{}", False), ("uptime", "{at_least: 0%}", True),
    ("participation", "[{learner: learner-1, at_least: 0%}]", True),
    ("participation", "[{learner: learner-1, at_least: 0%, at_most: 50%}]", False),
    ("participation", "[{learner: learner-1, at_most: 100%}]", False)])
def test_a_bound_that_holds_whatever_is_measured_can_not_fail(name, bound, free):
    assert bounds(f"{{{name}: {bound}}}").cannot_fail(name) is free


@pytest.mark.parametrize(("least", "verdict"), [("0%", "passed"), ("1%", "unknown")])
def test_where_nothing_could_be_measured_a_bound_that_can_not_fail_holds(storm, least, verdict):
    story = storm.bounded(checks=f"{{uptime: {{at_least: {least}}}}}").without("steady")
    assert story.verdict("uptime").verdict == verdict
    assert {check.name for check in judge(story.history()).checks} >= {"uptime"}
