"""The page that the harness shares with every process of a node: what is armed, and what was hit. Its twin is page.h.

The harness arms and disarms, the processes count. Nothing is sent: a call that comes a moment later finds it.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from diloco_chaos.harness.preload.cuda import CudaHits, CudaPart, CudaRule

Call = Literal["open", "read", "write", "fsync", "rename", "close", "mmap"]
CALLS: tuple[Call, ...] = get_args(Call)
"""In the order of page.h, as are the actions."""
Action = Literal["error", "delay", "hang", "short", "bit", "zeros", "sign", "scale", "nan"]
_ACTIONS: tuple[Action, ...] = get_args(Action)
Holding = Literal["gil", "nothing", "network"]
_HOLDINGS: tuple[Holding, ...] = get_args(Holding)
STAND = 61
"""The signal that makes a main thread stand: one of real time that no library takes."""
_MAGIC, _RULES, _NAMES, _LONGEST = 0x31656761706F6964, 16, 32, 512
_TOKEN, _CALLED, _SPARED, _ALWAYS = 72, 28, 4, 65536
LONGEST_PATTERN = _LONGEST - 1
"""Bytes."""


class _Rule(ctypes.Structure):
    _fields_ = (("armed", ctypes.c_uint32), ("calls", ctypes.c_uint32), ("action", ctypes.c_uint32),
                ("error", ctypes.c_int32), ("share", ctypes.c_uint32), ("seed", ctypes.c_uint32),
                ("delay_ns", ctypes.c_uint64), ("after", ctypes.c_uint64), ("met", ctypes.c_uint64),
                ("passed", ctypes.c_uint64), ("lost", ctypes.c_uint64), ("hit", ctypes.c_uint64 * len(CALLS)),
                ("pattern", ctypes.c_char * _LONGEST), ("first", ctypes.c_char * _LONGEST))


class _Page(ctypes.Structure):
    _fields_ = (("magic", ctypes.c_uint64), ("generation", ctypes.c_uint32), ("active", ctypes.c_uint32),
                ("wanted", ctypes.c_uint32), ("loaded", ctypes.c_uint32), ("named", ctypes.c_uint32),
                ("hang", ctypes.c_uint32), ("holding", ctypes.c_uint32), ("stood", ctypes.c_uint32),
                ("with_gil", ctypes.c_uint32), ("stood_in", ctypes.c_char * _CALLED),
                ("token", ctypes.c_char * _TOKEN), ("spared", (ctypes.c_char * _LONGEST) * _SPARED),
                ("names", (ctypes.c_char * _LONGEST) * _NAMES), ("rules", _Rule * _RULES),
                ("cuda", CudaPart))


class Stood(NamedTuple):
    """A main thread that stands, or stood."""

    pid: int
    """Of its process."""
    call: str = ""
    """The network call in which it does; empty: it stands elsewhere."""
    with_gil: bool = False
    """Whether it has Python's lock."""


@dataclass(frozen=True)
class Rule:
    """What happens to which calls on which files."""

    pattern: str
    """Of whole paths, as `fnmatch` has it: a star also means slashes."""
    calls: Sequence[Call]
    action: Action
    error: str = ""
    """The name of the error that a call fails with (`ENOSPC`), where that is the action."""
    delay_s: float = 0.0
    after: int = 0
    """Bytes that are read or written before it bites."""
    share: float = 1.0
    """Of the calls."""
    seed: int = 0
    """Of the choice of these."""


@dataclass(frozen=True)
class Hits:
    """What a rule has done."""

    met: int
    """Calls that it meant."""
    calls: Mapping[str, int]
    """How many of each were hit; none that was not."""
    lost: int
    """Bytes that were to be read or written, and were not, or as others."""
    first: str
    """The file that was hit first; empty: none was."""


class PageFullError(RuntimeError):
    """More rules are armed than there is room for."""


class Page:
    """A page, in a file. Its maker and those who open it see the same."""

    def __init__(self, path: Path, token: str = "", spared: Sequence[str] = ()) -> None:
        """`token`: make a new one, for the run with this token; else it is there. `spared`: beginnings of paths, up to
        four, that no rule means.

        Raises:
            OSError: it can't be made or opened.
            ValueError: it is no page.
        """
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if token else 0)
        fd = os.open(path, flags, 0o600)
        try:
            if token:
                os.posix_fallocate(fd, 0, ctypes.sizeof(_Page))  # a full disk is to be told here, not by a signal
            self._map = mmap.mmap(fd, ctypes.sizeof(_Page))
        finally:
            os.close(fd)
        self._page = _Page.from_buffer(self._map)
        self._hangs = self._cuda_rules = 0
        if token:
            for number, beginning in enumerate(spared):
                self._page.spared[number].value = os.fsencode(beginning)
            self._page.token, self._page.magic = token.encode("ascii"), _MAGIC
        if self._page.magic != _MAGIC:
            raise ValueError(f"{path} is no page")

    @property
    def free(self) -> int:
        """Return the number that the next rule will have; that of the last one and one more: there is no room."""
        active = int(self._page.active)
        return next((number for number in range(_RULES) if not active >> number & 1), _RULES)

    def arm(self, rule: Rule) -> int:
        """Let a rule hold from now on; return the number by which it is known.

        Raises:
            PageFullError: there is no room.
        """
        page, number = self._page, self.free
        if number == _RULES:
            raise PageFullError(f"{_RULES} faults of files at a time on a node are the most")
        slot = page.rules[number]
        armed = slot.armed + 1
        ctypes.memset(ctypes.addressof(slot), 0, ctypes.sizeof(slot))
        slot.armed, slot.pattern, slot.action = armed, os.fsencode(rule.pattern), _ACTIONS.index(rule.action)
        slot.calls = sum(1 << CALLS.index(call) for call in set(rule.calls))
        slot.error = getattr(errno, rule.error) if rule.error else 0
        slot.share, slot.seed, slot.after = round(rule.share * _ALWAYS), rule.seed, rule.after
        slot.delay_ns = round(rule.delay_s * 1e9)
        if not page.active:
            page.named = 0
        self._hold(page.active | 1 << number)
        return number

    def disarm(self, number: int) -> bool:
        """Let a rule hold no more; return whether it did."""
        held = bool(self._page.active >> number & 1)
        if held:
            self._hold(self._page.active & ~(1 << number))
        return held

    @property
    def token(self) -> str:
        """Return the token of the run that it belongs to."""
        return bytes(self._page.token).decode("ascii", "replace")

    @property
    def armed(self) -> int:
        """Return how many rules hold."""
        return int(self._page.active).bit_count()

    @property
    def loaded(self) -> int:
        """Return how many processes have had this page."""
        return int(self._page.loaded)

    def hang(self, holding: Holding) -> None:
        """Let main threads stand that get `STAND` from now on while they hold this; `network`: in the network call in
        which they are, or in their next one."""
        self._hangs += 1
        page = self._page
        page.holding, page.stood, page.stood_in, page.hang = _HOLDINGS.index(holding), 0, b"", self._hangs

    def release(self) -> bool:
        """Let what stands go on; return whether it was to stand."""
        held, self._page.hang = bool(self._page.hang), 0
        return held

    @property
    def stood(self) -> Stood | None:
        """Return the main thread that stood last since `hang`; None: none did."""
        page = self._page
        called = bytes(page.stood_in).decode("ascii", "replace")
        return Stood(int(page.stood), called, bool(page.with_gil)) if page.stood else None

    def arm_cuda(self, rule: CudaRule) -> None:
        """Let calls of the CUDA runtime do so from now on; one rule at a time."""
        self._cuda_rules += 1
        self._page.cuda.arm(rule, self._cuda_rules)

    def disarm_cuda(self) -> bool:
        """Let them do as ever, but in a process that has no device any more; return whether a rule held."""
        return bool(self._page.cuda.disarm())

    @property
    def cuda_hits(self) -> CudaHits:
        """Return what the last rule for calls of the CUDA runtime has done."""
        part: CudaPart = self._page.cuda
        return part.hits

    def hits(self, number: int) -> Hits:
        """Return what a rule has done since it was armed; also of one that is not any more."""
        slot = self._page.rules[number]
        calls: dict[str, int] = {call: int(slot.hit[index]) for index, call in enumerate(CALLS) if slot.hit[index]}
        return Hits(slot.met, calls, slot.lost, os.fsdecode(slot.first))

    def others(self) -> list[str]:
        """Return files on which there were such calls, and which no rule means: the first 32 of them."""
        names = [os.fsdecode(name.value) for name in self._page.names[:min(self._page.named, _NAMES)]]
        return [name for name in names if name]

    def _hold(self, active: int) -> None:
        page = self._page
        page.wanted = self._wanted(active)
        page.active = active
        page.generation += 1

    def _wanted(self, active: int) -> int:
        wanted = 0
        for number in range(_RULES):
            if active >> number & 1:
                wanted |= self._page.rules[number].calls
        return wanted
