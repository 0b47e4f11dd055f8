"""Faults of links: where a node is, and how its connections misbehave."""
