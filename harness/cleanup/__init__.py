"""What must be undone when a run ends, however it ends, and which processes are its own."""
