"""The bytes of a log are the lines that a terminal would show, wherever they are split."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.trainers.core.log_lines import LONGEST, Lines, lines_of

ENDS = ["\n", "\r\n", "\r", "\x1b[1A", "\x1b[G", "\x1b[2;1H"]
ESCAPES = ["", "\x1b[0m", "\x1b[1;32m", "\x1b[K", "\x1b[2K", "\x1b]0;a title\x07", "\x1b]8;;http://x\x1b\\", "\x1b(B",
           "\x1b[?25l", "\x00"]
WORDS = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=8)


@st.composite
def logs(draw):
    """(bytes, lines): what is written, and what that shows."""
    text, shown = "", []
    for _ in range(draw(st.integers(0, 8))):
        words = draw(st.lists(WORDS, min_size=1, max_size=3))
        escapes = draw(st.lists(st.sampled_from(ESCAPES), min_size=3, max_size=3))
        text += "".join(word + escape for word, escape in zip(words, escapes, strict=False))
        text += draw(st.sampled_from(ENDS))
        shown.append("".join(words))
    return text.encode(), shown


def fed(data, places):
    """The lines of bytes that are read in parts."""
    lines, borders = Lines(), [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    parts = [data[start:end] for start, end in pairwise(borders)]
    return [line.text for part in parts for line in lines.feed(part)] + [line.text for line in lines.end()]


@given(logs(), st.lists(st.integers(0, 10_000), max_size=20))
def test_what_is_shown_is_what_is_read(log, places):
    data, shown = log
    assert [line for line in fed(data, places) if line] == shown


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=20))
def test_whatever_the_bytes_are_it_does_not_matter_where_they_are_split(data, places):
    assert fed(data, places) == lines_of(data)


@given(st.text("ab\n\r\b\x1b[]mKGA10;\x07\\", max_size=60), st.lists(st.integers(0, 60), max_size=20))
def test_nor_does_it_amid_escapes(text, places):
    assert fed(text.encode(), places) == lines_of(text.encode())


@pytest.mark.parametrize(("written", "shown"), [
    ("\r1/160\r2/160", ["1/160", "2/160"]), ("a\n\nb\r\n\r\n", ["a", "", "b", ""]), ("12\b\b13\n", ["12", "13"]),
    ("50%\x1b[3D51%\n", ["50%", "51%"]), ("a\x1b[20Gb\x1b[5Cc\n", ["a b c"]), ("\ufeff{}\n", ["{}"]),
    ("tail", ["tail"]), ("", []), ("a\x1b", ["a"])])
def test_a_line_ends_where_a_terminal_would_begin_another(written, shown):
    assert lines_of(written.encode()) == shown


def test_a_line_was_there_when_its_text_came_and_not_when_it_ended():
    lines = Lines()
    assert lines.feed(b"\r1/2", 1.0) == []
    [line] = lines.feed(b"\r2/2", 2.0)
    assert line == ("1/2", 1.0)
    assert lines.end() == [("2/2", 2.0)]


def test_of_a_line_without_end_nothing_is_lost_and_little_is_kept():
    lines = Lines()
    words = b"".join(b"step=%d " % number for number in range(400_000))
    read = [line.text for start in range(0, len(words), 65_536) for line in lines.feed(words[start:start + 65_536])]
    read += [line.text for line in lines.end()]
    assert "".join(read).encode() == words
    assert max(map(len, read)) <= LONGEST
    assert all(text.startswith(("step=", " step=")) for text in read), "no number is parted"
