"""Code in the documentation: blocks between ``` lines, and commands in backticks, each with where it stands."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"(?m)^```(\w*)\n(.*?)^```$", re.DOTALL)


@dataclass(frozen=True)
class Code:
    """A piece of code."""

    page: str
    line: int
    """Of its first line."""
    language: str
    """Empty for what is typed into a shell."""
    text: str

    def __str__(self):
        return f"{self.page}:{self.line}"

    @property
    def first(self):
        """The first line, by which a test names the block."""
        return self.text.split("\n", 1)[0]


def blocks(*languages):
    """All blocks of these languages, of all pages."""
    return [block for page in PAGES for block in _blocks(page) if block.language in languages]


def every_block():
    """All blocks."""
    return [block for page in PAGES for block in _blocks(page)]


def _blocks(page):
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        yield Code(str(page.relative_to(ROOT)), text.count("\n", 0, found.start()) + 2, found[1], found[2])


def typed():
    """Everything that is typed into a shell: commands of blocks, and ours in backticks."""
    for block in blocks("", "sh"):
        number, command = block.line, ""
        for index, line in enumerate(block.text.splitlines()):
            number = block.line + index if not command else number
            command += f"{line}\n"
            if _whole(command):
                yield Code(block.page, number, "sh", command.rstrip("\n"))
                command = ""
        assert not command, f"{block.page}:{number}: a quote is not closed"
    yield from in_backticks(r"(?:\.venv/bin/)?(?:diloco-chaos|make|pytest) [^`\n]+")


def _whole(command):
    """Whether no quote is open."""
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return False
    return True


def in_backticks(expression):
    """What stands in backticks and matches as a whole, outside of blocks."""
    for page in PAGES:
        text = _BLOCK.sub(lambda found: "\n" * found[0].count("\n"), page.read_text())
        for found in re.finditer(rf"(?<!`)`({expression})`(?!`)", text):
            yield Code(str(page.relative_to(ROOT)), text.count("\n", 0, found.start()) + 1, "", found[1])
