"""The register knows which figures are stale, whatever build of torch looks at them."""

import json

import pytest

from benchmarks.figures.register import FiguresError, Register, load, save

BEHAVIOUR = {"decoupled": "aa", "int4": "bb", "model.decoupled": "torch 2.6: cc"}


def register(**rests_on):
    figures = {name: {"about": name, "docs": "docs/figures.md", "again": f"measure {name}", "rests_on": runs}
               for name, runs in rests_on.items()}
    links = {"about": "links", "docs": "docs/figures.md", "again": "measure links", "never_stale": "the machine's"}
    return Register.model_validate({"behaviour": BEHAVIOUR, "figures": {**figures, "links": links}})


def test_a_figure_is_stale_where_a_run_that_it_rests_on_has_changed():
    known = register(loss={"decoupled": "aa", "model.decoupled": "torch 2.6: cc"}, wire={"int4": "bb"})
    assert known.stale(BEHAVIOUR) == {}
    assert known.stale(BEHAVIOUR | {"int4": "xx"}) == {"wire": ["int4"]}
    assert known.stale(BEHAVIOUR | {"model.decoupled": "torch 2.6: xx"}) == {"loss": ["model.decoupled"]}


def test_a_figure_whose_behaviour_nobody_noted_is_stale():
    assert register(old={"decoupled": None}).stale(BEHAVIOUR) == {"old": ["decoupled"]}


def test_what_was_measured_is_stale_no_more_and_nothing_else_changes():
    known = register(loss={"decoupled": "xx"}, wire={"int4": "xx"})
    known.measured(["loss"])
    assert known.stale(BEHAVIOUR) == {"wire": ["int4"]}
    known.measured(known.named(["all"]))
    assert known.stale(BEHAVIOUR) == {}


def test_another_build_of_torch_makes_nothing_stale_and_nothing_fresh():
    known = register(new={"model.decoupled": "torch 2.6: cc"}, old={"model.decoupled": "torch 2.6: xx"})
    here = BEHAVIOUR | {"model.decoupled": "torch 2.7: dd"}
    assert known.elsewhere(here) == ["model.decoupled"]
    assert known.outdated(here) == []
    known.take(here)
    assert known.stale(here) == {"old": ["model.decoupled"]}
    assert known.stale(here | {"model.decoupled": "torch 2.7: ee"}).keys() == {"new", "old"}


def test_behaviour_that_is_not_what_it_was_is_named():
    known = register(loss={"decoupled": "aa"})
    assert known.outdated(BEHAVIOUR | {"int4": "xx", "quorum": "new"}) == ["int4", "quorum"]


def test_what_is_written_is_read_again(tmp_path):
    known = register(loss={"decoupled": "aa", "int4": None})
    save(known, tmp_path / "figures.json")
    assert load(tmp_path / "figures.json") == known


@pytest.mark.parametrize(("change", "words"), [
    ({"rests_on": {"decuopled": None}}, "no canonical run 'decuopled'; did you mean 'decoupled'?"),
    ({"never_stale": "the machine's"}, "either the canonical runs"), ({"rests_on": {}}, "either the canonical runs"),
    ({"rest_on": {}}, "figures.loss.rest_on: Extra inputs"), ({"again": ""}, "figures.loss.again: String")])
def test_a_malformed_register_is_refused_in_one_sentence(change, words, tmp_path):
    figure = {"about": "loss", "docs": "docs/figures.md", "again": "measure", "rests_on": {"decoupled": None}} | change
    (tmp_path / "figures.json").write_text(json.dumps({"figures": {"loss": figure}}))
    with pytest.raises(FiguresError) as wrong:
        load(tmp_path / "figures.json")
    assert words in str(wrong.value)
    assert str(wrong.value).endswith("correct it, or take it from the repository")
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize("content", [None, "", "[]", "{"])
def test_no_register_and_one_that_is_no_register_are_refused(content, tmp_path):
    if content is not None:
        (tmp_path / "figures.json").write_text(content)
    with pytest.raises(FiguresError, match=r"figures\.json (can't be read|is malformed)"):
        load(tmp_path / "figures.json")


def test_a_figure_that_is_not_there_is_refused_with_the_nearest():
    with pytest.raises(FiguresError, match="no figure 'losss'; did you mean 'loss'"):
        register(loss={"decoupled": "aa"}).named(["losss"])
