"""Text of others shows what it is, and does nothing to a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.base.errors import all_printable, printable


@pytest.mark.parametrize(("text", "shown"), [
    ("\x1b[2J\x1b]0;owned\x07", "\\x1b[2J\\x1b]0;owned\\x07"), ("a\rb\bc", "a\\rb\\x08c"), ("\x9b31m", "\\x9b31m"),
    ("PASSED\u202eDELIAF", "PASSED\\u202eDELIAF"), ("\u2066x\u2069", "\\u2066x\\u2069"), ("\u200bx", "\\u200bx"),
    ("\ud800", "\\ud800"), ("tabs\tand\nlines", "tabs\tand\nlines"), ("大きさ, 12 µs ≤ 1 s", "大きさ, 12 µs ≤ 1 s")])
def test_what_a_terminal_would_obey_or_not_show_is_shown(text, shown):
    assert printable(text) == shown


@given(st.text())
def test_the_rest_stays_as_it_is_and_nothing_is_left_to_do(text):
    assert printable(printable(text)) == printable(text)
    assert all(char.isprintable() or char in "\t\n" or not char.isascii() for char in printable(text))


def test_all_of_a_document_is_shown():
    assert all_printable({"a\x1b": ["\x07", {"b": "\r"}, 1, None]}) == {"a\\x1b": ["\\x07", {"b": "\\r"}, 1, None]}
