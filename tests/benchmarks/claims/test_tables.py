"""Cells of the docs' tables."""

import pytest

from benchmarks.claims.tables import TableError, Tables

PAGE = """# A page

<!-- figure: pace
again: measure the pace
rests on: decoupled --> †
| | wanted | measured, in seconds |
|---|---|---|
| slow learner | 1 | **2.0** (1 to 3) |
| slow | 5 | 6 |
| quick | | 7 |

<!-- figure: words
again: measure the words
rests on: the machine -->
No table stands here.
"""


@pytest.fixture
def tables(tmp_path):
    (tmp_path / "page.md").write_text(PAGE)
    return Tables(tmp_path)


def test_a_cell_is_found_by_how_its_row_and_its_column_begin_and_a_stale_one_bears_a_dagger(tables):
    assert tables.cell("pace", "slow l", "measured") == "2.0 (1 to 3) †"


def test_a_row_of_that_very_name_is_meant_before_those_that_begin_so(tables):
    assert tables.cell("pace", "slow", "wanted") == "5 †"


def test_of_several_the_first_can_be_meant(tables):
    assert tables.cell("pace", "s", "wanted", first=True) == "1 †"


@pytest.mark.parametrize(("place", "words"), [
    (("pace", "s", "wanted"), "2 rows begin with 's'"), (("pace", "fast", "wanted"), "0 rows begin with 'fast'"),
    (("pace", "quick", "median"), "0 columns with 'median'"), (("speed", "quick", "wanted"), "no page has a table"),
    (("words", "quick", "wanted"), "no page has a table")])
def test_what_is_not_there_is_told(tables, place, words):
    with pytest.raises(TableError, match=words):
        tables.cell(*place)
