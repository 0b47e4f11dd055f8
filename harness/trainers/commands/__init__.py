"""Trainers that are not ours: commands somebody wrote, and what their logs tell of progress."""
