"""Reports by name, ours and other packages'."""

import json

import pytest

from diloco_chaos.chaos.report.forms.registry import find
from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.runner.backends import named
from diloco_chaos.chaos.runner.run import run_plan
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.base.registries import ProviderError
from packages import installed

ENTRY = "[diloco_chaos.reports]\nacme = acme_reports:acme\n"
SMALL = "diloco_chaos: 1\nname: small\ncluster: {learners: 2, model: quadratic, budget: 60 steps}\n"


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return run_plan(freeze(parse(SMALL), 0), tmp_path_factory.mktemp("runs"), NullAudience(), named("simulated"))


def test_json_is_what_stands_in_the_folder(result):
    assert json.loads(find("json")(result)) == json.loads((result.folder.path / "report.json").read_text())


def test_one_of_another_package_is_found_by_its_name(result, tmp_path):
    source = "def acme(result):\n    return result.history.plan.scenario\n"
    with installed(tmp_path, "acme-reports", ENTRY, acme_reports=source):
        assert find("acme")(result) == "small"


def test_an_unknown_one_is_told_with_those_that_there_are(tmp_path):
    with installed(tmp_path, "acme-reports", ENTRY, acme_reports="acme = 7"), \
            pytest.raises(ProviderError, match=r"unknown report 'acm'; did you mean 'acme'\?; there are html, json"):
        find("acm")


def test_one_that_cannot_be_imported_is_told_with_its_package(tmp_path):
    with installed(tmp_path, "acme-reports", ENTRY, acme_reports="import no_such_printer"), \
            pytest.raises(ProviderError, match=r"acme of acme-reports 1.2 can't be loaded: ModuleNotFoundError"):
        find("acme")


def test_what_is_no_function_is_told(tmp_path):
    with installed(tmp_path, "acme-reports", ENTRY, acme_reports="acme = 7"), \
            pytest.raises(ProviderError, match=r"acme of acme-reports 1.2 is no report"):
        find("acme")
