"""Quantiles against quantiles, in a drawing."""

from xml.etree import ElementTree

import pytest

from diloco_chaos.chaos.report.forms.quantiles import DrawnQuantiles, QuantilePanel, quantiles_svg

SVG = "{http://www.w3.org/2000/svg}"
MARKS = {1.0: "1 s", 10.0: "10 s", 100.0: "100 s", 1e6: "12 d"}
SEEN = [1.0, 10.0, 100.0]


def drawn(*models, seen=SEEN, panels=1):
    return ElementTree.fromstring(quantiles_svg("Waits <&>", [QuantilePanel("repairs", seen, models, MARKS)] * panels))


def exact(label="model", values=SEEN):
    return DrawnQuantiles(label, values, [value / 2 for value in values], [value * 2 for value in values])


def places(drawing):
    return [(float(mark.get("cx")), float(mark.get("cy"))) for mark in drawing.iter(f"{SVG}circle")]


def test_a_model_that_is_right_lies_on_the_diagonal():
    drawing = drawn(exact())
    (left, bottom), (right, top) = (map(float, point.split()) for point in next(
        path.get("d") for path in drawing.iter(f"{SVG}path") if path.get("stroke-dasharray"))[1:].split(" L"))
    for x, y in places(drawing):
        assert (x - left) / (right - left) == pytest.approx((y - bottom) / (top - bottom), abs=1e-3)


def test_one_that_draws_longer_times_lies_above_it():
    right, longer = drawn(exact()), drawn(exact(), exact(values=[10.0, 100.0, 1000.0]))
    assert all(y < other for (_, y), (_, other) in zip(places(longer)[3:], places(longer)[:3], strict=True))
    assert len(places(right)) == 3


def test_axes_have_marks_only_where_there_are_values():
    texts = [element.text for element in drawn(exact()).iter(f"{SVG}text")]
    assert [texts.count(mark) for mark in MARKS.values()] == [2, 2, 2, 0]


def test_panels_stand_side_by_side_under_one_title():
    drawing = drawn(exact(), panels=3)
    texts = [(element.text, float(element.get("x"))) for element in drawing.iter(f"{SVG}text")]
    titles = [x for text, x in texts if text == "repairs"]
    assert len(set(titles)) == 3
    assert [text for text, _ in texts].count("Waits <&>") == 1
    assert float(drawing.get("width")) > max(titles) + 260


def test_a_single_value_is_drawn():
    one = DrawnQuantiles("model", [5.0], [5.0], [5.0])
    assert len(places(drawn(one, seen=[5.0]))) == 1
