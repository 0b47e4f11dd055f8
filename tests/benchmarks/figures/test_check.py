"""The command, and the docs of this commit."""

import json
import shutil
from functools import partial

import pytest

from benchmarks.figures import check
from benchmarks.figures.anchors import figures
from benchmarks.figures.behaviour import NAMES
from benchmarks.figures.check import FILE, ROOT, load, main, untrue

BUILD = "torch 99"


@pytest.fixture
def now(monkeypatch):
    """What the runs do today: without a run, as it was when the docs were marked."""
    found = dict(load(ROOT)[0])
    monkeypatch.setattr(check, "live", lambda: dict(found))
    return found


@pytest.fixture
def root(tmp_path, now, capsys):
    """A copy of the docs, in which all figures are up to date."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "benchmarks").mkdir()
    shutil.copy(ROOT / FILE, tmp_path / FILE)
    assert main(["--measured", "all"], tmp_path) == 0
    capsys.readouterr()
    return tmp_path


def replaced(before, after, root):
    docs = root / "docs" / "figures.md"
    assert before in docs.read_text()
    docs.write_text(docs.read_text().replace(before, after, 1))


def stale(root):
    return {name for name, figure in figures(load(root)[1], NAMES).items() if figure.dagger}


def test_the_docs_bear_the_daggers_of_the_digests_noted():
    noted, docs = load(ROOT)
    assert untrue(figures(docs, NAMES).values(), noted) == []
    assert set(noted) == set(NAMES)


def test_every_table_of_figures_has_an_anchor():
    lines = (ROOT / "docs" / "figures.md").read_text().splitlines()
    bare = [line for before, line in zip(["", *lines], lines, strict=False)
            if line.startswith("|") and not before.startswith("|") and not before.endswith(("-->", "--> †"))]
    assert bare == []


def test_nothing_is_listed_where_nothing_has_changed(root, capsys):
    assert main([], root) == 0
    assert capsys.readouterr().out.startswith("0 of ")


def test_a_figure_whose_run_has_changed_is_listed_with_what_measures_it_again(root, now, capsys):
    now["thin/course"] = "another"
    assert main([], root) == 0
    listed = capsys.readouterr().out
    assert listed.startswith("python -m benchmarks.bench --only wire\n    docs/figures.md:")
    assert ": wire (changed: thin/course)\n" in listed
    assert "run `python -m benchmarks.figures.check --mark`" in listed


def test_marks_come_and_go_and_the_check_tells_when_they_are_not_true(root, now, capsys):
    docs = root / "docs" / "figures.md"
    fresh = docs.read_text()
    assert main(["--check"], root) == 0
    now["thin/course"] = "another"
    assert main(["--check"], root) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("the behaviour of thin/course is not that of")
    assert main(["--mark"], root) == 0
    marked = docs.read_text()
    assert stale(root) == {"wire"}
    assert main(["--check"], root) == main(["--mark"], root) == 0
    assert docs.read_text() == marked
    assert json.loads((root / FILE).read_text())["thin/course"] == "another"
    assert main(["--measured", "wire"], root) == 0
    assert "thin/course=another" in docs.read_text()
    assert stale(root) == set()
    assert main(["--check"], root) == 0
    now["thin/course"] = load(ROOT)[0]["thin/course"]
    assert main(["--measured", "wire"], root) == 0
    assert docs.read_text() == fresh


def test_only_what_was_measured_is_stale_no_more(root, now):
    now["int4"] = "another"
    main(["--mark"], root)
    assert stale(root) == {"loss-costs", "loss-in-processes"}
    main(["--measured", "loss-costs"], root)
    assert stale(root) == {"loss-in-processes"}


def test_a_behaviour_that_comes_back_makes_its_figures_fresh_again(root, now):
    before, now["int4"] = now["int4"], "another"
    main(["--mark"], root)
    now["int4"] = before
    main(["--mark"], root)
    assert stale(root) == set()


def test_a_dagger_taken_out_or_put_in_by_hand_is_noticed(root, now, capsys):
    now["thin/course"] = "another"
    main(["--mark"], root)
    capsys.readouterr()
    replaced("--> †", "-->", root)
    replaced("the machine -->", "the machine --> †", root)
    assert main(["--check"], root) == 1
    links, wire = capsys.readouterr().out.splitlines()
    assert ": figure start is fresh and has a dagger: run `" in links
    assert ": figure wire is stale and has no dagger: run `" in wire


def test_a_run_that_was_not_noted_is_outdated(root, now, capsys):
    noted = json.loads((root / FILE).read_text())
    del noted["joining"]
    (root / FILE).write_text(json.dumps(noted))
    assert main(["--check"], root) == 1
    assert "the behaviour of joining is not that of" in capsys.readouterr().out


def test_what_another_build_of_torch_made_is_told_and_not_held_to_have_changed(root, now, capsys):
    now["model.decoupled"] = f"{BUILD}: another"
    assert main(["--check"], root) == 0
    assert main([], root) == 0
    listed = capsys.readouterr().out
    assert "0 of " in listed
    assert "not compared" in listed


def test_another_build_of_torch_makes_nothing_stale_and_nothing_fresh(root, now):
    replaced("average=", "average=old", root)
    replaced("model.decoupled=", "model.decoupled=old", root)
    main(["--mark"], root)
    before = stale(root)
    assert len(before) == 2
    now["model.decoupled"] = f"{BUILD}: another"
    assert main(["--mark"], root) == main(["--check"], root) == 0
    assert stale(root) == before
    now["model.decoupled"] = f"{BUILD}: changed"
    assert main(["--check"], root) == 1
    main(["--mark"], root)
    assert "loss-margin" in stale(root) - before


@pytest.mark.parametrize(("arguments", "spoil", "words"), [
    (["--measured", "wires"], lambda root: None, "there is no figure 'wires'; did you mean 'wire'?"),
    ([], lambda root: (root / FILE).write_text("{"), "digests.json can't be read"),
    ([], lambda root: (root / FILE).write_text("[]"), "digests.json can't be read"),
    ([], lambda root: (root / FILE).unlink(), "digests.json can't be read"),
    (["--check"], partial(replaced, "rests on: the machine", "rests on: the moon"), "no canonical run 'the'"),
    (["--check"], partial(replaced, "figure: wire", "figure: links"), "figure 'links' already stands")],
    ids=["unknown", "malformed", "no digests", "missing", "run", "twice"])
def test_what_is_wrong_is_said_before_anything_is_run(arguments, spoil, words, root, capsys, monkeypatch):
    monkeypatch.setattr(check, "live", lambda: pytest.fail("it ran"))
    spoil(root)
    assert main(arguments, root) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.out == ""
