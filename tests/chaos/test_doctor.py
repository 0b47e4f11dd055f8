"""The doctor lists what other packages provide, and what of that can't be used; none of it hinders the rest."""

from __future__ import annotations

import pytest

from diloco_chaos.chaos.doctor import examine
from packages import installed

ENTRY = "[diloco_chaos.backends]\nacme = acme_places:Acme\n"
ACME = """
    from diloco_chaos import Place
    from diloco_chaos.harness.places.place import Requirement

    class Acme(Place):
        name, nodes, can, unable = "acme", "boards", frozenset(), "a board can't do that"

        @classmethod
        def requirements(cls, given):
            {requirements}

        def site(self, run, record, undo_log):
            raise NotImplementedError
"""
MISSING = 'return [Requirement("boards", "missing", "none", "plug one in")]'


def lines(**modules):
    return [(line.name, line.state, line.found, line.advice) for line in examine(**modules)]


def test_what_another_place_lacks_is_missed_there_and_not_on_local(tmp_path):
    with installed(tmp_path, "acme-places", ENTRY, acme_places=ACME.format(requirements=MISSING)):
        assert ("boards", "missing", "none", "plug one in") in lines(on="acme")
        assert ("boards", "optional", "none", "plug one in (not needed on local)") in lines()
        assert ("backends", "ok", "acme of acme-places 1.2", "") in lines()


def test_a_place_that_can_not_be_looked_at_is_told_beside_the_others(tmp_path):
    with installed(tmp_path, "acme-places", ENTRY, acme_places=ACME.format(requirements="raise OSError('no bus')")):
        assert ("acme", "optional", "can't be looked at", "no bus (not needed on local)") in lines()


@pytest.mark.parametrize(("source", "line"), [
    ("import no_such_cloud", ("backends", "optional", "acme of acme-places 1.2",
                              "can't be loaded: ModuleNotFoundError: No module named 'no_such_cloud'")),
    ("Acme = 7", ("packages", "optional", "can't be used",
                  "acme of acme-places 1.2 is no backend: an entry point of diloco_chaos.backends names a subclass of "
                  "diloco_chaos.Place whose name is 'acme'"))])
def test_what_is_broken_or_no_place_is_listed(tmp_path, source, line):
    with installed(tmp_path, "acme-places", ENTRY, acme_places=source):
        assert line in lines()


def test_two_packages_with_one_name_are_listed(tmp_path):
    with installed(tmp_path / "one", "acme-one", ENTRY, acme_places=ACME.format(requirements="return []")), \
            installed(tmp_path / "two", "acme-two", ENTRY):
        assert ("packages", "optional", "can't be used", "the backend 'acme' comes from two packages, acme-one 1.2 and "
                                                         "acme-two 1.2: uninstall one of them") in lines()
