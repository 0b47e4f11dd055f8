"""What fails of the calls on a simulated disk: the rules that a library carries out in real processes. Pure.

A file is written by one call there, and no call puts a part of it on the disk: `short`, which every writer makes good,
is counted and changes nothing.
"""

from __future__ import annotations

import errno
import math
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from diloco_chaos.harness.preload.page import Call, Hits, Rule
from diloco_chaos.harness.record.storage.checkpoint import PARTIAL

_VALUE = 4
"""Bytes of a value."""
_TURNS = {"sign": 0x80, "scale": 0x10}
"""Bits of a value's last byte, which has its sign and most of its exponent."""
_NAN = b"\xc0\x7f"


@dataclass
class _Armed:
    rule: Rule
    chance: random.Random
    met: int = 0
    passed: int = 0
    lost: int = 0
    hit: Counter[str] = field(default_factory=Counter)
    first: str = ""
    others: dict[str, None] = field(default_factory=dict)

    def means(self, call: Call, path: str) -> bool:
        """Return whether it is about this call on this file, also by the name that the file will have."""
        if call not in self.rule.calls:
            return False
        if any(fnmatchcase(name, self.rule.pattern) for name in (path, path.removesuffix(PARTIAL))):
            return True
        self.others[path] = None
        return False

    def bites(self, size: int) -> bool:
        """Return whether this call, of so many bytes, is one of those that it hits."""
        self.met += 1
        before, self.passed = self.passed, self.passed + size
        reached = self.passed > self.rule.after if size else before >= self.rule.after
        return reached and self.chance.random() < self.rule.share

    def count(self, call: Call, path: str, lost: int) -> None:
        """It has hit a call."""
        self.hit[call] += 1
        self.lost += lost
        self.first = self.first or path


class DiskFaults:
    """The rules that hold for one disk, by the fault's id."""

    def __init__(self, folder: str) -> None:
        """`folder`: the path that its files have."""
        self._folder = folder
        self._armed: dict[str, _Armed] = {}
        self._waits_s = 0.0

    def arm(self, fault: str, rule: Rule) -> None:
        """Let a rule hold from now on."""
        self._armed[fault] = _Armed(rule, random.Random(rule.seed))

    def disarm(self, fault: str) -> None:
        """Let it hold no more."""
        self._armed.pop(fault, None)

    def holds(self, fault: str) -> bool:
        """Return whether this fault's rule holds."""
        return fault in self._armed

    def __bool__(self) -> bool:
        """Return whether any rule holds."""
        return bool(self._armed)

    def hits(self, fault: str) -> tuple[Hits, list[str]]:
        """Return what a rule that holds has done, and the files with such calls that it did not mean."""
        armed = self._armed[fault]
        return Hits(armed.met, dict(armed.hit), armed.lost, armed.first), list(armed.others)

    @property
    def hang_lasts(self) -> bool:
        """Return whether a rule holds by which calls do not return."""
        return any(armed.rule.action == "hang" for armed in self._armed.values())

    def waited_s(self) -> float:
        """Return how long calls since the last look had to wait, in seconds; infinite: until no such rule holds."""
        waits, self._waits_s = self._waits_s, 0.0
        return waits

    def called(self, call: Call, name: str) -> None:
        """A call without data is made.

        Raises:
            OSError: it fails.
        """
        if self._armed:
            self.passed(call, name, b"")

    def passed(self, call: Call, name: str, data: bytes) -> bytes:
        """Return what a call makes of the data that it reads or writes.

        Raises:
            PartlyError: it fails.
        """
        path = f"{self._folder}/{name}"
        for armed in [each for each in self._armed.values() if each.means(call, path)]:
            if not armed.bites(len(data)):
                continue
            rule, fits = armed.rule, max(0, armed.rule.after - armed.passed + len(data))
            if rule.action == "error":
                armed.count(call, path, len(data) - fits)
                code = getattr(errno, rule.error)
                raise PartlyError(code, os.strerror(code), name, data[:fits])
            before, data = data, _changed(data, rule, fits, armed.chance)
            self._waits_s += rule.delay_s if rule.action == "delay" else math.inf if rule.action == "hang" else 0.0
            differ = sum(one != other for one, other in zip(before, data, strict=True)) if before is not data else 0
            armed.count(call, path, len(data) // 2 if rule.action == "short" else differ)
        return data


class PartlyError(OSError):
    """A call failed after it had done a part."""

    def __init__(self, code: int, words: str, name: str, done: bytes) -> None:
        super().__init__(code, words, name)
        self.done = done
        """Of the data, what was read or written."""


def _changed(data: bytes, rule: Rule, fits: int, chance: random.Random) -> bytes:
    """Return what is written instead; its length is the same."""
    if not data or rule.action in ("delay", "hang", "short"):
        return data
    changed = bytearray(data)
    if rule.action == "zeros":
        changed[fits:] = bytes(len(data) - fits)
    elif rule.action == "bit":
        changed[chance.randrange(fits if fits < len(data) else 0, len(data))] ^= 1 << chance.randrange(8)
    else:
        last = len(data) - 1 - _VALUE * chance.randrange(max(1, len(data) // (2 * _VALUE)))
        if rule.action == "nan":
            changed[last - 1:last + 1] = _NAN
        else:
            changed[last] ^= _TURNS[rule.action]
    return bytes(changed)
