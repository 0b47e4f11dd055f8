"""What packages provide is found by its entry points; what can't be loaded is told and hinders nobody."""

from unittest import mock

import pytest

from diloco_chaos.harness.base.registries import ProviderError, Registry, forget, offers
from packages import installed

GROUP = "diloco_chaos.faults"


def test_what_a_package_names_is_imported_with_its_version(tmp_path):
    with installed(tmp_path, "acme-faults", "[diloco_chaos.faults]\nacme = acme_one:THING\n", acme_one="THING = 7\n"):
        one = offers(GROUP).provided[-1]
        assert (one.name, one.content, str(one.provider)) == ("acme", 7, "acme-faults 1.2")


def test_ours_come_first(tmp_path):
    with installed(tmp_path, "aaa", "[diloco_chaos.faults]\naaa = acme_one:THING\n", acme_one="THING = 7\n"):
        assert [one.provider.name for one in offers(GROUP).provided] == ["diloco-chaos", "aaa"]


def test_a_package_whose_name_begins_with_ours_is_another(tmp_path):
    entry = "[diloco_chaos.faults]\nmore = more_one:THING\n"
    with installed(tmp_path, "diloco-chaos more", entry, more_one="THING = 7\n"):
        ours, more = offers(GROUP).provided
        assert (ours.provider.ours, more.provider.ours) == (True, False)
        assert str(more.provider) == "diloco-chaos more 1.2"


@pytest.mark.parametrize(("source", "reason"), [
    ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
    ("raise RuntimeError('not today')", "RuntimeError: not today"), ("", "AttributeError"), ("x = (", "SyntaxError")])
def test_what_cannot_be_loaded_is_told_beside_what_can(tmp_path, source, reason):
    with installed(tmp_path, "acme-faults", "[diloco_chaos.faults]\nacme = acme_one:THING\n", acme_one=source):
        there = offers(GROUP)
        (broken,) = there.broken
        assert str(broken).startswith(f"acme of acme-faults 1.2 can't be loaded: {reason}")
        assert len(there.provided) == 1


def test_sources_that_are_newer_than_the_installation_say_what_to_do():
    forget()
    with mock.patch("diloco_chaos.harness.base.registries.distributions", return_value=()), \
            pytest.raises(ProviderError, match="make setup"):
        offers(GROUP)
    forget()


def test_of_things_with_names_of_their_own_only_the_one_that_is_asked_for_is_imported_and_examined_once(tmp_path):
    contents = mock.Mock(side_effect=lambda provided: [(provided.name, provided.content)])
    points = "[diloco_chaos.trainers]\nacme = acme_trainer:ONE\nother = acme_missing:TWO\n"
    with installed(tmp_path, "acme", points, acme_trainer="ONE = 1\n"):
        registry = Registry("diloco_chaos.trainers", "trainer", contents, one_each=True)
        assert (registry["acme"], registry["acme"], registry.provider("acme").split()[0]) == (1, 1, "acme")
        assert [call.args[0].name for call in contents.call_args_list] == ["acme"]
    assert "acme" not in registry
