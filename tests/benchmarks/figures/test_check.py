"""The command, and the docs of this commit."""

import json
import shutil

import pytest

from benchmarks.figures import check, marks, register
from benchmarks.figures.behaviour import NAMES
from benchmarks.figures.check import ROOT, main
from benchmarks.figures.register import FILE


@pytest.fixture
def now(monkeypatch):
    """What the runs do today: without a run, as it was when the docs were marked."""
    found = dict(register.load(ROOT / FILE).behaviour)
    monkeypatch.setattr(check, "live", lambda: found)
    return found


@pytest.fixture
def root(tmp_path):
    """A copy of the docs, in which all figures are up to date."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "benchmarks").mkdir()
    known = register.load(ROOT / FILE)
    known.measured(known.named(["all"]))
    register.save(known, tmp_path / FILE)
    marks.write(known, marks.documents(known, tmp_path), tmp_path)
    return tmp_path


def test_the_docs_bear_the_marks_that_the_register_says():
    known = register.load(ROOT / FILE)
    assert marks.untrue(known, marks.documents(known, ROOT)) == []
    assert set(known.behaviour) == set(NAMES)


def test_every_table_of_figures_is_registered():
    lines = (ROOT / "docs" / "figures.md").read_text().splitlines()
    bare = [line for before, line in zip(["", *lines], lines, strict=False)
            if line.startswith("|") and not before.startswith(("|", "<!-- figure: "))]
    assert bare == []


def test_nothing_is_listed_where_nothing_has_changed(root, now, capsys):
    assert main([], root) == 0
    assert capsys.readouterr().out.startswith("0 of ")


def test_a_figure_whose_run_has_changed_is_listed_with_what_measures_it_again(root, now, capsys):
    now["thin/course"] = "another"
    assert main([], root) == 0
    told = capsys.readouterr().out
    assert "wire: bytes a token, and a thin line (docs/figures.md)\n    changed: thin/course\n" in told
    assert "again:   python -m benchmarks.bench --only wire" in told
    assert "run `python -m benchmarks.figures.check --mark`" in told


def test_marks_come_and_go_and_the_check_tells_when_they_are_not_true(root, now, capsys):
    docs = root / "docs" / "figures.md"
    fresh = docs.read_text()
    assert main(["--check"], root) == 0
    now["thin/course"] = "another"
    assert main(["--check"], root) == 1
    assert main(["--mark"], root) == 0
    marked = docs.read_text()
    assert "<!-- figure: wire --> †" in marked
    assert main(["--check"], root) == main(["--mark"], root) == 0
    assert docs.read_text() == marked
    assert main(["--measured", "wire"], root) == 0
    assert docs.read_text() == fresh
    assert json.loads((root / FILE).read_text())["figures"]["wire"]["rests_on"]["thin/course"] == "another"
    assert main(["--check"], root) == 0


def test_a_mark_that_somebody_took_out_by_hand_is_noticed(root, now, capsys):
    now["thin/course"] = "another"
    main(["--mark"], root)
    docs = root / "docs" / "figures.md"
    docs.write_text(docs.read_text().replace(" †\n", "\n"))
    assert main(["--check"], root) == 1
    assert "the marks in docs/figures.md are not those of" in capsys.readouterr().out


def test_what_another_build_of_torch_made_is_told_and_not_held_to_have_changed(root, now, capsys):
    now["model.decoupled"] = "torch 99: another"
    assert main(["--check"], root) == 0
    assert main([], root) == 0
    told = capsys.readouterr().out
    assert "0 of " in told
    assert "not compared" in told


@pytest.mark.parametrize(("arguments", "spoil", "words"), [
    (["--measured", "wires"], lambda root: None, "there is no figure 'wires'; did you mean 'wire'?"),
    ([], lambda root: (root / FILE).write_text("{"), "is malformed"),
    ([], lambda root: (root / "docs" / "figures.md").write_text("# Figures\n"), "put it just before the figure")],
    ids=["unknown", "malformed", "anchor"])
def test_what_is_wrong_is_said_in_one_sentence_before_anything_is_run(arguments, spoil, words, root, capsys,
                                                                      monkeypatch):
    monkeypatch.setattr(check, "live", lambda: pytest.fail("it ran"))
    spoil(root)
    assert main(arguments, root) == 2
    told = capsys.readouterr()
    assert words in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""
