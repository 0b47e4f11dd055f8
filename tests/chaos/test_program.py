"""What the program is called in what a report says to type."""

import sys

import pytest

from diloco_chaos.chaos.program import called


@pytest.mark.parametrize(("argument", "found", "words"), [
    ("{here}/bin/diloco-chaos", "/usr/bin/diloco-chaos", "diloco-chaos"),
    ("{here}/bin/diloco-chaos", None, "bin/diloco-chaos"),
    ("{here}/my bin/diloco-chaos", None, "'my bin/diloco-chaos'"),
    ("/usr/bin/pytest", None, "diloco-chaos")])
def test_a_command_can_be_typed_as_it_is_told(argument, found, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [argument.format(here=tmp_path)])
    monkeypatch.setattr("shutil.which", lambda name: found)
    assert called() == words
