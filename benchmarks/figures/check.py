"""Which figures of the docs are still those of today's trainer: `make figures`, or `python -m
benchmarks.figures.check`.

Performs the canonical runs (some ten seconds), and lists the figures that rest on one whose behaviour has changed since
they were measured, below the commands that measure them again. Stale figures are no error. `benchmarks/digests.json`
holds the digests for which the docs were last marked, so daggers can be checked without a run, on any machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from benchmarks.figures import behaviour
from benchmarks.figures.anchors import Figure, FiguresError, figures, rewritten
from benchmarks.figures.behaviour import NAMES, comparable, without_build
from benchmarks.figures.canonical import RUNS
from diloco_chaos.harness.base.errors import nearest

ROOT = Path(__file__).parents[2]
FILE = Path("benchmarks") / "digests.json"
ALL = "all"
"""Stands for every figure."""
Digests = Mapping[str, str]
"""Canonical run, or its course -> its digest."""
_MARK = "run `python -m benchmarks.figures.check --mark`"


def live() -> dict[str, str]:
    """Every canonical run and its course, and their digests today."""
    return {name: digest for run in RUNS for name, digest in behaviour.digests(run).items()}


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Do what is asked for; returns the exit code."""
    options = _options(arguments)
    try:
        noted, docs = load(root)
        known = figures(docs, NAMES)
        measured = _named(options.measured, known)
    except FiguresError as error:
        print(error, file=sys.stderr)
        return 2
    now = live()
    if options.mark or options.measured:
        marked = {name: _marked(figure, noted, now, name in measured) for name, figure in known.items()}
        noted, docs = now, {path: rewritten(text, marked) for path, text in docs.items()}
        _save(root, noted, docs)
        known = figures(docs, NAMES)
    if not options.check:
        _list(known.values(), noted, now)
    problems = [*outdated(noted, now), *untrue(known.values(), noted)]
    print(*problems or ["the daggers in the docs are those of today's behaviour"], sep="\n")
    return bool(problems and options.check)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.figures.check", description=__doc__)
    does = parser.add_mutually_exclusive_group()
    does.add_argument("--mark", action="store_true",
                      help="note today's digests, and put a dagger at stale figures in the docs (and no others)")
    does.add_argument("--measured", nargs="+", metavar="ID", default=[],
                      help=f"these figures were measured with today's behaviour ({ALL}: every one); marks, too")
    does.add_argument("--check", action="store_true",
                      help="change nothing; exit code 1 if the daggers are not those of today's behaviour")
    return parser.parse_args(arguments)


def load(root: Path) -> tuple[Digests, dict[str, str]]:
    """Read the digests for which the docs were marked, and every page by its path from `root`.

    Raises:
        FiguresError: the digests are missing or malformed.
    """
    try:
        noted = msgspec.json.decode((root / FILE).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError) as error:
        raise FiguresError(f"{FILE} can't be read ({error}): take it from the repository") from error
    return noted, {str(page.relative_to(root)): page.read_text() for page in _pages(root)}


def _pages(root: Path) -> list[Path]:
    return sorted([*root.glob("*.md"), *root.glob("docs/*.md")])


def _save(root: Path, noted: Digests, docs: Mapping[str, str]) -> None:
    (root / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(noted)) + b"\n")
    for path, text in docs.items():
        if (root / path).read_text() != text:
            (root / path).write_text(text)


def _named(names: Sequence[str], known: Collection[str]) -> Collection[str]:
    """The figures of these names; `all` stands for every one."""
    if strange := [name for name in names if name not in known and name != ALL]:
        raise FiguresError(f"there is no figure {strange[0]!r}{nearest(strange[0], known)}: give one of "
                           f"{', '.join(known)}, or {ALL}")
    return known if ALL in names else names


def _marked(figure: Figure, noted: Digests, now: Digests, measured: bool) -> Figure:
    """Mark it for today's digests, all of which it gets if it was `measured`. A digest that another build of torch made
    can't be compared: if it is the one noted last, today's replaces it, and the figure stays fresh."""
    before, today = _without_builds(noted), _without_builds(now)
    moved = {run for run in _elsewhere(noted, now) if figure.rests_on.get(run) == before[run]}
    figure = replace(figure, rests_on={run: today[run] if measured or run in moved else digest
                                       for run, digest in figure.rests_on.items()})
    return replace(figure, dagger=bool(figure.changed(today)))


def _without_builds(digests: Digests) -> Digests:
    return {run: without_build(digest) for run, digest in digests.items()}


def _elsewhere(noted: Digests, now: Digests) -> list[str]:
    """Runs whose digests another build of torch made."""
    return [run for run, digest in noted.items() if run in now and not comparable(digest, now[run])]


def _today(noted: Digests, now: Digests) -> Digests:
    """Today's digests, and those noted where they can't be compared."""
    return {**now, **{run: noted[run] for run in _elsewhere(noted, now)}}


def outdated(noted: Digests, now: Digests) -> list[str]:
    """Say which runs are not what they were when the docs were marked, as far as that can be told here."""
    runs = [run for run, digest in _today(noted, now).items() if digest != noted.get(run)]
    return [f"the behaviour of {', '.join(runs)} is not that of {FILE}: {_MARK}"] if runs else []


def untrue(known: Collection[Figure], noted: Digests) -> list[str]:
    """Say which figures have a dagger and are fresh, or are stale and have none."""
    daggers = {True: "is fresh and has a dagger", False: "is stale and has no dagger"}
    return [f"{figure.where}: figure {figure.name} {daggers[figure.dagger]}: {_MARK}"
            for figure in known if figure.dagger != bool(figure.changed(_without_builds(noted)))]


def _list(known: Collection[Figure], noted: Digests, now: Digests) -> None:
    """Print the stale figures, below the commands that measure them again."""
    today = _without_builds(_today(noted, now))
    stale = [figure for figure in known if figure.changed(today)]
    for again in dict.fromkeys(figure.again for figure in stale):
        print(again)
        for figure in (figure for figure in stale if figure.again == again):
            changed = [run if figure.rests_on[run] else f"{run} (never noted)" for run in figure.changed(today)]
            print(f"    {figure.where}: {figure.name} (changed: {', '.join(changed)})")
    print(f"{len(stale)} of {len(known)} figures were measured with another behaviour of the trainer than today's; "
          f"{sum(not figure.rests_on for figure in known)} depend on the machine alone, and are never stale")
    if elsewhere := _elsewhere(noted, now):
        print(f"not compared, because another build of torch than {behaviour.torch_build()} made their digests: "
              f"{', '.join(elsewhere)}")


if __name__ == "__main__":
    sys.exit(main())
