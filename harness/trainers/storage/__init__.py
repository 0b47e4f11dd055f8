"""What nodes keep on disk beside their event log."""
