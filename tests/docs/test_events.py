"""The tables of evidence.md are those of the events."""

import re
import sys
from pathlib import Path

import pytest

from diloco_chaos.harness.record.tape.events import KINDS

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
import events

PAGE, SOURCE = events.PAGE.read_text(encoding="utf-8"), events.SOURCE.read_text(encoding="utf-8")


def test_the_page_has_the_tables_of_today():
    assert events.written(PAGE, SOURCE) == PAGE, "run `make docs`"


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_event_has_a_row_with_each_of_its_fields_and_a_star_where_one_may_be_missing(name):
    [row] = re.findall(rf"^\| `{name}` \| (.*) \|$", events.tables(SOURCE), re.MULTILINE)
    kind = KINDS[name]
    required = len(kind.__struct_fields__) - len(kind.__struct_defaults__)
    for place, field in enumerate(kind.__struct_encode_fields__):
        if field not in ("t", "node", "inc"):
            assert (f"`{field}`*" in row) == (place >= required), field
            assert f"`{field}`" in row
