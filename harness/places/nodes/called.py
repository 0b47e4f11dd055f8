"""Finds the process that a scenario calls NAME-ID among those that a node has started.

In a container this file runs by itself, `python3 -c ... EXPRESSION ID SIGNAL`, and signals it: nothing of ours is
there, or imported. It prints the pids that were signalled.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Collection


def read(pid: int, file: str) -> str:
    """Return what the kernel tells of a process; empty where it is gone, or not ours."""
    try:
        with open(f"/proc/{pid}/{file}", "rb") as opened:
            return opened.read().decode("utf-8", "replace")
    except OSError:
        return ""


def stat(pid: int) -> list[str]:
    """Return the fields of a process from its state on; the parent is the second, the start the twentieth."""
    return read(pid, "stat").rpartition(")")[2].split()


def words(pid: int) -> list[str]:
    """Return all by which a process may be known."""
    return [*read(pid, "cmdline").split("\0"), *read(pid, "environ").split("\0"), read(pid, "comm").rstrip("\n")]


def called(expression: str, which: str, first: int, among: Collection[int]) -> list[int]:
    """Return the processes of this name, the first one first.

    A process has it by a word of its command line, a variable, or what it calls itself. Forks inherit the first two, so
    the node itself is none, and of a process and its descendants only the topmost is. Several that remain are numbered
    by when they began, those last that have left their parents: `ID.2` is the second, and without a group in the
    expression the number is all there is.

    Args:
        expression: for all of a word.
        which: ID, or ID.NUMBER.
        first: the node's own process.
        among: all that there are.
    """
    pattern = re.compile(expression)
    named = {pid: [match[1] if pattern.groups else "" for word in words(pid) if (match := pattern.fullmatch(word))]
             for pid in among if pid != first}
    wanted, number = which, 1
    if not any(which in ids for ids in named.values()):
        wanted, _, position = which.rpartition(".")
        number = int(position) if position.isdecimal() else 0
    stats = {pid: fields for pid, ids in named.items() if wanted in ids and (fields := stat(pid))}
    order = sorted((not below(pid, first), int(fields[19]), pid) for pid, fields in stats.items()
                   if int(fields[1]) not in stats)
    return [pid for *_, pid in order[number - 1:]] if number else []


def below(pid: int, first: int) -> bool:
    """Return whether a process descends from the node's own."""
    while pid and pid != first:
        pid = int(fields[1]) if (fields := stat(pid)) else 0
    return pid == first


def main(expression: str, which: str, number: str) -> None:
    """Signal it in this container, whose first process is an init; a pause is taken back from all of that name."""
    there = [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if pid not in (1, os.getpid())]
    first = min((pid for pid in there if (fields := stat(pid)) and fields[1] == "1"), default=1)
    sent, found = signal.Signals(int(number)), called(expression, which, first, there)
    for pid in found if sent == signal.SIGCONT else found[:1]:
        try:
            os.kill(pid, sent)
        except ProcessLookupError:
            continue
        print(pid)


if __name__ == "__main__":
    main(*sys.argv[1:])
