"""The page of claims."""

import json
import shutil

import pytest

from benchmarks.claims.__main__ import CLAIMS, PAGE, RECORDED, ROOT, main
from benchmarks.claims.register import load


@pytest.fixture
def copied(tmp_path):
    """The parts of the repository that the page is made from."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("*.svg", "adr"))
    (tmp_path / CLAIMS).parent.mkdir(parents=True)
    for file in (CLAIMS, RECORDED):
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def test_the_page_is_the_one_that_is_generated():
    assert main(["--check"]) == 0, "run python -m benchmarks.claims"


def test_no_claim_is_left_out():
    text = (ROOT / PAGE).read_text()
    for claim in load(ROOT / CLAIMS):
        assert f"| {claim.claim} | {claim.published} |" in text
    assert "{{" not in text


def test_a_figure_that_was_measured_again_changes_the_page(copied, capsys):
    figures = copied / "docs" / "figures.md"
    figures.write_text(figures.read_text().replace("| +0.21% |", "| +0.55% |"))
    assert main(["--check"], copied) == 1
    assert main([], copied) == 0
    assert "+0.55%" in (copied / PAGE).read_text()
    assert main(["--check"], copied) == 0


def test_a_row_that_is_no_longer_there_is_told(copied, capsys):
    figures = copied / "docs" / "figures.md"
    figures.write_text(figures.read_text().replace("| top1 |", "| top-1 |"))
    assert main([], copied) == 2
    assert "0 rows begin with 'top1'" in capsys.readouterr().err


def test_a_number_that_nobody_recorded_is_told(copied, capsys):
    found = json.loads((copied / RECORDED).read_text())
    del found["fleet"]["uptime"]
    (copied / RECORDED).write_text(json.dumps(found))
    assert main([], copied) == 2
    assert "uptime" in capsys.readouterr().err
