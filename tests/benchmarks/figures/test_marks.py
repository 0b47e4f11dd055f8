"""Marks stand beside stale figures, and go away again."""

import pytest

from benchmarks.figures import marks
from benchmarks.figures.marks import anchors, documents, marked, untrue
from benchmarks.figures.register import FiguresError, Register

TEXT = """# Figures

<!-- figure: loss -->
| gap | mean |
|---|---|
| one | 1% |

<!-- figure: wire -->
Bytes a token: 6.
"""


@pytest.fixture
def register():
    def figure(before):
        return {"about": "it", "docs": "docs/figures.md", "again": "measure it", "rests_on": {"decoupled": before}}
    return Register.model_validate({"behaviour": {"decoupled": "aa"}, "figures": {
        "loss": figure("xx"), "wire": figure("aa")}})


@pytest.fixture
def root(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "figures.md").write_text(TEXT)
    (tmp_path / "README.md").write_text("Nothing of interest.\n")
    return tmp_path


def test_a_stale_figure_has_a_dagger_and_the_file_says_at_its_end_what_that_means():
    found = marked(TEXT, {"loss"})
    assert "<!-- figure: loss --> †\n| gap" in found
    assert "<!-- figure: wire -->\nBytes" in found
    assert found.splitlines()[-1].startswith("† Measured before")
    assert ": loss. `make figures`" in found.splitlines()[-1]


@pytest.mark.parametrize("stale", [set(), {"loss"}, {"wire"}, {"loss", "wire"}])
def test_marking_twice_is_marking_once_and_fresh_figures_lose_their_marks(stale):
    once = marked(TEXT, stale)
    assert marked(once, stale) == once
    assert marked(once, set()) == TEXT
    assert marked(once, {"loss"}) == marked(TEXT, {"loss"})


def test_text_around_anchors_may_be_written_anew():
    rewritten = marked(TEXT, {"loss"}).replace("| one | 1% |", "| one | 2% |\n| two | 3% |") + "\n## More\n\nWords.\n"
    found = marked(marked(rewritten, {"wire"}), set())
    assert "†" not in found
    assert "6.\n\n## More\n" in found
    assert anchors(found) == ["loss", "wire"]


def test_marks_are_written_where_they_are_not_true_and_only_there(register, root):
    texts = documents(register, root)
    assert untrue(register, texts) == ["docs/figures.md"]
    assert marks.write(register, texts, root) == ["docs/figures.md"]
    texts = documents(register, root)
    assert texts["docs/figures.md"] == marked(TEXT, {"loss"})
    assert untrue(register, texts) == marks.write(register, texts, root) == []


@pytest.mark.parametrize(("docs", "words"), [
    (TEXT.replace("<!-- figure: loss -->\n", ""), "one line `<!-- figure: loss -->` and has 0"),
    (TEXT + "<!-- figure: loss -->\n", "one line `<!-- figure: loss -->` and has 2"),
    (TEXT + "<!-- figure: rivals -->\n", "a figure 'rivals' that"), (None, "can't be read")])
def test_a_missing_a_double_and_a_strange_anchor_are_refused_in_one_sentence(docs, words, register, root):
    if docs is None:
        (root / "docs" / "figures.md").unlink()
    else:
        (root / "docs" / "figures.md").write_text(docs)
    with pytest.raises(FiguresError) as wrong:
        documents(register, root)
    assert words in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_a_figure_that_stands_in_another_file_than_it_is_registered_for_is_refused(register, root):
    (root / "README.md").write_text("<!-- figure: wire -->\n| a |\n")
    with pytest.raises(FiguresError, match=r"README\.md has a figure 'wire'"):
        documents(register, root)
