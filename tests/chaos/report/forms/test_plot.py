"""Lines over a variable, in a drawing."""

from xml.etree import ElementTree

import pytest

from diloco_chaos.chaos.report.forms.plot import PlottedLine, PlottedShare, plot_svg, rasterized

SVG = "{http://www.w3.org/2000/svg}"
LINES = [PlottedLine("one", [PlottedShare(1, 0.5, 0.1), PlottedShare(10, 0.25, 0.0), PlottedShare(100, 0.2, 0.0)]),
         PlottedLine("two <&>", [PlottedShare(1, 0.9, 0.0), PlottedShare(100, 0.21, 0.0)])]


def drawn(lines=LINES):
    return ElementTree.fromstring(plot_svg("Goodput", "chips", lines, lambda x: f"{x:g}"))


def texts(drawing):
    return {element.text: element for element in drawing.iter(f"{SVG}text")}


def test_every_point_has_its_place_on_axes_that_are_labelled():
    drawing = drawn()
    marks = [(float(mark.get("cx")), float(mark.get("cy"))) for mark in drawing.iter(f"{SVG}circle")]
    ticks = {text: float(element.get("x")) for text, element in texts(drawing).items() if text in ("1", "10", "100")}
    assert [x for x, _ in marks[:3]] == [ticks["1"], ticks["10"], ticks["100"]]
    assert ticks["10"] - ticks["1"] == pytest.approx(ticks["100"] - ticks["10"], abs=0.1)  # a hundred times as far
    whole, half = (float(texts(drawing)[share].get("y")) for share in ("100%", "0%"))
    assert marks[0][1] + 4 == pytest.approx((whole + half) / 2)


def test_labels_that_would_lie_on_each_other_are_moved_apart():
    found = texts(drawn())
    assert float(found["one"].get("y")) - float(found["two <&>"].get("y")) >= 15


def test_near_values_have_an_axis_that_is_even():
    ticks = texts(drawn([PlottedLine("one", [PlottedShare(x, 0.5, 0) for x in (1, 2, 3)])]))
    places = [float(ticks[text].get("x")) for text in "123"]
    assert places[1] - places[0] == pytest.approx(places[2] - places[1])


def test_a_single_value_is_drawn():
    assert len(list(drawn([PlottedLine("one", [PlottedShare(5, 0.5, 0.1)])]).iter(f"{SVG}circle"))) == 1


def test_it_can_be_made_a_picture():
    pytest.importorskip("resvg_py")
    assert rasterized(plot_svg("Goodput", "chips", LINES, str), "--plot").startswith(b"\x89PNG")
