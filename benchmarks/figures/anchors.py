"""Anchors in the docs: a figure is the table or the paragraph below a comment that says everything about it.

    <!-- figure: wire
    again: python -m benchmarks.bench --only wire
    rests on: decoupled/course=3977d0806ac5c2eb thin/course -->

It says which commands measure the figure again, and which canonical runs it rests on, with their digests when it was
measured (without the build of torch). A run without a digest counts as changed, because its digest was not noted. A
figure that rests on `the machine` is never stale. A dagger behind the comment marks a stale figure.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from diloco_chaos.harness.base.errors import nearest

ANCHOR = re.compile(r"^<!-- figure: (?P<name>\S+)\nagain: (?P<again>.+)\nrests on: (?P<runs>\w[^>]*)\s-->"
                    r"(?P<dagger> †)?$", re.MULTILINE)
_BEGIN = re.compile(r"^<!-- figure\b", re.MULTILINE)
_MACHINE = "the machine"
_WIDTH = 118
"""Columns of an anchor, beside its dagger."""


class FiguresError(Exception):
    """The docs, the digests or the arguments are wrong: one sentence a line, each with what to do."""


@dataclass(frozen=True)
class Figure:
    """What an anchor says."""

    name: str
    where: str
    """File and line."""
    again: str
    """The commands that measure it again."""
    rests_on: Mapping[str, str]
    """Canonical run, or its course -> its digest when the figure was measured, or nothing; empty: on the machine."""
    dagger: bool

    def changed(self, digests: Mapping[str, str]) -> list[str]:
        """The runs that it rests on and whose digests are not these."""
        return [run for run, before in self.rests_on.items() if before != digests.get(run)]

    def __str__(self) -> str:
        """Return the anchor."""
        runs = " ".join(f"{run}={digest}" if digest else run for run, digest in self.rests_on.items()) or _MACHINE
        wrapped = textwrap.fill(f"rests on: {runs} -->", _WIDTH, break_on_hyphens=False, break_long_words=False)
        return f"<!-- figure: {self.name}\nagain: {self.again}\n{wrapped}{' †' * self.dagger}"


def figures(docs: Mapping[str, str], runs: Collection[str]) -> dict[str, Figure]:
    """Every figure of these files, by its name; `docs` maps a path to its text, and `runs` are the canonical ones.

    Raises:
        FiguresError: an anchor is malformed, stands a second time, or rests on a run that doesn't exist.
    """
    known: dict[str, Figure] = {}
    problems = []
    for path, text in docs.items():
        for begin in _BEGIN.finditer(text):
            line = text[:begin.start()].count("\n") + 1
            where = f"{path}:{line}"
            if not (match := ANCHOR.match(text, begin.start())):
                problems.append(f"{where}: this anchor is malformed: write `<!-- figure: ID`, `again: COMMAND` and "
                                f"`rests on: RUN ... -->`, each on a line of its own")
                continue
            figure = _figure(match, where)
            problems += [f"{where}: there is no canonical run {run!r}{nearest(run, runs)}: name runs of "
                         f"benchmarks/figures/canonical.py, or `{_MACHINE}`"
                         for run in figure.rests_on if run not in runs]
            if (other := known.setdefault(figure.name, figure)) is not figure:
                problems.append(f"{where}: figure {figure.name!r} already stands at {other.where}: give it another ID")
    if problems:
        raise FiguresError("\n".join(problems))
    return known


def rewritten(text: str, known: Mapping[str, Figure]) -> str:
    """Return the text with the anchors of these figures."""
    return ANCHOR.sub(lambda match: str(known[match["name"]]), text)


def _figure(match: re.Match[str], where: str) -> Figure:
    runs = "" if match["runs"] == _MACHINE else match["runs"]
    rests_on = {run: digest for run, _, digest in (entry.partition("=") for entry in runs.split())}
    return Figure(match["name"], where, match["again"], rests_on, bool(match["dagger"]))
