"""A machine that lacks what reads compose files is told what to install."""

import pytest

from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.compose import compose_cli
from diloco_chaos.harness.places.compose.place import Compose


@pytest.fixture(params=["no docker", "docker alone", "an old one"])
def without(request, tmp_path, monkeypatch):
    """A machine that lacks what reads compose files."""
    script = {"docker alone": "echo \"unknown shorthand flag: 'f' in -f\" >&2; exit 125",
              "an old one": "case $* in *version*) echo 2.12.2;; *) echo 'unknown flag' >&2; exit 1;; esac"}
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    if request.param in script:
        (tmp_path / "bin" / "docker").write_text(f"#!/bin/sh\n{script[request.param]}\n")
        (tmp_path / "bin" / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return request.param


def test_where_it_is_missing_or_old_a_sentence_says_what_to_install(without, tmp_path):
    (tmp_path / "compose.yml").write_text("services: {x: {image: a}}")
    with pytest.raises(ClusterError, match=r"^runs in containers need Docker Compose 2\.13 .*: install Docker's"):
        compose_cli.services(tmp_path / "compose.yml")


def test_the_doctor_says_the_same(without):
    line = Compose.requirements({})[-1]
    assert line == ("compose", "missing", "too old" if without == "an old one" else "not installed", compose_cli.NEEDED)
