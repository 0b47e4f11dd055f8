"""Faults of a node's process: it ends, stands, comes back twice, or another takes its place."""
