"""A run as JUnit's XML."""

from xml.etree import ElementTree

import pytest
from junitparser import TestSuite

from diloco_chaos.chaos.report.forms.junit import report_junit
from diloco_chaos.chaos.report.model import model_of


@pytest.fixture(scope="module")
def suites(results):
    return [ElementTree.fromstring(report_junit(model_of(result))) for result in results]


def test_every_check_is_a_test_case_and_counts_agree(suites, results):
    for suite, result in zip(suites, results, strict=True):
        checks = result.judgement.checks
        assert [case.get("name") for case in suite.iter("testcase")] == ["run", *(check.name for check in checks)]
        assert int(suite.get("tests")) == len(checks) + 1
        assert int(suite.get("failures")) == len(suite.findall("testcase/failure"))
        assert int(suite.get("errors")) == len(suite.findall("testcase/error"))


def test_a_failure_has_a_message_of_one_line_with_its_cause_and_the_command_that_repeats_it(suites, results):
    failure = suites[0].find("testcase[@name='no_global_stall']/failure")
    assert failure.get("message").startswith("longest gap 5.")
    assert "\n" not in failure.get("message")
    assert failure.text.endswith(f"diloco-chaos run --plan {results[0].folder.path}/plan.json --on simulated")
    assert suites[1].find(".//failure") is None


def test_another_reader_sums_up_the_time_that_the_run_took(results):
    suite = TestSuite.fromstring(report_junit(model_of(results[0])).split("\n", 1)[1])
    told = suite.time
    suite.update_statistics()
    assert suite.time == told > 0


def test_properties_tell_how_to_repeat_it(suites):
    told = {one.get("name"): one.get("value") for one in suites[0].iter("property")}
    assert (told["verdict"], told["seed"]) == ("FAILED", "0")
    assert told["repeat"].endswith("--on simulated")
    assert told["f1.learner-1.restarted"].endswith(" s")
    assert 0 <= float(told["f3.ettr"]) < float(told["ettr"]) < 1


def test_what_no_xml_may_hold_is_replaced(results):
    model = model_of(results[0])
    odd = model.model_copy(update={"scenario": "a\x00b\x1b<&\">", "why": "\ufffe"})
    assert ElementTree.fromstring(report_junit(odd)).get("name") == "a\ufffdb\ufffd<&\"> seed 0"


def test_a_run_that_was_not_judged_is_an_error(results):
    suite = ElementTree.fromstring(report_junit(model_of(results[0]).model_copy(update={
        "checks": [], "verdict": "INTERRUPTED", "why": ""})))
    assert (suite.get("tests"), suite.get("errors")) == ("1", "1")
    assert suite.find("testcase/error").get("message") == "INTERRUPTED"


def test_a_run_that_was_interrupted_is_an_error_also_where_every_check_holds_so_far(results):
    suite = ElementTree.fromstring(report_junit(model_of(results[1]).model_copy(update={"verdict": "INTERRUPTED"})))
    assert suite.get("errors") == "1"
    assert len(suite.findall("testcase")) == int(suite.get("tests")) == len(results[1].judgement.checks) + 1
