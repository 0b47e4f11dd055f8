"""Lines of text in which a moment of a run stays a number until the line is printed: the tape counts from when the run
began, and people count from its steady state."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Instant:
    """A moment of a run."""

    t: float
    """Seconds since the run began."""


Line = tuple[str | Instant, ...]


def line(*parts: str | float | Instant | Line) -> Line:
    """A line of these parts. A number is a moment, in seconds since the run began; a duration is text."""
    made: list[str | Instant] = []
    for part in parts:
        if isinstance(part, tuple):
            made += part
        elif part != "":
            made.append(part if isinstance(part, str | Instant) else Instant(float(part)))
    return tuple(made)


def text(of: str | Line, zero: float = 0.0) -> str:
    """A line as people read it, its moments as seconds since `zero`. They are rounded before `zero` is taken off, so
    that two prints of a line differ by the same in every moment."""
    return "".join(part if isinstance(part, str) else f"{round(part.t, 2) - zero:.2f} s" for part in line(of))
