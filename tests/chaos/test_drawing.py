"""What is drawn fits where it is drawn."""

from hypothesis import given
from hypothesis import strategies as st

from chaos import drawing


@given(end=st.floats(0.5, 2000), zero=st.floats(0, 30), width=st.integers(60, 200))
def test_the_seconds_under_a_timeline_fit_its_width_and_are_told_apart(end, zero, width):
    row = drawing.scale(0.0, end, zero, width).plain
    assert len(row) <= width
    labels = row.split(" s")
    assert all(label.lstrip(" -").isdigit() for label in labels if label.strip())
