"""A node's log for people: what its tape records, in words, on standard output."""

from __future__ import annotations

import math
from contextlib import suppress

from msgspec import structs

from diloco_chaos.harness.record.tape.events import Event, Merge, OuterGradient, Received, Refused, Step
from diloco_chaos.harness.record.tape.writing import TapeWriter

_EVERY = 20  # steps between two lines about steps
_WORDS = {
    "start": "starting", "listening": "listening on port {port}", "resumed": "going on from step {step}",
    "initial": "a fresh model", "steady": "every learner has been merged: the cluster is steady",
    "hello": "{learner} is here (incarnation {incarnation})", "lost": "lost {learner}: {reason}",
    "disconnected": "lost the syncer: {reason}", "refused": "refused a contribution of {learner}: {reason}",
    "repaired": "{file} was damaged ({reason}); made good from its copy", "superseded": "superseded: {reason}",
    "failpoint": "stopped at failpoint {point}", "finished": "training is over at step {step}",
    "failed": "failed: {reason}",
    "refused_checkpoint": "refusing to go on: {reason}", "exit": "bye"}


class Logged(TapeWriter):
    """A tape that is a log for people, too."""

    def record(self, event: Event) -> None:
        """Append one event, and print a line about it where it matters to people."""
        super().record(event)
        if words := in_words(event):
            with suppress(OSError):  # a log that can't be written must not end the training
                print(" ".join(words.split()), flush=True)


def in_words(event: Event) -> str:
    """The event as a line; empty: not worth one."""
    match event:
        case Step():
            loss = math.nan if event.loss is None else event.loss
            return f"step {event.step}, loss {loss:.3f}" if event.step % _EVERY == 0 else ""
        case Merge():
            names = ", ".join(part.learner for part in event.contributions)
            return f"step {event.step}: fragment {event.fragment} version {event.version} from {names}"
        case Received():
            return f"received fragment {event.fragment} version {event.version} at step {event.step}"
        case OuterGradient():
            return f"gave {event.steps} steps of fragment {event.fragment}"
        case Refused() if event.learner is None:  # a learner refuses what the syncer sent
            return f"refused what the syncer sent: {event.reason}"
        case _:
            return _WORDS.get(event.event, "").format_map(
                {name: value or f"no {name}" if isinstance(value, str) else value
                 for name, value in structs.asdict(event).items()})
