"""Bytes of a log, as they come, to the lines that a terminal would show. Pure.

A line ends where the next text would begin at the left edge again: with a newline, with the carriage return of a
progress bar, or where the cursor is sent there. Colours and titles are taken out.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LONGEST = 1 << 20
"""Bytes of a line without an end that are kept; what is longer is read in pieces."""
_LONGEST_ESCAPE = 1 << 12
_TOKEN = re.compile(rb"\r\n|[\r\n]|\x08+|\x1b(?:\[(?P<numbers>[0-?]*)[ -/]*(?P<final>[@-~])"
                    rb"|[\]PX^_][^\x07\x1b\r\n]*(?:\x07|\x1b\\)|[ -/]*[0-OQ-WYZ`-~\\])")
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\r\n]*\x1b?|[ -/]*)\Z")
_BACKSPACE, _ESCAPE = b"\b\x1b"
_ENDS, _FORWARD, _BACK, _COLUMN = b"ABEFHdf", b"C", b"D", b"G`"
"""Final bytes of escapes that move the cursor: to another line, to the right, to the left, to a column."""


class Line(NamedTuple):
    """A line of a log."""

    text: str
    t: float = 0.0
    """When the last of its text was read; what ends it may come later."""


class Lines:
    """The lines of one file. Wherever its bytes are split, they are the same."""

    def __init__(self) -> None:
        self._lines: list[Line] = []  # that ended and were not returned yet
        self._text = b""  # of the line that has not ended
        self._t = 0.0  # when the last of it came
        self._back = 0  # characters at its end that the next text is written over
        self._unfinished = b""  # the beginning of an escape
        self._returned = False  # a newline now belongs to the carriage return before it
        self._first = True

    def feed(self, data: bytes, t: float = 0.0) -> list[Line]:
        """Return the lines that end in these bytes, which were read at `t`."""
        data, place = self._unfinished + data, 0
        self._unfinished = b""
        if (unfinished := _UNFINISHED.search(data, max(0, len(data) - _LONGEST_ESCAPE))) is not None:
            self._unfinished, data = data[unfinished.start():], data[:unfinished.start()]
        for token in _TOKEN.finditer(data):
            self._add(data[place:token.start()], t)
            place = token.end()
            self._obey(token)
        self._add(data[place:], t)
        lines, self._lines = self._lines, []
        return lines

    def end(self) -> list[Line]:
        """Return what nothing ends, where no more will come."""
        self._unfinished, self._returned = b"", False
        if self._text:
            self._end()
        lines, self._lines = self._lines, []
        return lines

    def _add(self, text: bytes, t: float) -> None:
        if not text:
            return
        if self._back:
            kept = self._text.decode("utf-8", "replace")[:-self._back].encode()
            self._end()  # it was shown
            self._text = kept
        self._text, self._t, self._returned = self._text + text, t, False
        while len(self._text) > LONGEST:
            blank = self._text.rfind(b" ", LONGEST // 2, LONGEST)
            cut = blank if blank > 0 else LONGEST
            rest, self._text = self._text[cut:], self._text[:cut]
            self._end()
            self._text = rest

    def _obey(self, token: re.Match[bytes]) -> None:
        """Do what a terminal would."""
        what, final = token[0], token["final"]
        if final is None:
            if what[0] == _BACKSPACE:
                self._back += len(what)
            elif what[0] != _ESCAPE:
                self._break(what)
        elif final in _BACK:
            self._back += _number(token["numbers"])
        elif final in _FORWARD or (final in _COLUMN and _number(token["numbers"]) > 1):
            self._text += b" "
        elif final in _ENDS or final in _COLUMN:
            self._break(b"\r")

    def _break(self, what: bytes) -> None:
        """A line ends where it has any text, or ends with a newline that is not the second half of an end."""
        if self._text or (what.endswith(b"\n") and not (self._returned and what == b"\n")):
            self._end()
            self._returned = what == b"\r"
        else:
            self._returned = False

    def _end(self) -> None:
        text = self._text.replace(b"\0", b"").replace(b"\x1b", b"").decode("utf-8", "replace")
        self._lines.append(Line(text.removeprefix("\ufeff") if self._first else text, self._t))
        self._text, self._back, self._first = b"", 0, False


def lines_of(data: bytes) -> list[str]:
    """Return all lines of a whole log."""
    lines = Lines()
    return [line.text for line in [*lines.feed(data), *lines.end()]]


def _number(text: bytes) -> int:
    return int(text[:4]) if text[:4].isdigit() else 1
