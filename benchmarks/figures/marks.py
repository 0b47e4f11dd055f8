"""Marks in the docs: a figure stands below `<!-- figure: ID -->`, which nobody sees; behind it comes a dagger where the
figure is stale, and a generated line at the end of the file says what that means. Anchors are all that a mark knows of
the docs, so that sections may be written anew around them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from benchmarks.figures.register import FILE, FiguresError, Register

_ANCHOR = re.compile(r"^<!-- figure: (\S+) -->( †)?$", re.MULTILINE)
_NOTE = "<!-- figures: what the daggers mean, generated -->\n"
_NOTED = re.compile(rf"\n{re.escape(_NOTE)}[^\n]*\n")
_WORDS = "† Measured before the trainer's behaviour changed, or nobody noted with which: {}. `make figures` tells " \
         "what has changed, and what measures it again.\n"


def marked(text: str, stale: Collection[str]) -> str:
    """Return the text with marks at the stale figures, and at no others."""
    bare = _NOTED.sub("", text)
    marked_text = _ANCHOR.sub(lambda match: f"<!-- figure: {match[1]} -->{' †' if match[1] in stale else ''}", bare)
    here = [name for name in anchors(marked_text) if name in stale]
    return f"{marked_text}\n{_NOTE}{_WORDS.format(', '.join(here))}" if here else marked_text


def anchors(text: str) -> list[str]:
    """The figures that stand there, in order."""
    return [match[1] for match in _ANCHOR.finditer(text)]


def documents(register: Register, root: Path) -> dict[str, str]:
    """Every file of the docs that figures stand in, by its path from `root`.

    Raises:
        FiguresError: a file or an anchor is missing, or is there twice, or nobody registered it.
    """
    texts = dict(_texts(register, root))
    for name, figure in register.figures.items():
        count = anchors(texts[figure.docs]).count(name)
        if count != 1:
            raise FiguresError(f"{figure.docs} should have one line `<!-- figure: {name} -->` and has {count}: put it "
                               f"just before the figure, or take {name} out of {FILE}")
    for docs, text in texts.items():
        for name in anchors(text):
            if name not in register.figures or register.figures[name].docs != docs:
                raise FiguresError(f"{docs} has a figure {name!r} that {FILE} does not have there: register it, or "
                                   f"take the line `<!-- figure: {name} -->` out")
    return texts


def untrue(register: Register, texts: Mapping[str, str]) -> list[str]:
    """Files whose marks are not those of the register."""
    return [docs for docs, text in texts.items() if marked(text, register.marked(docs)) != text]


def write(register: Register, texts: Mapping[str, str], root: Path) -> list[str]:
    """Put the register's marks there; returns the files that were changed."""
    changed = untrue(register, texts)
    for docs in changed:
        (root / docs).write_text(marked(texts[docs], register.marked(docs)))
    return changed


def _texts(register: Register, root: Path) -> Iterator[tuple[str, str]]:
    """Files that the register names, and others that have anchors."""
    named = {figure.docs for figure in register.figures.values()}
    others = {str(path.relative_to(root)) for path in [*root.glob("*.md"), *(root / "docs").glob("*.md")]}
    for docs in sorted(named | others):
        try:
            text = (root / docs).read_text()
        except OSError as error:
            raise FiguresError(f"{docs} can't be read ({error.strerror}): correct {FILE}, which has figures there"
                               ) from error
        if docs in named or anchors(text):
            yield docs, text
