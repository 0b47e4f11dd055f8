"""Writes the tables of evidence.md from the definitions of the events: `python docs/events.py`, or `make docs`.

Prints nothing where they are up to date. `--check` changes nothing; exit code 1: they are not.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).with_name("evidence.md")
SOURCE = Path(__file__).parents[1] / "harness" / "record" / "tape" / "events.py"
BEGIN, END = "<!-- made from harness/record/tape/events.py by `make docs` -->", "<!-- end -->"
_GROUP = re.compile(r"^# -- (.+?) -+$", re.MULTILINE)
_HIDDEN = ("Event", "Custom", "MergedPart", "Versions", "Observation")


def tables(source: str) -> str:
    """One table for each group of events, and one for the parts of a merge."""
    module = ast.parse(source)
    classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    groups = [(match.group(1), source[:match.start()].count("\n")) for match in _GROUP.finditer(source)]
    text = []
    for (name, line), (_, end) in zip(groups, [*groups[1:], ("", len(source.splitlines()))], strict=True):
        rows = [_row(node, classes) for node in classes.values() if line < node.lineno <= end
                and node.name not in _HIDDEN]
        text.append(f"### {name[0].upper()}{name[1:]}\n\n| event | fields |\n|---|---|\n" + "".join(rows))
    parts = "".join(f"| `{name}`{mark} | {words} |\n" for name, mark, words in _fields(classes["MergedPart"]))
    text.append(f"### What went into a merge\n\nOf each of its `contributions`:\n\n| field | |\n|---|---|\n{parts}")
    return "\n".join(text)


def _row(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> str:
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", node.name).lower()
    inherited = [field for base in node.bases if isinstance(base, ast.Name) and base.id in _HIDDEN[3:]
                 for field in _fields(classes[base.id])]
    fields = "; ".join(f"`{field}`{mark}" + (f" ({_begun(words)})" if words else "")
                       for field, mark, words in [*inherited, *_fields(node)])
    return f"| `{name}` | {_words(ast.get_docstring(node))}{' ' if fields else ''}{fields} |\n"


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    """Each with a star where it may be missing, and with what is said of it."""
    for place, item in enumerate(node.body):
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and "ClassVar" not in ast.dump(item):
            after = node.body[place + 1] if place + 1 < len(node.body) else None
            said = (after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else "")
            star = "*" if _optional(item.value) else ""
            yield item.target.id.removesuffix("_"), star, _words(str(said)).removesuffix(".")


def _optional(value: ast.expr | None) -> bool:
    return value is not None and not (isinstance(value, ast.Call) and all(
        keyword.arg == "name" for keyword in value.keywords))  # `field(name="from")` gives it another name, no default


def _begun(words: str) -> str:
    """Without its capital, unless that is part of a name."""
    return words[0].lower() + words[1:] if words[1:2].islower() or words[1:2] == " " else words


def _words(text: str | None) -> str:
    """On one line, as a table has it."""
    return " ".join((text or "").split()).replace("|", "\\|")


def written(page: str, source: str) -> str:
    """The page with these tables."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{tables(source)}\n{END}{rest.partition(END)[2]}"


def main() -> int:
    """Returns the exit code."""
    page = PAGE.read_text(encoding="utf-8")
    new = written(page, SOURCE.read_text(encoding="utf-8"))
    if "--check" in sys.argv:
        return int(new != page)
    if new != page:
        PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
