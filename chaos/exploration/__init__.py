"""Finds schedules of faults that break something, under virtual time, and makes them small."""
