"""What the built-in trainer ought to compute, written from docs/protocol.md alone. No code is shared with the trainer,
so that a bug there is none here."""
