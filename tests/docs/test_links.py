"""Links between the pages lead somewhere, and files that the pages name are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/README.md")]
LINKS = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text())
         if "://" not in link]
OF_A_TUTORIAL = ("scenarios/one-dies.yaml",)
"""Files that the reader makes."""


def anchors(page):
    """Of the headings, as GitHub makes them."""
    titles = re.findall(r"(?m)^#+ (.+)$", re.sub(r"(?ms)^```.*?^```$", "", page.read_text()))
    return {re.sub(r"[^\w -]", "", re.sub(r"`|\]\([^)]*\)|\[", "", title)).lower().replace(" ", "-")
            for title in titles}


@pytest.mark.parametrize(("page", "link"), LINKS, ids=lambda value: value if isinstance(value, str) else value.name)
def test_a_link_leads_somewhere(page, link):
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    assert target.exists()
    if anchor:
        assert anchor in anchors(target)


FOLDERS = ("chaos/", "faults/", "harness/", "scenarios/", "tests/", "docs/", "examples/", "benchmarks/", "docker/",
           ".ci/", "src/")
NAMED = [(page, path) for page in PAGES if page.name != "CHANGELOG.md"
         for path in re.findall(r"`([\w./*-]+/[\w./*-]*)`", page.read_text())
         if path.startswith(FOLDERS) and path not in OF_A_TUTORIAL]


@pytest.mark.parametrize(("page", "path"), NAMED, ids=lambda value: value if isinstance(value, str) else value.name)
def test_a_file_that_is_named_is_there(page, path):
    beside = [folder for folder in (ROOT, page.parent) if list(folder.glob(path)) or (folder / f"{path}.py").is_file()]
    assert beside
