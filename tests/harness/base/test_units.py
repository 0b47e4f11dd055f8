"""Quantities as people write and read them; those of scenarios are tested where scenarios are."""

import pytest

from diloco_chaos.harness.base.units import count, long_seconds, show_long


@pytest.mark.parametrize(("text", "seconds"), [
    ("1y", 31_557_600), ("30d", 2_592_000), ("2h", 7200), ("1.5min", 90), ("3m", 180), ("8s", 8), ("250ms", 0.25),
    ("0", 0)])
def test_a_long_duration_has_years_days_and_hours(text, seconds):
    assert long_seconds(text) == seconds


@pytest.mark.parametrize("text", ["1w", "-2h", "h", "5", "1e400y"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="write it like 90s, 2h, 30d or 1y"):
        long_seconds(text)


@pytest.mark.parametrize(("seconds", "words"), [
    (0.25, "250 ms"), (71.0, "71.0 s"), (119.0, "119.0 s"), (1800.0, "30 min"), (6460.0, "1.8 h"), (7200.0, "2 h"),
    (86_400.0 * 3, "3 d"), (31_557_600.0, "1 y"), (31_557_600.0 * 250, "250 y")])
def test_a_long_duration_is_read_in_its_largest_unit(seconds, words):
    assert show_long(seconds) == words


@pytest.mark.parametrize(("text", "number"), [("4096", 4096), ("150k", 150_000), ("1.2M", 1_200_000),
                                            ("12B", 12 * 10**9)])
def test_a_count_may_be_in_thousands_and_millions(text, number):
    assert count(text) == number


@pytest.mark.parametrize("text", ["1.5", "many", "1.00001k", "-3", "1e400"])
def test_what_is_no_count_is_refused(text):
    with pytest.raises(ValueError, match=r"write it like 4096, 150k or 1\.2M"):
        count(text)
