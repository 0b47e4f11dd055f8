"""Lines keep the moments of a run as numbers until they are printed."""

import pytest

from diloco_chaos.harness.base.lines import Instant, line, text


def test_numbers_are_moments_and_what_is_empty_is_left_out():
    assert line("from ", 1.5, "", " to ", Instant(2.0)) == ("from ", Instant(1.5), " to ", Instant(2.0))
    assert line("") == ()


def test_a_line_may_be_a_part_of_a_longer_one():
    assert line(line("at ", 3), "; ", line("why")) == ("at ", Instant(3.0), "; ", "why")


@pytest.mark.parametrize(("zero", "shown"), [(0.0, "0.50 s: at 12.34 s"), (10.004, "0.50 s: at 2.34 s"),
                                             (20.0, "0.50 s: at -7.66 s")])
def test_moments_alone_count_from_zero(zero, shown):
    assert text(line("0.50 s: at ", 12.344), zero) == shown


def test_a_text_stands_for_itself():
    assert text("at 12.34 s", 10.0) == "at 12.34 s"
