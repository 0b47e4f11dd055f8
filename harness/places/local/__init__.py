"""Nodes as processes of this machine."""
