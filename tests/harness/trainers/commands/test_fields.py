"""Numbers and times are what is written, in whichever of its spellings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.trainers.commands.fields import MOST, moment, number, whole

AROUND = st.sampled_from(["{}", "{},", " {} ", "[{}]", "({})", "'{}'", '"{}"', "{};", "{}.", "tensor({})",
                          "tensor({}, device='cuda:0')", "np.float64({})", "tensor([{}])"])


@given(st.integers(0, MOST), st.sampled_from(["{}", "{:,}", "{:_}", "{}.0"]), AROUND)
def test_a_whole_number_is_read_however_it_is_written(value, form, around):
    assert whole(around.format(form.format(value))) == value


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["{!r}", "{:.17e}"]), AROUND)
def test_so_is_any_other(value, form, around):
    assert number(around.format(form.format(value))) == value


@pytest.mark.parametrize(("written", "value"), [("1,024", 1024), ("1,234.5", 1234.5), ("-1,024", -1024), ("+5", 5),
                                                (7, 7), (0.5, 0.5), ("1e-3", 0.001), ("inf", float("inf"))])
def test_separators_are_understood(written, value):
    assert number(written) == value


@pytest.mark.parametrize("written", ["0,25", "1,02", "1,0244", "n/a", "", "--", "None", "1.2k", "12:30", "0x10", True,
                                     None, [], {}, 10**400])
def test_what_is_no_number_is_refused_and_shown(written):
    with pytest.raises(ValueError, match=r"is no number|is too large"):
        number(written)


@pytest.mark.parametrize("written", ["-1", "7.5", "nan", "inf", "1e300", -1, 7.5, float("nan"), "9" * 5000])
def test_what_counts_nothing_is_refused(written):
    with pytest.raises(ValueError, match=r"is no whole number|is no number"):
        whole(written)


@given(st.integers(1_000_000_000, 3_000_000_000), st.integers(0, 999_999),
       st.sampled_from([timezone(timedelta(minutes=minutes)) for minutes in (0, 60, -480, 345)]))
def test_a_time_is_read_in_every_unit_and_form(seconds, micros, zone):
    exact = seconds + micros / 1e6
    at = datetime.fromtimestamp(seconds, zone).replace(microsecond=micros)
    whole_micros = seconds * 1_000_000 + micros
    for written in (exact, f"{exact:.6f}", whole_micros, f"{whole_micros}", whole_micros * 1000, exact * 1e3,
                    at.isoformat(), f"[{at.isoformat(' ', 'microseconds')}]",
                    at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z").replace(".", ",")):
        assert moment(written) == pytest.approx(exact, abs=1e-5)


@pytest.mark.parametrize("written", ["noon", "", "31/12/2030", -1, float("nan"), "inf", 10**400, True, [], "9999-99-99",
                                     1e30])
def test_what_is_no_time_is_refused(written):
    with pytest.raises(ValueError, match="is no time"):
        moment(written)
