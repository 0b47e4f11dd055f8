"""Nodes under virtual time, in one process."""
