"""What a run leaves: the event log, files that are written whole, and what must be undone."""
