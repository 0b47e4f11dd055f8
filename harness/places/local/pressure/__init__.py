"""Pressure on this machine's processors, memory and disk."""
