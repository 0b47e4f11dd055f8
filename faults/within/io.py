"""Faults of files, inside a live process: calls that fail, come late, do a part, or write something else. Nothing is
restarted."""

from __future__ import annotations

import errno
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from diloco_chaos.faults.base import Drawn, FaultContext, Observation, Strain, unable
from diloco_chaos.faults.within.counted import Counted
from diloco_chaos.harness.base.errors import nearest
from diloco_chaos.harness.base.units import Part, Seconds, Size, names, show_bytes, show_seconds
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.places.capabilities import CallFaults
from diloco_chaos.harness.preload.page import CALLS, LONGEST_PATTERN, Action, Call, Hits, Rule
from diloco_chaos.harness.trainers.core.programs import named

_WORDS = ("run", "here", "name", "index")
_SHOWN = 5
_OF_A_DISK: tuple[Call, ...] = ("open", "read", "write", "fsync", "rename")
_DEFAULTS: dict[str, tuple[Call, ...]] = {
    "ENOSPC": ("write",), "EDQUOT": ("write",), "EIO": ("read", "write", "fsync"), "EROFS": ("open", "rename"),
    "ESTALE": _OF_A_DISK, "delay": _OF_A_DISK, "hang": _OF_A_DISK, "short": ("read", "write"),
    **dict.fromkeys(("bit", "zeros", "sign", "scale", "nan"), ("write",))}
"""What a disk or a file server in that state makes fail."""


_INSTEAD = {"bit": "a bit turned over", "zeros": "zeros instead", "sign": "a value of the other sign",
            "scale": "a value of another magnitude", "nan": "a NaN"}
"""What is corrupted -> what is there, in words for people."""


def _known_words(value: str) -> str:
    if unknown := [word for word in named([value]) if word not in _WORDS]:
        raise ValueError(f"{{{unknown[0]}}} stands for nothing here{nearest(unknown[0], _WORDS)}; there are "
                         f"{', '.join(f'{{{word}}}' for word in _WORDS)}")
    return value


FilePattern = Annotated[str, Field(min_length=1, max_length=LONGEST_PATTERN - 2), AfterValidator(_known_words)]
"""A pattern of whole paths, in which a star means slashes, too; without a leading slash in any folder."""


class Io(Counted):
    """Calls of the target's processes on files fail with an error, come late, don't return while it lasts, do a part
    only, or write something else. A library that is preloaded into them does so, from one call to the next.

    What it does not see: programs that are linked statically, pages of mapped files, io_uring, and what the C library
    puts into a stream's buffer by itself (`fwrite` is seen, `fprintf` is not).
    """

    needs: ClassVar[frozenset[Ability]] = frozenset({"fail_calls"})
    strains: ClassVar[frozenset[Strain]] = frozenset({"disks"})
    drawn = Drawn(280, {"for": ("1s", "500ms", "2s"), "path": ("{run}/state/*",)}, family="disk", role="syncer",
                  simulated=False, ways=({"delay": "50ms"}, {"error": "ENOSPC"}, {"error": "EIO"}, {"hang": True}))

    kind: Literal["io"] = "io"
    path: FilePattern
    """A pattern of whole paths, in which a star means slashes, too; without a leading slash in any folder. It means a
    file also by the name that it will have once it is whole: `model.pt` means `model.pt.tmp` and
    `model.HEX.partial`, and any `.tmpXXXXXX` of Rust's tempfile in that folder."""
    calls: tuple[Call, ...] | None = Field(None, min_length=1, strict=False)
    """Which calls; None: those that the action is about, see docs/scenarios.md."""
    error: str | None = None
    """The name of the error that calls fail with: `ENOSPC`, `EIO`, ..."""
    delay: Seconds | None = Field(None, gt=0)
    """How long calls wait before they are made."""
    hang: Literal[True] | None = None
    """Calls don't return before the fault is over."""
    short: Literal[True] | None = None
    """Calls read or write half of what they are asked to."""
    corrupt: Literal["bit", "zeros", "sign", "scale", "nan"] | None = None
    """What is written has one bit turned over in each call, zeros from `after_bytes` on, or one value in each call with
    the other sign, of another order of magnitude, or NaN; files keep their length."""
    after_bytes: Size = 0
    """So much is read or written first. The call that crosses it does what still fits, as on a disk that is full."""
    share: Part = Field(1.0, gt=0)
    """Of the calls."""
    seed: int = Field(0, ge=0, lt=1 << 31)
    """Of the choice of these; a plan's freezing sets it."""

    @field_validator("calls", mode="before",
                     json_schema_input_type=Call | Annotated[list[Call], Field(min_length=1)] | None)
    @classmethod
    def _one_or_many_calls(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("error")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        errors = list(errno.errorcode.values())
        if value is not None and value not in errors:
            raise ValueError(f"there is no error {value!r}{nearest(value, errors)}; usual ones are "
                             f"{', '.join(list(_DEFAULTS)[:5])}")
        return value

    @model_validator(mode="after")
    def _one_action(self) -> Io:
        if sum(value is not None for value in (self.error, self.delay, self.hang, self.short, self.corrupt)) != 1:
            raise ValueError("say what becomes of the calls, in one way: `error: ENOSPC`, `delay: 200ms`, "
                             "`hang: true`, `short: true` or `corrupt: bit`")
        if self.corrupt is not None and self.meant != ("write",):
            raise ValueError("corrupt: only what is written can be corrupted: leave `calls` out")
        return self

    @property
    def action(self) -> Action:
        """Return what becomes of the calls."""
        if self.error is not None:
            return "error"
        if self.corrupt is not None:
            return self.corrupt
        return "delay" if self.delay is not None else "hang" if self.hang else "short"

    @property
    def meant(self) -> tuple[Call, ...]:
        """Return the calls that it means."""
        return self.calls or _DEFAULTS.get(self.error or self.action, ("read", "write"))

    def inject(self, hit: FaultContext) -> Observation:
        """Arm it for every target."""
        return unable([hit.having(CallFaults).arm(target, hit.id, self._rule(number))
                       for number, target in enumerate(self.targets)])

    def undo(self, hit: FaultContext) -> None:
        """Disarm it; what hangs goes on."""
        for target in self.targets:
            hit.having(CallFaults).disarm(target, hit.id)

    def observe_end(self, hit: FaultContext) -> Observation:
        """Return the calls that the processes themselves have counted."""
        done = {target: hit.having(CallFaults).hits(target, hit.id) for target in self.targets}
        if missed := unable(self._missed(target, each) for target, each in done.items()
                            if each is None or not each[0].calls):
            return missed
        hits = {target: each[0] for target, each in done.items() if each is not None}
        return {"ok": True, "hit": "; ".join(self._counted(target, each) for target, each in hits.items()),
                "calls": sum(sum(each.calls.values()) for each in hits.values()),
                "lost_bytes": sum(each.lost for each in hits.values())}

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        does = {"error": f"fails with {self.error}", "delay": f"waits for {show_seconds(self.delay or 0)}",
                "hang": "hangs", "short": "does half"}.get(self.action) or f"has {_INSTEAD[self.action]}"
        after = f" after {show_bytes(self.after_bytes)}" if self.after_bytes else ""
        share = f" ({self.share:.0%} of calls)" if self.share < 1 else ""
        return (f"{names(self.meant, 'or')} on {self.path} {does}{after}{share} at {names(self.targets)} "
                f"{self.describe_duration()}")

    def expected_lost_time(self) -> float:
        """Return its duration where calls hang, in seconds: a loop that writes stands still for it."""
        return (self.duration or 0.0) if self.hang else 0.0

    def _rule(self, number: int) -> Rule:
        return Rule(self.path, self.meant, self.action, self.error or "", self.delay or 0.0, self.after_bytes,
                    self.share, self.seed + number)

    def _counted(self, target: str, hits: Hits) -> str:
        calls = ", ".join(f"{hits.calls[call]} {call}" for call in CALLS if call in hits.calls)
        lost = f", {show_bytes(hits.lost)} of them {'changed' if self.corrupt else 'lost'}" if hits.lost else ""
        what = {"error": self.error, "delay": f"{show_seconds(self.delay or 0)} of waiting", "hang": "a hang",
                "short": "half"}.get(self.action) or _INSTEAD[self.action]
        return f"{target}: {what} for {calls} calls{lost}, first on {hits.first}"

    def _missed(self, target: str, done: tuple[Hits, list[str]] | None) -> str:
        if done is None:
            return f"{target}: it was never armed"
        hits, others = done
        if hits.met:
            why = (f"fewer than {show_bytes(self.after_bytes)} were read or written" if self.after_bytes else
                   "all were too small" if self.short or self.corrupt else "by chance")
            return f"{target}: {hits.met} calls on {self.path}, and none was hit: {why}"
        what = names(self.meant, "or")
        if not others:
            return f"{target}: no {what} on any file while it lasted"
        more = ", ..." if len(others) > _SHOWN else ""
        return f"{target}: no {what} on {self.path}; there was on {', '.join(others[:_SHOWN])}{more}"
