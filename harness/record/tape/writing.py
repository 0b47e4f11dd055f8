"""What a node writes of itself: each event is in the kernel's hands before the node goes on."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from diloco_chaos.harness.record.tape.events import Event
from diloco_chaos.harness.record.tape.line import line, parse


def write(events: Iterable[Event], folder: Path) -> None:
    """Write events as their nodes would have."""
    folder.mkdir(parents=True, exist_ok=True)
    lines: dict[str, list[bytes]] = {}
    for event in events:
        lines.setdefault(f"{event.node}.{event.inc}.jsonl", []).append(line(event))
    for name, text in lines.items():
        (folder / name).write_bytes(b"".join(text))


class TapeWriter:
    """Writes one node's tape; each event is in the kernel's hands before `record` returns."""

    def __init__(self, folder: Path, node: str, inc: int, epoch: float) -> None:
        """`inc`: the incarnation of the process that writes. `epoch` is the run's beginning on CLOCK_MONOTONIC, in
        seconds."""
        folder.mkdir(parents=True, exist_ok=True)
        self._file = open(  # noqa: SIM115 - open as long as the node lives
            folder / f"{node}.{inc}.jsonl", "ab", buffering=0)
        self.node, self._inc, self._epoch = node, inc, epoch

    def record(self, event: Event) -> None:
        """Append one event, stamped with the time now."""
        self._file.write(line(event.stamped(time.monotonic() - self._epoch, self.node, self._inc)))

    def close(self) -> None:
        """Close the file; nothing is buffered."""
        self._file.close()


def next_incarnation(folder: Path, node: str) -> int:
    """The number of a node's next incarnation, by the tapes of those that were: 0 for the first."""
    numbers = [path.stem.rpartition(".") for path in folder.glob("*.jsonl")]
    return max((int(number) + 1 for name, _, number in numbers if name == node and number.isdigit()), default=0)


def earlier(folder: Path, node: str, incarnation: int) -> Iterator[Event]:
    """Yield what a node's processes before this one wrote, as far as it is whole."""
    for number in range(incarnation):
        file = folder / f"{node}.{number}.jsonl"
        if file.is_file():
            for text in file.read_bytes().splitlines():
                with suppress(ValueError):  # of one that was killed the last line may be torn
                    yield parse(text)


class NoTape(TapeWriter):
    """Records nothing: what a node is measured with to learn what its tape costs."""

    def __init__(self, folder: Path, node: str, inc: int, epoch: float) -> None:
        """Opens no file."""
        self.node = node

    def record(self, event: Event) -> None:
        """Record nothing."""

    def close(self) -> None:
        """Do nothing."""
