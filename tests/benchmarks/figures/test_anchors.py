"""An anchor in the docs says everything about its figure."""

import pytest

from benchmarks.figures.anchors import FiguresError, figures, rewritten

RUNS = ("decoupled", "int4", "int4/course")
LOSS = "<!-- figure: loss\nagain: measure --the loss\nrests on: decoupled=aa int4/course --> †\n"
LINKS = "<!-- figure: links\nagain: measure the links\nrests on: the machine -->\n"
TEXT = f"# Figures\n\n{LOSS}| gap | mean |\n|---|---|\n| one | 1% |\n\n{LINKS}10 MB/s.\n"


def test_a_figure_is_what_its_anchor_says():
    loss, links = figures({"page.md": TEXT}, RUNS).values()
    assert (loss.name, loss.where, loss.again) == ("loss", "page.md:3", "measure --the loss")
    assert (loss.rests_on, loss.dagger) == ({"decoupled": "aa", "int4/course": ""}, True)
    assert (links.name, links.where, links.rests_on, links.dagger) == ("links", "page.md:10", {}, False)


def test_a_figure_has_changed_with_its_runs_and_one_that_rests_on_the_machine_never_has():
    loss, links = figures({"page.md": TEXT.replace("course", "course=bb")}, RUNS).values()
    assert loss.changed({"decoupled": "aa", "int4/course": "bb", "int4": "cc"}) == []
    assert loss.changed({"decoupled": "aa", "int4/course": "xx"}) == ["int4/course"]
    assert links.changed({"decoupled": "aa"}) == []


def test_a_run_without_a_digest_counts_as_changed():
    loss = figures({"page.md": TEXT}, RUNS)["loss"]
    assert loss.changed({"decoupled": "aa", "int4/course": "bb"}) == ["int4/course"]
    assert loss.changed({"decoupled": "aa"}) == ["int4/course"]


def test_anchors_are_rewritten_as_they_were_read_and_the_text_around_them_stays():
    assert rewritten(TEXT, figures({"page.md": TEXT}, RUNS)) == TEXT


@pytest.mark.parametrize("digits", range(1, 17))
def test_an_anchor_of_many_runs_is_wrapped_and_read_again(digits):
    many = {f"run-{number}": "0123456789abcdef"[:digits] for number in range(20)}
    text = TEXT.replace("decoupled=aa", " ".join(f"{run}={digest}" for run, digest in many.items()))
    wrapped = rewritten(text, figures({"page.md": text}, [*RUNS, *many]))
    assert max(map(len, wrapped.splitlines())) <= 120
    assert figures({"page.md": wrapped}, [*RUNS, *many])["loss"].rests_on == {**many, "int4/course": ""}


@pytest.mark.parametrize(("text", "words"), [
    (LOSS.replace("decoupled", "decuopled"), "page.md:1: there is no canonical run 'decuopled'; did you mean 'decoup"),
    (LINKS.replace("the machine", ""), "page.md:1: this anchor is malformed"),
    (LINKS.replace("again: measure the links\n", ""), "page.md:1: this anchor is malformed"),
    ("<!-- figure: loss -->\n", "page.md:1: this anchor is malformed"),
    (LINKS.replace("-->", "--> ††"), "page.md:1: this anchor is malformed"),
    (LOSS + LINKS + LOSS, "page.md:7: figure 'loss' already stands at page.md:1: give it another ID")],
    ids=["unknown run", "no run", "no command", "bare", "two daggers", "twice"])
def test_a_wrong_anchor_is_refused_in_one_sentence(text, words):
    with pytest.raises(FiguresError) as wrong:
        figures({"page.md": text}, RUNS)
    assert words in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_a_figure_that_stands_on_two_pages_and_whatever_else_is_wrong_are_told_at_once():
    with pytest.raises(FiguresError) as wrong:
        figures({"a.md": LOSS, "b.md": LOSS.replace("decoupled", "streaming")}, RUNS)
    assert [line.partition(": ")[0] for line in str(wrong.value).splitlines()] == ["b.md:1", "b.md:1"]
