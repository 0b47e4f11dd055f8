"""Faults inside a living process, by a library that is preloaded into it."""
