"""A node's log for people: what its tape records, in words, on standard output."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

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
    """A tape that is told, too."""

    def record(self, event: str, **fields: Any) -> None:
        """Append one event, and print a line about it where it matters to people."""
        super().record(event, **fields)
        if words := in_words(event, fields):
            with suppress(OSError):  # a log that nobody can write must not end the training
                print(" ".join(words.split()), flush=True)


def in_words(event: str, fields: dict[str, Any]) -> str:
    """The event as a line; empty: not worth one."""
    if event == "step":
        return f"step {fields['step']}, loss {fields['loss']:.3f}" if fields["step"] % _EVERY == 0 else ""
    if event == "merge":
        names = ", ".join(part["learner"] for part in fields["contributions"])
        return f"step {fields['step']}: fragment {fields['fragment']} version {fields['version']} from {names}"
    if event == "received":
        return f"received fragment {fields['fragment']} version {fields['version']} at step {fields['step']}"
    if event == "outer_gradient":
        return f"gave {fields['steps']} steps of fragment {fields['fragment']}"
    if event == "refused" and "learner" not in fields:  # a learner refuses what the syncer sent
        return f"refused what the syncer sent: {fields.get('reason', 'no reason')}"
    known = {"learner": "an unknown peer", "reason": "no reason"} | fields
    return _WORDS[event].format_map(known) if event in _WORDS else ""
