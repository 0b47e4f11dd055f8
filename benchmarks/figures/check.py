"""Which figures of the docs are still those of today's trainer: `make figures`, or `python -m
benchmarks.figures.check`.

Performs the canonical runs (some ten seconds), and lists the figures that rest on one whose behaviour has changed since
they were measured, with what measures them again. Stale figures are no error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.figures import behaviour, marks, register
from benchmarks.figures.canonical import RUNS
from benchmarks.figures.register import ALL, FILE, FiguresError, Register

ROOT = Path(__file__).parents[2]


def live() -> dict[str, str]:
    """Every canonical run and its course, and their digests today."""
    return {name: digest for run in RUNS for name, digest in behaviour.digests(run).items()}


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Do what is asked for; returns the exit code."""
    options = _options(arguments)
    try:
        known = register.load(root / FILE)
        texts = marks.documents(known, root)
        measured = known.named(options.measured or ())
        now = live()
        if options.check:
            return _check(known, texts, now)
        if options.mark or measured:
            known.take(now)
            known.measured(measured)
            register.save(known, root / FILE)
            for docs in marks.write(known, texts, root):
                print(f"{docs}: marks changed")
        _list(known, now)
        if trouble := _untrue(known, marks.documents(known, root), now):
            print(f"\n{trouble}")
    except FiguresError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.figures.check", description=__doc__)
    parser.add_argument("--mark", action="store_true",
                        help="note today's behaviour, and mark stale figures in the docs (and no others)")
    parser.add_argument("--measured", nargs="+", metavar="ID",
                        help=f"these figures were measured with today's behaviour ({ALL}: every one); marks, too")
    parser.add_argument("--check", action="store_true",
                        help="change nothing; exit code 1 if the marks are not those of today's behaviour")
    return parser.parse_args(arguments)


def _check(known: Register, texts: Mapping[str, str], now: Mapping[str, str]) -> int:
    trouble = _untrue(known, texts, now)
    print(trouble or "the marks in the docs are those of today's behaviour")
    return bool(trouble)


def _untrue(known: Register, texts: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return which marks are not true and the command that mends them; empty where all are true."""
    problems = []
    if runs := known.outdated(now):
        problems.append(f"the behaviour of {', '.join(runs)} is not what it was when the docs were marked")
    if files := marks.untrue(known, texts):
        problems.append(f"the marks in {', '.join(files)} are not those of {FILE}")
    return f"{'; '.join(problems)}: run `python -m benchmarks.figures.check --mark`" if problems else ""


def _list(known: Register, now: Mapping[str, str]) -> None:
    """Print the stale figures and the commands that measure them again."""
    stale = known.stale(now)
    for name, runs in stale.items():
        figure = known.figures[name]
        changed = [run if figure.rests_on[run] else f"{run} (nobody noted it)" for run in runs]
        print(f"{name}: {figure.about} ({figure.docs})\n    changed: {', '.join(changed)}\n    again:   {figure.again}")
    never = sum(bool(figure.never_stale) for figure in known.figures.values())
    print(f"{len(stale)} of {len(known.figures)} figures were measured with another behaviour of the trainer than "
          f"today's; {never} depend on the machine alone, and are never stale")
    if commands := dict.fromkeys(known.figures[name].again for name in stale):
        print("measure them again:", *commands, sep="\n    ")
    if runs := known.elsewhere(now):
        print(f"not compared, because they were noted with another build of torch than "
              f"{behaviour.torch_build()}: {', '.join(runs)}")


if __name__ == "__main__":
    sys.exit(main())
