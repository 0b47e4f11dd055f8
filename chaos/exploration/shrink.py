"""The smallest schedule that still breaks: faults are left out, then what is left is made simpler. Pure but for the
runs that it asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from diloco_chaos.chaos.exploration.generate import Document

Breaks = Callable[[Sequence[Document]], bool]
"""Whether a schedule still breaks; one that can't be does not."""
_SIMPLER: dict[str, tuple[object, ...]] = {
    "restart_after": ("1s",), "for": ("1s", "2s"), "direction": ("both",), "jitter": ("0s",), "delay": ("20ms",),
    "rate": ("1MB/s",), "count": (1,), "content": ("nan",), "files": (1,), "factor": (0.5,), "by": ("1s",),
    "close_after": ("0s",), "reset_after": ("0s",)}


def shrunk(faults: Sequence[Document], breaks: Breaks, most_runs: int = 120,
           members: Mapping[str, Sequence[str]] = {}, at: str = "5s") -> list[Document]:
    """A schedule that breaks and from which nothing can be left out; after so many runs the best that was found.
    `members`: of each target that is several, its single ones. `at`: when a fault comes that waited for something."""
    left = most_runs

    def still(candidate: Sequence[Document]) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and breaks(candidate)
    best = list(faults)
    smaller = True
    while smaller and left > 0:
        smaller = False
        for candidate in [*_fewer(best, at), *_narrower(best, members), *_simpler(best, at)]:
            if still(candidate):
                best, smaller = candidate, True
                break
    return best


def _fewer(faults: list[Document], at: str) -> Iterator[list[Document]]:
    """Without some, the later ones first; whoever waited for one that is gone comes at a time of its own."""
    if len(faults) > 2:
        yield from ([fault] for fault in faults if "after" not in fault)
    for gone in reversed(range(len(faults))):
        yield _without(faults, gone, at)


def _without(faults: list[Document], gone: int, at: str) -> list[Document]:
    rest = []
    for number, fault in enumerate(faults):
        if number == gone:
            continue
        after = fault.get("after")
        if after:
            before = int(after["fault"][1:]) - 1
            if before == gone:
                fault = {key: value for key, value in fault.items() if key != "after"} | {"at": at}
            elif before > gone:
                fault = fault | {"after": after | {"fault": f"f{before}"}}
        rest.append(fault)
    return rest


def _narrower(faults: list[Document], members: Mapping[str, Sequence[str]]) -> Iterator[list[Document]]:
    """A single member of a domain in its place."""
    for number, fault in enumerate(faults):
        for key, value in fault.items():
            if isinstance(value, str) and value in members:
                yield from ([*faults[:number], fault | {key: name}, *faults[number + 1:]] for name in members[value])


def _simpler(faults: list[Document], at: str) -> Iterator[list[Document]]:
    """One setting of one fault as simple as it gets, or its trigger a time."""
    for number, fault in enumerate(faults):
        for key, values in _SIMPLER.items():
            if key in fault and key != "count" and fault[key] not in values:
                yield from ([*faults[:number], fault | {key: value}, *faults[number + 1:]] for value in values)
        when = fault.get("when")
        if when and when.get("count", 0) > 20 and "failpoint" in when:
            yield [*faults[:number], fault | {"when": when | {"count": 20}}, *faults[number + 1:]]
        if when:
            plain = {key: value for key, value in fault.items() if key != "when"} | {"at": at}
            yield [*faults[:number], plain, *faults[number + 1:]]
