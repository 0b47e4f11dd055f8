"""Backends by name, ours and other packages'."""

import pytest

from chaos.runner.backends import named, names
from harness.providers import ProviderError
from packages import installed

ENTRY = "[diloco_chaos.backends]\nacme = acme_backends:make\n"
FAR = """
    from dataclasses import replace
    from chaos.runner.backends import simulated

    def make():
        return replace(simulated(), name="acme")
"""


def test_ours_come_by_name():
    assert sorted(names()) == ["compose", "local", "simulated"]
    assert named("local").name == "local"
    assert named("simulated").virtual


def test_one_of_another_package_is_used_by_its_name_and_repeated_there(tmp_path):
    with installed(tmp_path, "acme-backends", ENTRY, acme_backends=FAR):
        assert named("acme").name == "acme"
        assert named("acme").option == " --on acme"


def test_an_unknown_one_is_told_with_the_nearest():
    with pytest.raises(ProviderError, match=r"unknown backend 'simulatd'; did you mean 'simulated'"):
        named("simulatd")


@pytest.mark.parametrize("source", ["make = 7", "def make():\n    return 7", FAR.replace('"acme"', '"other"')])
def test_what_is_no_backend_of_that_name_is_told(tmp_path, source):
    with installed(tmp_path, "acme-backends", ENTRY, acme_backends=source), \
            pytest.raises(ProviderError, match=r"acme of acme-backends 1.2 is no backend"):
        named("acme")


def test_one_that_cannot_be_loaded_is_named_where_it_is_missed(tmp_path):
    with installed(tmp_path, "acme-backends", ENTRY, acme_backends="import no_such_cloud"), \
            pytest.raises(ProviderError, match=r"acme of acme-backends 1.2 can't be loaded"):
        named("acme")
